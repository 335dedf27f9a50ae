"""`python -m benchmarks.batch_ranks`: what splitting every batch over two ranks changes, in numbers and in time.

One process and `--ranks` processes train the same IQL run (CPU, one thread each). Printed are the largest difference of the
parameters after `--at` steps, relative to the largest entry of each tensor, and the shortest time of a step. `--nudge 1e-7`
shows what another rounding becomes by training alone: one process, whose first rewards differ by so much.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.config.loading import make_config
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore

ROWS, OBSERVATIONS, ACTIONS = 20_000, 17, 6


class Clock(Callback):
    """Keeps the shortest time between two log rows."""

    def __init__(self) -> None:
        self.shortest, self._last = float("inf"), time.perf_counter()

    def on_log(self, step: int, rows: Any) -> None:
        """Take the time."""
        del step, rows
        now = time.perf_counter()
        self.shortest, self._last = min(self.shortest, now - self._last), now


def data(nudge: float) -> TransitionDataset:
    """Return a dataset of noise in which rewards depend on what is seen."""
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(ROWS + 1, OBSERVATIONS)).astype(np.float32)
    rewards = observations[:-1, 0] * (1.0 + nudge)
    ends = np.arange(1, ROWS + 1) % 100 == 0
    actions = generator.uniform(-1.0, 1.0, size=(ROWS, ACTIONS)).astype(np.float32)
    return TransitionDataset(observations[:-1], actions, rewards.astype(np.float32), observations[1:], ends & False, ends)


def train(options: argparse.Namespace, folder: Path, steps: int) -> None:
    """Train, and leave the time of a step beside the run."""
    torch.set_num_threads(1)
    every = max(1, min(steps, options.every))
    values = {
        "algo": "iql",
        "device": "cpu",
        "engine": "eager",
        "total_timesteps": steps,
        "log_interval": every,
        "eval_interval": steps,
        "checkpoint_interval": steps,
        "algo_kwargs": {"hidden_sizes": [options.hidden] * 2, "batch_size": options.batch, "normalize_observations": False},
    }
    clock = Clock()
    manager = ExperimentManager(make_config(values), folder)
    manager.train(callbacks=[clock], dataset=data(options.nudge))
    if manager.speaks:
        (folder / "seconds").write_text(str(clock.shortest / every))


def run(options: argparse.Namespace, ranks: int, steps: int, nudge: float, folder: Path) -> tuple[dict[str, Any], float]:
    """Return the parameters after some steps on so many ranks, and the seconds of a step."""
    names = ("hidden", "batch", "every")
    arguments = [text for name in names for text in (f"--{name}", str(getattr(options, name)))]
    arguments += ["--worker", str(folder), "--at", str(steps), "--nudge", str(nudge)]
    own = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port), "OMP_NUM_THREADS": "1"}
    options.port += 1
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.batch_ranks", *arguments],
            env={**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    if any(process.wait() for process in processes):
        raise SystemExit("a rank failed; run it with --worker to see why")
    tensors = CheckpointStore(folder / "checkpoints", 2).load().learner_tensors
    return tensors, float((folder / "seconds").read_text())


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--at", type=int, nargs="+", default=[1, 10, 1000])
    parser.add_argument("--every", type=int, default=5, help="steps that are timed together")
    parser.add_argument("--nudge", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=29_700)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        train(options, options.worker, options.at[0])
        return
    for steps in options.at:
        with tempfile.TemporaryDirectory() as folder:
            one, alone = run(options, 1, steps, 0.0, Path(folder) / "one")
            ranks = 1 if options.nudge else options.ranks
            other, together = run(options, ranks, steps, options.nudge, Path(folder) / "other")
        networks = [name for name, value in one.items() if not name.startswith("adam/") and value.is_floating_point()]
        apart = max(float((one[name] - other[name]).abs().max() / one[name].abs().max()) for name in networks)
        times = f"{1e3 * alone:.2f} ms alone, {1e3 * together:.2f} ms on {ranks} ranks: {alone / together:.2f} times as fast"
        print(f"{steps} steps: parameters {apart:.1e} apart; a step takes {times}", flush=True)


if __name__ == "__main__":
    main()
