"""`make bench`: speed on the CPU as ratios measured side by side in one run.

* Every algorithm at obs 11, act 3, two layers of 256, batch 256, 1,000,000 rows, sampling included, against the ceiling of
  its own matrix products (`benchmarks.products`): same shapes and threads, outputs preallocated, nothing else.
* A population of four against four solo runs one after another, with two layers of 64 and of 256.

Both sides of a ratio are timed alternately in short rounds and the best round of each counts, because the machine may be
busy with other things. `--algo ID` measures one algorithm alone, `--json` prints the figures as one object.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.products import ACTIONS, BATCH, OBSERVATIONS, UPDATES, products
from rl_training.data.packing import RowLayout
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.experiment.config import make_config
from rl_training.experiment.registry import get_spec
from rl_training.runtime.engine import Engine, keep_freed_memory
from rl_training.runtime.offline import OfflineEngine
from rl_training.runtime.processing import ProcessedDataset
from rl_training.runtime.sources import DatasetSource

LAYOUT = RowLayout(
    (
        ("observations", OBSERVATIONS),
        ("actions", ACTIONS),
        ("rewards", 1),
        ("next_observations", OBSERVATIONS),
        ("terminals", 1),
        ("returns_to_go", 1),
    )
)


def synthetic(rows: int) -> ProcessedDataset:
    """Return random rows of the benchmark's shape."""
    draw = np.random.Generator(np.random.Philox(0))
    packed = draw.standard_normal((rows, LAYOUT.width), dtype=np.float32)
    packed[:, OBSERVATIONS : OBSERVATIONS + ACTIONS].clip(-1.0, 1.0, out=packed[:, OBSERVATIONS : OBSERVATIONS + ACTIONS])
    packed[:, -2] = 0.0
    bound = np.ones(ACTIONS, dtype=np.float32)
    spaces = Spaces(OBSERVATIONS, ACTIONS, -bound, bound)
    return ProcessedDataset(packed, LAYOUT, spaces, Transforms.identity(OBSERVATIONS), "", np.zeros(rows, dtype=bool))


def engine(algo: str, data: ProcessedDataset, hidden: int, seeds: Sequence[int]) -> Engine:
    """Return an engine that runs an algorithm's updates on the data, exactly as a training run has them."""
    values: dict[str, Any] = {"algo": algo, "env_id": "Pendulum-v1", "algo_kwargs": {"hidden_sizes": [hidden, hidden]}}
    learner = get_spec(algo).build()(data.spaces, seeds, torch.device("cpu"), make_config(values).algo_kwargs)
    source = DatasetSource(data, learner.model.seed_tensor, BATCH, torch.device("cpu"))
    return OfflineEngine(learner, source, {}, 10**9)


def best_times(functions: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """Return the shortest time of each function, all timed in turn."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(rounds):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def steps(engines: Sequence[Engine], count: int) -> Callable[[], None]:
    """Return a function that takes `count` steps with each engine."""

    def run() -> None:
        for one in engines:
            one.run(one.learner.step, count)

    return run


def share_of_products(algo: str, data: ProcessedDataset, rounds: int) -> float:
    """Return the time of an algorithm's products over the time of its update."""
    pattern, runner = len(UPDATES[algo]), engine(algo, data, 256, [0])
    repeats = max(1, min(runner.chunk, 20) // pattern)  # a chunk as training has it, cut short: the machine may be busy
    update, ceiling = steps([runner], pattern * repeats), products(algo, 256, repeats)
    step_time, product_time = best_times([update, ceiling], rounds)
    return product_time / step_time


def measure(algorithms: Sequence[str], rounds: int) -> dict[str, float]:
    """Return every figure by name."""
    data = synthetic(1_000_000)
    results: dict[str, float] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for algo in algorithms:
            results[f"{algo}_share_of_products_{threads}_threads"] = share_of_products(algo, data, rounds)
    torch.set_num_threads(1)
    for hidden in (64, 256):
        together = steps([engine("iql", data, hidden, [0, 1, 2, 3])], 10)
        alone = steps([engine("iql", data, hidden, [seed]) for seed in range(4)], 10)
        population_time, solo_time = best_times([together, alone], rounds)
        results[f"population_of_4_over_4_solos_hidden_{hidden}"] = population_time / solo_time
    return {name: round(value, 3) for name, value in results.items()}


def main() -> None:
    """Print the table or, with --json, the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=list(UPDATES), action="append", help="algorithm to measure; all by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    keep_freed_memory()
    results = measure(arguments.algo or list(UPDATES), arguments.rounds)
    if arguments.json:
        print(json.dumps(results))
        return
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:<{width}}  {value:.3f}")


if __name__ == "__main__":
    main()
