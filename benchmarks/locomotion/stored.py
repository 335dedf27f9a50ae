"""What made the sets here, as small files, so that the sets can be made again without training SAC.

python -m benchmarks.locomotion.stored --keep data   # the policies of a data directory
python -m benchmarks.locomotion.stored --keep-replays data

The file of a policy has what acting needs of a checkpoint. The critics and the optimizer of the checkpoint that is made from
it are those of a new learner, so it acts like the original but cannot be trained on.

The file of a replay has the actions that were taken. Every episode began with a seed that follows from the run's, so actions
and environment give all rows again; SAC would give others as soon as its kernels round otherwise.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from benchmarks.locomotion.behaviour import SEEDS, TASKS
from rl_training.config.loading import make_config
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.spaces import Spaces
from rl_training.data.store.directory import save_dataset
from rl_training.envs.collector import STREAM
from rl_training.envs.environments import close_env, episode_seeds, make_env, reset_env, step_env
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint

POLICIES = Path(__file__).parent / "policies"
ACTING = ("actor/", "transforms/", "online/")
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def keep(name: str, data: Path) -> None:
    """Store a policy of a data directory."""
    checkpoint = load_checkpoint(data / "policies" / name)
    POLICIES.mkdir(exist_ok=True)
    acting = {key: value for key, value in checkpoint.tensors.items() if key.startswith(ACTING)}
    save_file(acting, POLICIES / f"{name}.safetensors")
    state = {key: value for key, value in checkpoint.state.items() if key != "evaluating"}
    (POLICIES / f"{name}.json").write_text(json.dumps(state, indent=1) + "\n")


def place_of(name: str) -> tuple[int, int] | None:
    """Return where in its run a stored policy was, environment steps and member, if it is stored."""
    path = POLICIES / f"{name}.json"
    if not path.exists():
        return None
    state = json.loads(path.read_text())
    (seed,) = state["seeds"]
    return state["env_step"], SEEDS.index(seed)


def restore(name: str, target: Path) -> bool:
    """Write a stored policy as a checkpoint, if it is stored; return whether it is."""
    if not (POLICIES / f"{name}.safetensors").exists():
        return False
    state = json.loads((POLICIES / f"{name}.json").read_text())
    config = make_config(state["config"], name)
    spaces = Spaces.from_json(state["spaces"])
    learner = build_learner(state["algo"], spaces, state["seeds"], torch.device("cpu"), config.algo_kwargs)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(target, {**learner.state_dict(), **load_file(POLICIES / f"{name}.safetensors")}, state)
    return True


def keep_replay(task: str, data: Path) -> None:
    """Store the actions of a replay of a data directory."""
    actions = load_dataset(data / f"{task}-medium-replay").actions
    save_file({"actions": torch.from_numpy(np.array(actions))}, POLICIES / f"{task}-medium-replay.safetensors")


def restore_replay(task: str, target: Path) -> bool:
    """Make a replay from its stored actions, if they are stored; return whether they are."""
    path, place = POLICIES / f"{task}-medium-replay.safetensors", place_of(f"{task}-medium")
    if place is None or not path.exists():
        return False
    save_dataset(replayed(TASKS[task], SEEDS[place[1]], load_file(path)["actions"].numpy()), target)
    return True


def replayed(env_id: str, seed: int, actions: NDArray[np.float32]) -> TransitionDataset:
    """Return what a run with this seed that took these actions had collected, episode after episode."""
    env, seeds = make_env(env_id), episode_seeds(seed, STREAM)
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    seen = reset_env(env, env_id, next(seeds))
    for action in actions:
        after, reward, terminal, cut = step_env(env, env_id, action)
        for name, value in zip(COLUMNS, (seen, action, reward, after, terminal, cut and not terminal), strict=True):
            rows[name].append(value)
        seen = reset_env(env, env_id, next(seeds)) if terminal or cut else after
    bounds = {"action_low": env.action_space.low, "action_high": env.action_space.high}
    close_env(env, env_id)
    rows["timeouts"][-1] = not rows["terminals"][-1]  # the run went on
    flags = ("terminals", "timeouts")
    arrays = {name: np.array(values, dtype=bool if name in flags else np.float32) for name, values in rows.items()}
    return load_dataset({**arrays, **bounds})


def main() -> None:
    """Store the policies, or the replays, of all tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--keep", type=Path, metavar="DATA")
    what.add_argument("--keep-replays", type=Path, metavar="DATA")
    given = parser.parse_args()
    if given.keep is not None:
        for name in (f"{task}-{kind}" for task in TASKS for kind in ("medium", "expert")):
            keep(name, given.keep)
    if given.keep_replays is not None:
        for task in TASKS:
            keep_replay(task, given.keep_replays)


if __name__ == "__main__":
    main()
