"""`make bench`: speed on the CPU as ratios measured side by side in one run.

* Every algorithm at obs 11, act 3, two layers of 256, batch 256, 1,000,000 rows, sampling included, against the ceilings of
  the machine that `rl-training bench` measures, with one thread and with two.
* A population of four against four solo runs one after another, with two layers of 64 and of 256.

Both sides of a ratio are timed alternately in short rounds and the best round of each counts, because the machine may be
busy otherwise. `--algo ID` measures one algorithm only, `--json` prints the figures as one object.
"""

import argparse
import json
from collections.abc import Callable

import torch

from benchmarks.timing import best_times
from rl_training.bench.measure import bench_steps, measure_algorithm, synthetic, take_steps
from rl_training.bench.settings import BenchSettings
from rl_training.data.processing import ProcessedDataset
from rl_training.experiment.registry import get_spec, names
from rl_training.runtime.execution.mode import keep_freed_memory

CPU = torch.device("cpu")


def shares(algo: str, seconds: float) -> dict[str, float]:
    """Return an algorithm's shares of its ceilings, with one thread and with two."""
    results: dict[str, float] = {}
    config = BenchSettings.checked({"algo": algo, "device": "cpu"}).configs()[0]
    data = synthetic(1_000_000, 11, 3, get_spec(algo).needs)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        figures = measure_algorithm(config, data, CPU, seconds)
        for name in ("share_of_products", "share_of_products_and_traffic"):
            results[f"{algo}_{name}_{threads}_threads"] = figures[name]
    return results


def stepping(data: ProcessedDataset, hidden: int, seeds: list[list[int]]) -> Callable[[], None]:
    """Return a function that takes ten IQL steps in a run per list of seeds, one run after another."""
    settings = BenchSettings.checked({"algo": "iql", "hidden": [hidden, hidden], "device": "cpu"}).configs()[0]
    taken = [bench_steps(settings.model_copy(update={"seeds": tuple(one)}), data, CPU)[0] for one in seeds]

    def run() -> None:
        for steps in taken:
            take_steps(steps, 10)

    return run


def populations(data: ProcessedDataset, rounds: int) -> dict[str, float]:
    """Return the time of a population of four divided by that of four solo runs."""
    torch.set_num_threads(1)
    results: dict[str, float] = {}
    for hidden in (64, 256):
        together = stepping(data, hidden, [[0, 1, 2, 3]])
        alone = stepping(data, hidden, [[0], [1], [2], [3]])
        population_time, solo_time = best_times([together, alone], rounds)
        results[f"population_of_4_over_4_solos_hidden_{hidden}"] = population_time / solo_time
    return results


def main() -> None:
    """Print the table or, with --json, the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=names(), action="append", help="algorithm to measure; all by default")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring per algorithm and number of threads")
    parser.add_argument("--rounds", type=int, default=15, help="of a population against solo runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    keep_freed_memory()
    results: dict[str, float] = {}
    for algo in arguments.algo or names():
        results |= shares(algo, arguments.seconds)
    results |= populations(synthetic(1_000_000, 11, 3), arguments.rounds)
    if arguments.json:
        print(json.dumps({name: round(value, 3) for name, value in results.items()}))
        return
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:<{width}}  {value:.3f}")


if __name__ == "__main__":
    main()
