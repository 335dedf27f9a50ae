"""How much of an error on Pendulum comes from where episodes begin: the truth from many starts, and from the logged ones.

python -m benchmarks.off_policy.starts --runs runs

The truth that counts (`truth.py`) is of 300 starts, and all policies have the same; the estimates are of the logged ones.
Pendulum has no chance in it after the start, and its `step` does for columns of states what it does for one, so here 5,000
starts are rolled out at once, and the very starts of the data.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.off_policy.tasks import GAMMA, TASKS, checkpoints, read, write
from rl_training.api.data_report import dataset_of
from rl_training.api.policy import Policy

TASK, COUNT = "pendulum", 5_000
Numbers = NDArray[np.float64]


def values_from(policy: Policy, angles: Numbers, speeds: Numbers) -> Numbers:
    """Return the discounted value of a policy from each of some states."""
    env: Any = gymnasium.make(TASKS[TASK].env_id).unwrapped
    env.state = np.array([angles, speeds])
    values, seen = np.zeros(len(angles)), env._get_obs()
    for step in range(TASKS[TASK].long):
        seen, rewards, _, _, _ = env.step(policy.predict(np.ascontiguousarray(seen.T)).T)
        values += GAMMA**step * rewards
    return values


def measure(runs: Path) -> dict[str, Any]:
    """Return the values of every policy from fresh starts and from the logged ones, with standard errors."""
    found: dict[str, Any] = {}
    fresh = np.random.default_rng(0).uniform((-np.pi, -1.0), (np.pi, 1.0), (COUNT, 2)).T
    logged = None
    for name, path in checkpoints(TASK, runs):
        policy = Policy.load(path, device="cpu")
        if logged is None:
            logged = logged_starts(policy)
        found[name] = {}
        for kind, starts in {"value": fresh, "from the logged starts": logged}.items():
            each = values_from(policy, *starts)
            found[name] |= {kind: float(each.mean()), f"{kind}_error": float(each.std(ddof=1) / np.sqrt(len(each)))}
    return {"starts": COUNT, "logged_starts": 0 if logged is None else logged.shape[1], "policies": found}


def logged_starts(policy: Policy) -> Numbers:
    """Return the angles and speeds where the episodes of a policy's data begin."""
    dataset, origin = dataset_of(policy, None)
    if dataset is None:
        raise SystemExit(origin)
    lengths = dataset.episode_spans[1]
    seen = np.asarray(dataset.observations)[np.cumsum(lengths) - lengths].astype(np.float64)
    return np.stack((np.arctan2(seen[:, 1], seen[:, 0]), seen[:, 2]))


def main() -> None:
    """Measure, unless there is a result; print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.again or read("starts", TASK) is None:
        write("starts", TASK, measure(given.runs))
    for name, one in read("starts", TASK)["policies"].items():
        print(name, {key: round(value, 1) for key, value in one.items()})


if __name__ == "__main__":
    main()
