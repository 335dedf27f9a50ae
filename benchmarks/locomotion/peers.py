"""What the programs that run other libraries on our sets have in common: arguments, jobs, and the form of a result."""

import argparse
import json
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.locomotion.behaviour import TASKS
from benchmarks.locomotion.data import make, split
from benchmarks.locomotion.jobs import RESULTS
from benchmarks.locomotion.offline import SETS, STEPS
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.offline_dataset import TransitionDataset


@dataclass(frozen=True)
class Job:
    """One seed of an algorithm on a set."""

    algo: str
    name: str
    seed: int
    steps: int
    device: str
    precision: str
    data: Path
    target: Path
    source: Path | None
    kept: Path  # where its state may be kept while it goes on

    @property
    def env_id(self) -> str:
        """The environment of the set."""
        return TASKS[split(self.name)[0]]

    def dataset(self) -> TransitionDataset:
        """Return the set; from here on, products have the precision of the job."""
        torch.set_float32_matmul_precision(self.precision)
        return load_dataset(make(self.name, self.data))

    def done(self, library: str, dataset: TransitionDataset, returns: list[float], seconds: float) -> None:
        """Write down what the last policy reached in its episodes."""
        found: dict[str, Any] = {"library": library, "algo": self.algo, "set": self.name, "fingerprint": dataset.fingerprint}
        found |= {"steps": self.steps, "seed": self.seed, "episode_returns": returns, "return": float(np.mean(returns))}
        found |= {"seconds": round(seconds, 1), "device": self.device, "precision": self.precision}
        found |= {"torch": torch.__version__}
        self.target.write_text(json.dumps(found, indent=1) + "\n")


def rows_of(dataset: TransitionDataset, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return columns of a set as arrays of their own, which others may change."""
    return {column: np.array(getattr(dataset, column), dtype=np.float32) for column in columns}


def run_jobs(
    description: str | None,
    folder: str,
    work: Callable[[Job], None],
    *,
    needs_source: bool,
    algos: tuple[str, ...],
    if_named: tuple[str, ...] = (),
) -> None:
    """Do the jobs that have no result yet, several at a time, each in a process of its own.

    Algorithms in `if_named`, which take hours, are left out unless they are asked for.
    """
    parser = argparse.ArgumentParser(description=description)
    if needs_source:
        parser.add_argument("--source", type=Path, required=True, help="a checkout of the library")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS / folder)
    parser.add_argument("--algos", nargs="+", default=algos, choices=(*algos, *if_named))
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", default="high", choices=("highest", "high"), help="of float32 products; high is tf32")
    parser.add_argument("--parallel", type=int, default=1)
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    jobs = []
    for algo, name, seed in [(a, s, n) for a in given.algos for s in given.sets for n in given.seeds]:
        target = given.results / f"{algo}-{name}-{seed}.json"
        if not target.exists():
            source, kept = given.source if needs_source else None, given.data / folder / target.stem
            jobs.append(Job(algo, name, seed, given.steps, given.device, given.precision, given.data, target, source, kept))
    with multiprocessing.get_context("spawn").Pool(given.parallel, _one_thread, maxtasksperchild=1) as pool:
        pool.map(work, jobs, chunksize=1)


def _one_thread() -> None:
    torch.set_num_threads(1)
