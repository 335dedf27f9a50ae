"""`make bench`: speed on the CPU as ratios measured side by side in one run.

* IQL at obs 11, act 3, two layers of 256, batch 256, 1,000,000 rows, sampling included, against the ceiling of its own
  matrix products (`products`): the forward, input-gradient and weight-gradient products of the update, same shapes and
  threads, outputs preallocated, nothing else.
* A population of four against four solo runs one after another, with two layers of 64 and of 256.

Both sides of a ratio are timed alternately in short rounds and the best round of each counts, because the machine may be
busy with other things.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.iql import IQL
from rl_training.data.packing import RowLayout
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.models.iql_model import MLPIQLModel
from rl_training.runtime.engine import Engine, keep_freed_memory
from rl_training.runtime.offline import DatasetSource, OfflineEngine, ProcessedDataset

OBSERVATIONS, ACTIONS, BATCH = 11, 3, 256
LAYOUT = RowLayout(
    (
        ("observations", OBSERVATIONS),
        ("actions", ACTIONS),
        ("rewards", 1),
        ("next_observations", OBSERVATIONS),
        ("terminals", 1),
    )
)


def synthetic(rows: int) -> ProcessedDataset:
    """Return random rows of the benchmark's shape."""
    draw = np.random.Generator(np.random.Philox(0))
    packed = draw.standard_normal((rows, sum(width for _, width in LAYOUT.fields)), dtype=np.float32)
    packed[:, -1] = 0.0
    bound = np.ones(ACTIONS, dtype=np.float32)
    spaces = Spaces(OBSERVATIONS, ACTIONS, -bound, bound)
    return ProcessedDataset(packed, LAYOUT, spaces, Transforms.identity(OBSERVATIONS), "")


def engine(data: ProcessedDataset, hidden: int, seeds: Sequence[int]) -> Engine:
    """Return an engine that runs IQL on the data, exactly as a training run has it."""
    learner = IQL(MLPIQLModel(OBSERVATIONS, ACTIONS, hidden_sizes=(hidden, hidden), seeds=seeds))
    source = DatasetSource(data, learner.model.seed_tensor, BATCH, torch.device("cpu"))
    return OfflineEngine(learner, source, {}, 10**9)


def products(hidden: int) -> Callable[[], None]:
    """Return a function that does the matrix products of one IQL update, in the order of the update, and nothing else."""
    networks = [  # (critics, inputs, outputs, whether it is trained)
        (2, OBSERVATIONS + ACTIONS, 1, False),  # targets
        (1, OBSERVATIONS, 1, False),  # the value of the next observation
        (1, OBSERVATIONS, 1, True),
        (2, OBSERVATIONS + ACTIONS, 1, True),
        (1, OBSERVATIONS, ACTIONS, True),
    ]
    forward: list[tuple[Tensor, Tensor, Tensor]] = []
    backward: list[tuple[Tensor, Tensor, Tensor]] = []
    for stack, inputs, outputs, trained in networks:
        sizes = (inputs, hidden, hidden, outputs)
        activations = [torch.randn(stack, BATCH, size) for size in sizes]
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            x, y = activations[layer : layer + 2]
            w = torch.randn(stack, fan_in, fan_out) * 0.05
            forward.append((x, w, y))
            if trained:  # built from the first layer to the last, run from the last to the first
                slope = torch.randn_like(y)
                if layer > 0:
                    backward.append((slope, w.mT, torch.empty_like(x)))
                few = fan_out < fan_in  # the faster way round, as the package does it
                backward.append((slope.mT, x, torch.empty_like(w.mT)) if few else (x.mT, slope, torch.empty_like(w)))
    work = [*forward, *reversed(backward)]

    def run() -> None:
        for left, right, out in work:
            torch.bmm(left, right, out=out)

    return run


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


def main() -> None:
    """Print the table and, with --json, the figures."""
    keep_freed_memory()
    data = synthetic(1_000_000)
    results: dict[str, float] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        update, ceiling = steps([engine(data, 256, [0])], 10), products(256)

        def ten(ceiling: Callable[[], None] = ceiling) -> None:
            for _ in range(10):
                ceiling()

        step_time, product_time = best_times([update, ten], 40)
        results[f"iql_share_of_products_{threads}_threads"] = round(product_time / step_time, 3)
    torch.set_num_threads(1)
    for hidden in (64, 256):
        together = steps([engine(data, hidden, [0, 1, 2, 3])], 10)
        alone = steps([engine(data, hidden, [seed]) for seed in range(4)], 10)
        population_time, solo_time = best_times([together, alone], 20)
        results[f"population_of_4_over_4_solos_hidden_{hidden}"] = round(population_time / solo_time, 3)
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:<{width}}  {value:.3f}")


if __name__ == "__main__":
    main()
