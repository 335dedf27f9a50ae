"""The tasks, and the rule that says which policies are evaluated, fixed before any of them was trained.

Algorithm i of `ALGOS` is trained for 1000 * 2^i gradient steps with seed 100 + i; its policies are those in the middle and
at the end. What learns little comes first, so that the twelve spread over the range of returns. In the tasks that are called
long, every algorithm is trained for 100,000 steps, as in the table of benchmarks.locomotion.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALGOS = ("cql", "fql", "bc", "awac", "td3_bc", "iql")
GAMMA = 0.99
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Task:
    """An environment, the data that was logged in it, and how much it takes to know the truth."""

    env_id: str
    recipe: str  # ALGO/recipe is the packaged config
    set: str | None  # of benchmarks.locomotion; the recipe's own data without
    limit: int  # steps of an ordinary episode
    long: int  # steps after which a discounted reward is less than a hundredth
    episodes: int
    steps: int | None = None  # of every algorithm; by the rule without


TASKS = {
    "pendulum": Task("Pendulum-v1", "pendulum-mixture", None, 200, 500, 300),
    "hopper": Task("Hopper-v5", "d4rl-locomotion", "hopper-medium-replay", 1000, 1000, 100),
    "halfcheetah": Task("HalfCheetah-v5", "d4rl-locomotion", "halfcheetah-medium-replay", 1000, 1000, 100),
    "walker2d": Task("Walker2d-v5", "d4rl-locomotion", "walker2d-medium-replay", 1000, 1000, 100),
    "hopper-long": Task("Hopper-v5", "d4rl-locomotion", "hopper-medium-replay", 1000, 1000, 100, 100_000),
    "halfcheetah-long": Task("HalfCheetah-v5", "d4rl-locomotion", "halfcheetah-medium-replay", 1000, 1000, 100, 100_000),
}


def steps_of(task: str, algo: str) -> tuple[int, int]:
    """Return the gradient steps after which an algorithm's two policies are taken."""
    last = TASKS[task].steps or 1000 * 2 ** ALGOS.index(algo)
    return last // 2, last


def run_of(task: str, algo: str, runs: Path) -> Path:
    """Return the run directory of an algorithm."""
    return runs / f"{task}-{algo}"


def checkpoints(task: str, runs: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names of the twelve policies and their checkpoints."""
    for algo in ALGOS:
        for step in steps_of(task, algo):
            yield f"{algo}@{step}", run_of(task, algo, runs) / "checkpoints" / f"step-{step:09d}"


def data_of(task: str, data: Path | None) -> str | None:
    """Return the path of the logged data; None is the recipe's own."""
    name = TASKS[task].set
    if name is None:
        return None
    if data is None:
        raise SystemExit(
            f"{task} needs --data, the directory of {name} (python -m benchmarks.locomotion.data {name} --out DIR)"
        )
    return str(data / name)


def result_file(kind: str, task: str) -> Path:
    """Return where a result is kept."""
    return RESULTS / f"{kind}-{task}.json"


def read(kind: str, task: str) -> Any:
    """Return a result; None if there is none."""
    path = result_file(kind, task)
    return json.loads(path.read_text()) if path.exists() else None


def write(kind: str, task: str, found: dict[str, Any]) -> None:
    """Keep a result."""
    RESULTS.mkdir(exist_ok=True)
    result_file(kind, task).write_text(json.dumps(found, indent=1) + "\n")


def arguments(description: str | None, *, runs: bool = True) -> argparse.ArgumentParser:
    """Return a parser of what all programs here are told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("tasks", nargs="+", choices=list(TASKS), metavar="TASK")
    if runs:
        parser.add_argument("--runs", type=Path, required=True, help="where `benchmarks.off_policy.policies` trained")
        parser.add_argument("--data", type=Path, help="where the sets of benchmarks.locomotion are")
    parser.add_argument("--again", action="store_true", help="also where there is a result")
    return parser
