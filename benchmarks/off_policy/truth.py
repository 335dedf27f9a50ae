"""What the policies really earn: seeded episodes under the mean action, the same for every policy.

python -m benchmarks.off_policy.truth pendulum --runs runs

The discounted value is of episodes that go on beyond the environment's own limit until a reward counts less than a
hundredth, unless they truly end; the return is that of the first steps, up to the limit, without discount.
"""

import importlib.metadata
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.off_policy.tasks import GAMMA, TASKS, Task, arguments, checkpoints, read, write
from rl_training.api.policy import Policy
from rl_training.config.environment import EnvSource
from rl_training.envs.environments import EnvBatch, reset_seeds

SEED, STREAM = 0, "off-policy truth"
Numbers = NDArray[np.float64]


def episodes_of(policy: Policy, task: Task) -> tuple[Numbers, Numbers]:
    """Return the discounted value and the ordinary return of each episode."""
    with EnvBatch(EnvSource(task.env_id, max_episode_steps=task.long), task.episodes) as envs:
        envs.reset_all(reset_seeds(SEED, STREAM, 0, task.episodes))
        values, returns = np.zeros((2, task.episodes))
        for step in range(task.long):
            rewards, _, _ = envs.step(policy.predict(envs.observations))
            values += GAMMA**step * rewards
            returns += rewards * (step < task.limit)
            if not envs.running.any():
                break
    return values, returns


def truth_of(checkpoint: Path, task: Task) -> dict[str, Any]:
    """Return what is written down of one policy."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    policy = Policy.load(checkpoint, device="cpu")
    for name, each in zip(("value", "return"), episodes_of(policy, task), strict=True):
        found |= {name: float(each.mean()), f"{name}_error": float(each.std(ddof=1) / np.sqrt(len(each)))}
        found[f"{name}s"] = np.round(each, 2).tolist()
    return found


def measure(name: str, known: dict[str, Any], runs: Path, workers: int) -> None:
    """Find out about the policies of a task that are not in `known`, several at once; each is written down when it is."""
    task = TASKS[name]
    wanted = {policy: path for policy, path in checkpoints(name, runs) if policy not in known["policies"] and path.exists()}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for policy, found in zip(wanted, pool.map(truth_of, wanted.values(), repeat(task)), strict=True):
            known["policies"][policy] = found
            write("truth", name, known)
            shown = [f"{key} {found[key]:.1f} +- {found[f'{key}_error']:.1f}" for key in ("value", "return")]
            print(f"{name} {policy}: {', '.join(shown)}", flush=True)


def main() -> None:
    """Find out about the policies that have no result yet."""
    parser = arguments(__doc__)
    parser.add_argument("--workers", type=int, default=1, help="policies that are tried at once")
    given = parser.parse_args()
    for name in given.tasks:
        task = TASKS[name]
        versions = {library: importlib.metadata.version(library) for library in ("torch", "gymnasium", "numpy")}
        fixed = {"env_id": task.env_id, "gamma": GAMMA, "episodes": task.episodes, "limit": task.limit, "long": task.long}
        known = (None if given.again else read("truth", name)) or {**fixed, "versions": versions, "policies": {}}
        measure(name, known, given.runs, given.workers)


if __name__ == "__main__":
    main()
