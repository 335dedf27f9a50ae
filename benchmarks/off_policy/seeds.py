"""Fitted Q evaluation alone with several seeds, which share no network: how much of its order is chance.

python -m benchmarks.off_policy.seeds pendulum hopper --runs runs --data sets --seeds 0 12 24 36
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from benchmarks.off_policy.d3rlpy_peer import ours, policies_and_rows
from benchmarks.off_policy.estimates import commit_of_estimators
from benchmarks.off_policy.measures import correlation
from benchmarks.off_policy.tasks import arguments, read, write
from rl_training.ope.episodes import Behaviour, Episodes

SEEDS = (0, 12, 24, 36)  # the networks of a seed have the seeds from there on


def fits(episodes: Episodes, behaviours: dict[str, Behaviour], seeds: Iterable[int]) -> dict[str, Any]:
    """Return the values of all policies with every seed, and the times of the fits."""
    found = [{"seed": seed, **ours(episodes, list(behaviours.values()), seed)} for seed in seeds]
    return {"commit": commit_of_estimators(), "policies": list(behaviours), "fits": found}


def figures(found: dict[str, Any], truth: dict[str, Any]) -> dict[str, list[float]]:
    """Return for every seed the rank correlation with the true value, the mean absolute error and the time."""
    guesses = [dict(zip(found["policies"], one["values"], strict=True)) for one in found["fits"]]
    apart = [[guess[name] - truth["policies"][name]["value"] for name in guess] for guess in guesses]
    return {
        "correlation": [correlation(guess, truth, "value") for guess in guesses],
        "error": [float(np.abs(one).mean()) for one in apart],
        "seconds": [one["cpu_seconds"] for one in found["fits"]],
    }


def main() -> None:
    """Fit where there is no result yet; print all."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for task in given.tasks:
        if given.again or read("seeds", task) is None:
            policies, episodes = policies_and_rows(task, given.runs, given.data)
            behaviours = {name: Behaviour.of(policy.predict, episodes) for name, policy in policies.items()}
            write("seeds", task, fits(episodes, behaviours, given.seeds))
        for name, each in figures(read("seeds", task), read("truth", task)).items():
            print(f"{task}, {name}: {[round(one, 2) for one in each]}, on average {np.mean(each):.2f}")


if __name__ == "__main__":
    main()
