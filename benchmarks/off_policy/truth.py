"""What the policies really earn: seeded episodes under the mean action, the same for every policy.

python -m benchmarks.off_policy.truth pendulum --runs runs

The discounted value is of episodes that go on beyond the environment's own limit until a reward counts less than a
hundredth, unless they truly end; the return is that of the first steps, up to the limit, without discount. `--episodes N`
writes a sharper truth beside the one that counts (kind `truthN`), without single episodes.
"""

import importlib.metadata
from dataclasses import replace
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
    parser = arguments(__doc__)
    parser.add_argument("--episodes", type=int, help="another number of episodes, for a result of its own")
    given = parser.parse_args()
    kind = "truth" if given.episodes is None else f"truth{given.episodes}"
    torch.set_num_threads(1)
    for name in given.tasks:
        task = TASKS[name] if given.episodes is None else replace(TASKS[name], episodes=given.episodes)
        versions = {library: importlib.metadata.version(library) for library in ("torch", "gymnasium", "numpy")}
        fixed = {"env_id": task.env_id, "gamma": GAMMA, "episodes": task.episodes, "limit": task.limit, "long": task.long}
        known = (None if given.again else read(kind, name)) or {**fixed, "versions": versions, "policies": {}}
        for policy, checkpoint in checkpoints(name, given.runs):
            if policy not in known["policies"] and checkpoint.exists():
                found = truth_of(checkpoint, task)
                if given.episodes is not None:
                    found = {key: value for key, value in found.items() if not isinstance(value, list)}
                known["policies"][policy] = found
                write(kind, name, known)
                shown = [f"{key} {found[key]:.1f} +- {found[f'{key}_error']:.1f}" for key in ("value", "return")]
                print(f"{name} {policy}: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
