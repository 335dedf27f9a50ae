"""`python -m benchmarks.member_bits`: whether a member's bits depend on how many members are trained beside it.

Every algorithm trains 12 members in one process, and the same members in groups of 6, 4, 5 and 1 (`--groups`). Weights,
targets and moments of each member are compared bit for bit, and its metric rows. Offline algorithms learn from a recipe of
Pendulum, online ones in Pendulum. `--device cuda` measures a GPU, with `--engines graph`.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rl_training.config.loading import make_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.registry import get_spec, names
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore
from rl_training.runtime.metrics import read_rows

MEMBERS = 12
GROUPS = (6, 4, 5, 1)  # of 5 there are two, and one of the last 2 members
OWN = {"redq": {"gradient_updates_per_step": 2}, "rlpd": {"offline_pretrain_updates": 20, "gradient_updates_per_step": 2}}


def values(algo: str, engine: str, device: str, steps: int, shape: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run."""
    spec = get_spec(algo)
    data = {"dataset": {"kind": "random", "size": 2000, "seed": 3}} if spec.takes_data else {}
    online = {"learning_starts": steps // 4} if spec.online else {}
    return {
        "algo": algo,
        "env_id": "Pendulum-v1",
        "engine": engine,
        "device": device,
        "total_timesteps": steps,
        "log_interval": max(steps // 4, 1),
        "eval_interval": max(steps // 2, 1),
        "eval_episodes": 2,
        "checkpoint_interval": steps,
        "algo_kwargs": {**data, **online, **shape, **OWN.get(algo, {})},
    }


def trained(settings: dict[str, Any], seeds: Sequence[int], folder: Path) -> tuple[Checkpoint, list[dict[str, Any]]]:
    """Train these members, and return their last checkpoint and their metric rows."""
    run_dir = folder / f"{seeds[0]}-{len(seeds)}"
    ExperimentManager(make_config({**settings, "seeds": list(seeds)}), run_dir).train()
    checkpoint = CheckpointStore(run_dir / "checkpoints", 2).load()
    metrics = run_dir / "metrics.jsonl"
    return checkpoint, read_rows(metrics, metrics.stat().st_size)


def difference(whole: torch.Tensor, part: torch.Tensor) -> float:
    """Return the largest difference between two tensors, relative to the largest entry of the first."""
    if torch.equal(whole, part):
        return 0.0
    apart = (whole.double() - part.double()).abs().max() / whole.double().abs().max().clamp(min=1e-12)
    return max(float(apart), 1e-30)


def compare(settings: dict[str, Any], groups: Sequence[int], folder: Path) -> dict[int, str]:
    """Return what differs for each size of a group: `same bits`, or the largest relative difference and where it is."""
    whole, rows = trained(settings, range(MEMBERS), folder)
    found = {}
    for size in groups:
        worst, where, same_rows = 0.0, "", True
        for first in range(0, MEMBERS, size):
            seeds = range(first, min(first + size, MEMBERS))
            part, own = trained(settings, seeds, folder)
            for name, tensor in part.learner_tensors.items():
                apart = difference(whole.learner_tensors[name][first : seeds.stop], tensor)
                worst, where = max((worst, where), (apart, name))
            expected = [{**row, "member": row["member"] - first} for row in rows if row["member"] in seeds]
            same_rows &= expected == own
        found[size] = "same bits" if not worst else f"{worst:.1e} ({where})"
        found[size] += "" if same_rows else ", other metric rows"
    return found


def main() -> None:
    """Measure the named algorithms, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algos", nargs="+", default=names())
    parser.add_argument("--engines", nargs="+", default=["eager", "compile"])
    parser.add_argument("--groups", nargs="+", type=int, default=GROUPS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    shape = {"hidden_sizes": [options.hidden, options.hidden], "batch_size": options.batch}
    for engine in options.engines:
        for algo in options.algos:
            settings = values(algo, engine, options.device, options.steps, shape)
            with tempfile.TemporaryDirectory() as folder:
                found = compare(settings, options.groups, Path(folder))
            print(algo, engine, "; ".join(f"groups of {size}: {text}" for size, text in found.items()), flush=True)


if __name__ == "__main__":
    main()
