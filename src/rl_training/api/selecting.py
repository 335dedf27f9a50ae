"""Choose among trained policies: by estimates from logged data, and by real episodes as their results come in."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.api.policy import whole_number
from rl_training.errors import ConfigError, did_you_mean
from rl_training.ope.choosing import MOST_EPISODES, WIDER, Choice, Evidence, decide

_MOST_BUDGET = 1_000
_NO_MAP = (
    "the log does not show that a higher discounted value goes with a higher return, so the estimates say nothing about "
    "results: only real episodes count"
)


@dataclass(frozen=True)
class Candidate:
    """One policy: what the log says of it, its results, and what both together lead to expect."""

    name: str
    run: str
    step: int
    member: int
    value: float | None  # discounted, by the log; None if it cannot tell
    interval: list[float]
    verdict: str
    reasons: list[str]
    counted: bool  # whether the estimate counts; otherwise the policy is one of the others, of which nothing is known
    results: list[float]  # returns of real episodes
    expected_return: float
    expected_std: float
    chance: float  # to be the best


@dataclass(frozen=True)
class Selection:
    """The candidates, the highest expected return first, which of them to try next, and what may be concluded."""

    data: str
    candidates: list[Candidate]
    sure: bool
    expected_loss: float  # of return, by taking the first candidate instead of the best
    plan: list[str]  # the policies of the next episodes, in order
    further_episodes: int | None  # that would settle the choice; None if more than `MOST_EPISODES`
    conclusion: str
    warnings: list[str]

    @property
    def chosen(self) -> Candidate:
        """The candidate with the highest expected return."""
        return self.candidates[0]

    @property
    def shares(self) -> dict[str, int]:
        """How many of the next episodes each policy gets, in the order in which to try them first."""
        return dict(Counter(self.plan))

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "chosen": self.chosen.name, "try_first": self.shares}


def select(
    runs: Sequence[str | Path],
    data: str | None = None,
    *,
    results: Mapping[str, Sequence[float]] | None = None,
    budget: int = 10,
    checkpoints: str = "latest",
    device: str = "auto",
    again: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] = warnings.warn,
    **reading: Any,
) -> Selection:
    """Return members, checkpoints and runs in the order of what to expect of them, and which to try in real episodes.

    Without `data` the runs' own is used. `results` are returns of real episodes by the name of a candidate. Estimates are
    kept in the run directories and used again, unless `again` asks for new ones.
    """
    from rl_training.api.kept_estimates import answered
    from rl_training.api.off_policy import ask

    whole_number("budget", budget, 1, _MOST_BUDGET)
    asked = ask(runs, data, checkpoints=checkpoints, **reading)
    _check_results(results or {}, [one.name for one in asked.policies])  # before the log is evaluated, which takes minutes
    found = answered(asked, again=again, device=device, tell=tell, warn=warn)
    return choose(found.report, results or {}, budget)


def choose(report: Mapping[str, Any], results: Mapping[str, Sequence[float]], budget: int = 10) -> Selection:
    """Return the selection for an off-policy report in plain values; equal arguments give equal values."""
    whole_number("budget", budget, 1, _MOST_BUDGET)
    policies = report["policies"]
    if len(policies) < 2:
        raise ConfigError("there is one policy, so nothing to choose: name several runs, a population, or checkpoints `all`")
    names = [policy["name"] for policy in policies]
    _check_results(results, names)
    taken = [[float(value) for value in results.get(name, ())] for name in names]
    evidence = _evidence(report)
    found = decide(evidence, taken, budget)
    deviations = np.sqrt(np.diag(found.belief.covariance))
    kept = ("name", "run", "step", "member", "value", "interval", "verdict", "reasons")
    candidates = [
        Candidate(
            **{key: policies[index][key] for key in kept},
            counted=bool(evidence.known[index]),
            results=taken[index],
            expected_return=float(found.belief.mean[index]),
            expected_std=float(deviations[index]),
            chance=float(found.chances[index]),
        )
        for index in np.argsort(-found.belief.mean, kind="stable")
    ]
    told = [*report.get("warnings", ()), *([] if report["logged"]["slope"] > 0.0 else [_NO_MAP])]
    return Selection(
        data=report["data"],
        candidates=candidates,
        sure=found.sure,
        expected_loss=found.loss,
        plan=[names[index] for index in found.plan],
        further_episodes=found.settles,
        conclusion=_conclusion(candidates, found, anything_known=bool(evidence.known.any() or any(taken))),
        warnings=told,
    )


def _check_results(results: Mapping[str, Sequence[float]], names: Sequence[str]) -> None:
    for name, values in results.items():
        if name not in names:
            shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
            raise ConfigError(f"the result of {name!r}: is none of the candidates {shown}.{did_you_mean(name, names)}")
        if not all(isfinite(value) for value in values):
            raise ConfigError(f"the result of {name!r}: must be finite, got {', '.join(f'{value:g}' for value in values)}")


def _evidence(report: Mapping[str, Any]) -> Evidence:
    """The estimates in the unit of returns; none where the log cannot tell, or where nothing maps them to returns."""
    logged, slope = report["logged"], report["logged"]["slope"]
    usable = [
        slope > 0.0 and policy["value"] is not None and policy["verdict"] in WIDER and isfinite(policy["std"])
        for policy in report["policies"]
    ]
    pairs = [
        (logged["offset"] + slope * policy["value"], slope * policy["std"] * WIDER[policy["verdict"]])
        if known
        else (np.nan,) * 2
        for policy, known in zip(report["policies"], usable, strict=True)
    ]
    values, errors = np.array(pairs, dtype=np.float64).T
    return Evidence(values, errors, float(logged["return_std"]), float(logged["return_mean"]))


def _conclusion(candidates: Sequence[Candidate], found: Choice, *, anything_known: bool) -> str:
    """One or two sentences: what may be concluded, and what it takes to know more."""
    first, count = candidates[0], len(candidates)
    episodes = len(first.results)
    if found.sure:
        return f"{first.name} is the best of {count}: a chance of {first.chance:.1%}, with {episodes} real episodes of it."
    if not anything_known:
        known = "Nothing is known: the log cannot tell what any of these policies is worth, and there are no results"
        return f"{known}. Try each of them, and pass what they reach with --result."
    lacking = f"the results of {first.name} do not set it apart far enough"
    if episodes < 2:
        seen = f"{'no' if not episodes else 'only one'} real episode of {first.name} was seen"
        lacking = f"{seen}, and estimates alone settle nothing"
    more = f"More than {MOST_EPISODES}" if found.settles is None else f"About {found.settles}"
    return (
        f"Not sure: {_ahead(candidates)}, but {lacking}. {more} further episodes would settle it; taken now, {first.name} is "
        f"expected to return {found.loss:.3g} less than the best."
    )


def _ahead(candidates: Sequence[Candidate]) -> str:
    """Who leads: by the expected return, which ranks, and by the chance to be the best, where that is another."""
    first, rival = candidates[0], max(candidates[1:], key=lambda one: one.chance)
    if first.chance < rival.chance:
        higher = f"{rival.name} the highest chance to be the best, {rival.chance:.1%} beside {first.chance:.1%}"
        return f"{first.name} has the highest expected return and {higher}"
    chance = f"{first.chance:.0%}" if first.chance < 0.99 else f"{first.chance:.1%}"
    return f"{first.name} is ahead, with a chance of {chance} to be the best ({rival.name}: {rival.chance:.0%})"
