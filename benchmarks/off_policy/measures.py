"""How good estimates are: their order against the truth, and whether intervals hold it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

ESTIMATORS = ("fqe", "model", "dr", "wpdis", "joint")
SCORES = {"initial_value": 1.0, "td_error": -1.0, "action_distance": -1.0, "beyond_support": -1.0}  # and their signs
OUTCOMES = ("held", "cannot tell", "missed")


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[where], dtype=np.float64)


def opinion(policy: dict[str, Any], estimator: str) -> dict[str, Any]:
    """Return what an estimator says of a policy of a report."""
    found: dict[str, Any] = policy if estimator == "joint" else policy["estimates"][estimator]
    return found


def guesses(policies: Sequence[dict[str, Any]], name: str) -> dict[str, float]:
    """Return an estimate or a signed score of each policy that has one, the higher the better."""
    found = {}
    for policy in policies:
        value = policy["scores"].get(name) if name in SCORES else opinion(policy, name)["value"]
        if value is not None:
            found[policy["name"]] = SCORES.get(name, 1.0) * value
    return found


def correlation(guess: dict[str, float], truth: dict[str, Any], key: str) -> float:
    """Return the rank correlation with the discounted value or the return; NaN where too few policies have a guess."""
    if len(guess) < 3:
        return float("nan")
    return spearman(list(guess.values()), [truth["policies"][name][key] for name in guess])


def outcome(said: dict[str, Any], value: float) -> str:
    """Return whether an interval holds the truth, misses it, or it was said that one cannot tell."""
    if said["verdict"] == "cannot tell":
        return "cannot tell"
    low, high = said["interval"]
    return "held" if low <= value <= high else "missed"


def summary(report: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of every estimator and score of a report."""
    policies = report["policies"]
    found: dict[str, Any] = {}
    for name in (*ESTIMATORS, *SCORES):
        guess = guesses(policies, name)
        one: dict[str, Any] = {"policies": len(guess)}
        one |= {key: correlation(guess, truth, key) for key in ("value", "return")}
        if name in ESTIMATORS:
            one |= coverage(report, truth, name)
        found[name] = one
    return found


def coverage(report: dict[str, Any], truth: dict[str, Any], name: str) -> dict[str, Any]:
    """Return how many intervals of an estimator hold the truth, and its verdicts."""
    pairs = [(opinion(policy, name), truth["policies"][policy["name"]]["value"]) for policy in report["policies"]]
    counted = Counter(outcome(*pair) for pair in pairs)
    found: dict[str, Any] = {kind: counted[kind] for kind in OUTCOMES}
    found["verdicts"] = dict(Counter(said["verdict"] for said, _ in pairs))
    found["trusted and missed"] = sum(
        said["verdict"] == "trust" and outcome(said, value) == "missed" for said, value in pairs
    )
    return found
