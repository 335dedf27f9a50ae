"""`python -m benchmarks.coverage`: how often the 95 % intervals of `rl-training compare` cover the truth.

Simulates `--experiments` experiments for each number of runs and each shape of scores, and prints the table of docs/guide.md.
`--write` replaces the packaged table, which `compare` prints with its results.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import rl_training
from rl_training.analysis.coverage import KINDS, RUNS, SHAPES, TABLE, coverage
from rl_training.storage import replace_file

PACKAGED = Path(rl_training.__file__).parent / "assets" / TABLE


def measure(experiments: int, resamples: int, processes: int) -> dict[str, Any]:
    """Return the table that is packaged."""
    cells = list(product(KINDS, RUNS, SHAPES))
    with ProcessPoolExecutor(processes) as pool:
        tasks = [pool.submit(coverage, kind, shape, runs, experiments, resamples) for kind, runs, shape in cells]
        found: dict[str, dict[str, dict[str, float]]] = {}
        for (kind, runs, shape), task in zip(cells, tasks, strict=True):
            found.setdefault(kind, {}).setdefault(str(runs), {})[shape] = round(task.result(), 4)
    settings = {"experiments": experiments, "resamples": resamples, "confidence": 0.95}
    return {"command": "python -m benchmarks.coverage --write", **settings, "coverage": found}


def markdown(table: dict[str, Any]) -> str:
    """Return the table as it stands in the guide: a row for each kind and number of runs, a column for each shape."""
    lines = ["| interval | runs | " + " | ".join(SHAPES) + " |", "|---" * (2 + len(SHAPES)) + "|"]
    for kind, rows in table["coverage"].items():
        for runs, shapes in rows.items():
            lines.append(f"| {kind} | {runs} | " + " | ".join(f"{100 * share:.1f}" for share in shapes.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true", help="replace the packaged table")
    options = parser.parse_args()
    table = measure(options.experiments, options.resamples, options.processes)
    if options.write:
        replace_file(PACKAGED, json.dumps(table, indent=1).encode() + b"\n")
    print(markdown(table))


if __name__ == "__main__":
    main()
