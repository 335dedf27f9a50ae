"""What the policies really earn: seeded episodes under the mean action, the same for every policy.

python -m benchmarks.off_policy.truth pendulum --runs runs

The discounted value is of episodes that go on beyond the environment's own limit until a reward counts less than a
hundredth, unless they truly end; the return is that of the first steps, up to the limit, without discount.
"""

import importlib.metadata
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
    found: dict[str, Any] = {}
    policy = Policy.load(checkpoint, device="cpu")
    for name, each in zip(("value", "return"), episodes_of(policy, task), strict=True):
        found |= {name: float(each.mean()), f"{name}_error": float(each.std(ddof=1) / np.sqrt(len(each)))}
        found[f"{name}s"] = np.round(each, 2).tolist()
    return found


def main() -> None:
    """Find out about the policies that have no result yet."""
    given = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    for name in given.tasks:
        task = TASKS[name]
        versions = {library: importlib.metadata.version(library) for library in ("torch", "gymnasium", "numpy")}
        fixed = {"env_id": task.env_id, "gamma": GAMMA, "episodes": task.episodes, "limit": task.limit, "long": task.long}
        known = (None if given.again else read("truth", name)) or {**fixed, "versions": versions, "policies": {}}
        for policy, checkpoint in checkpoints(name, given.runs):
            if policy not in known["policies"] and checkpoint.exists():
                found = truth_of(checkpoint, task)
                known["policies"][policy] = found
                write("truth", name, known)
                shown = [f"{key} {found[key]:.1f} +- {found[f'{key}_error']:.1f}" for key in ("value", "return")]
                print(f"{name} {policy}: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
