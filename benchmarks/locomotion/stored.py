"""The policies that made the sets here, as small files, so that the sets can be made again without training SAC.

python -m benchmarks.locomotion.stored --keep data   # from the policies of a data directory

A file has what acting needs of a checkpoint. The critics and the optimizer of the checkpoint that is made from it are those
of a new learner, so it acts like the original but cannot be trained on.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from benchmarks.locomotion.behaviour import SEEDS, TASKS
from rl_training.config.loading import make_config
from rl_training.data.spaces import Spaces
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint

POLICIES = Path(__file__).parent / "policies"
ACTING = ("actor/", "transforms/", "online/")


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


def main() -> None:
    """Store the policies of all tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, required=True, metavar="DATA")
    given = parser.parse_args()
    for name in (f"{task}-{kind}" for task in TASKS for kind in ("medium", "expert")):
        keep(name, given.keep)


if __name__ == "__main__":
    main()
