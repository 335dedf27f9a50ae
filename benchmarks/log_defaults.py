"""Default settings on logs that nobody tuned them on: `python -m benchmarks.log_defaults [FOLDER]`.

Trains with no setting but the number of steps, without an environment, on five plant logs and on every file of a folder of
third-party data, and prints what the policies do on held-out rows as a Markdown table.
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rl_training
from benchmarks.plants import PLANTS, make_log
from rl_training import TransitionDataset, load_dataset
from rl_training.config.loading import apply_override
from rl_training.registry import get_spec
from rl_training.runtime.progress import QuietReporter

ALGORITHMS = ("bc", "iql", "xql", "td3_bc", "cql")
HEADER = ("data", "algorithm", "outside", "distance", "best constant", "cloning", "at a bound (data)", "warnings")


class Warnings(QuietReporter):
    """Keeps the codes of the warnings about the policy."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def warn(self, text: str) -> None:
        """Keep the code of a warning that is not about the data."""
        if not text.startswith(("data:", "`")):
            self.codes.append(text.partition(":")[0])


def logs(folder: Path | None) -> Iterator[tuple[str, TransitionDataset]]:
    """Yield every log by name; the boiler's goes through CSV files with semicolons, decimal commas and a row of units."""
    for name in PLANTS:
        if name == "boiler":
            with tempfile.TemporaryDirectory() as directory:
                yield "boiler (CSV)", _through_csv(name, Path(directory))
        else:
            yield name, make_log(name).dataset()
    for path in sorted(folder.iterdir()) if folder else ():
        if path.suffix in (".npz", ".h5"):
            yield path.name, load_dataset(path)


def _through_csv(name: str, folder: Path) -> TransitionDataset:
    """The log of a plant, written as one CSV file per episode and read back with a column map that computes the reward."""
    log, length = make_log(name), PLANTS[name].length
    for episode in range(len(log.arrays["rewards"]) // length):
        rows = slice(episode * length, (episode + 1) * length)
        with (folder / f"day{episode}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter=";")
            writer.writerow(["step", *log.observation_names, *log.action_names])
            writer.writerow(["", "mm", "bar", "%", "t/h", "V", "1/min"])
            table = np.concatenate((log.arrays["observations"][rows], log.arrays["actions"][rows]), axis=1)
            for step, values in enumerate(table.tolist()):
                writer.writerow([step, *(f"{value:.6g}".replace(".", ",") for value in values)])
    columns = {
        "observations": list(log.observation_names),
        "actions": list(log.action_names),
        "reward": "-0.02 * abs(level_mm) - 0.2 * abs(pressure_bar - 45)",
        "time": "step",
    }
    return load_dataset(folder, columns=columns)


def trial(name: str, data: TransitionDataset, algo: str, steps: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one run with default settings, but for those given."""
    said = Warnings()
    rhythm = dict.fromkeys(("eval_interval", "log_interval", "checkpoint_interval"), steps)
    model = getattr(rl_training, get_spec(algo).name)(dataset=data, reporter=said, **rhythm, **settings).learn(steps)
    figures = {key: values[-1] for key, values in model.history.items() if key.startswith("validation/")}
    actions = model.predict(data.observations[:: max(1, len(data) // 20_000)])[0]
    outside = (actions < data.actions.min(axis=0)) | (actions > data.actions.max(axis=0))
    return {"data": name, "algo": algo, "outside": int(outside.sum()), "warnings": said.codes, **figures}


def row(result: dict[str, Any]) -> str:
    """Return a result as a row of a Markdown table."""

    def share(name: str) -> str:
        return f"{result[f'validation/{name}']:.1%}"

    bound = f"{share('at_bound')} ({share('at_bound_data')})"
    distances = [share(f"{name}_distance") for name in ("action", "constant", "cloning")]
    cells = [result["data"], f"`{result['algo']}`", str(result["outside"]), *distances, bound, ", ".join(result["warnings"])]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="third-party data")
    parser.add_argument("--algos", default=",".join(ALGORITHMS))
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="key=value that is not the default")
    parser.add_argument("--json", type=Path, help="also append every result to this file")
    chosen = parser.parse_args()
    settings: dict[str, Any] = {}
    for setting in chosen.settings:
        apply_override(settings, setting)
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for name, data in logs(chosen.folder):
        for algo in chosen.algos.split(","):
            result = trial(name, data, algo, chosen.steps, settings)
            print(row(result), flush=True)
            if chosen.json:
                with chosen.json.open("a") as stream:
                    stream.write(json.dumps(result) + "\n")
    print(f"{chosen.steps} steps, seed 0, default settings{' but ' * bool(settings)}{settings or ''}", file=sys.stderr)


if __name__ == "__main__":
    main()
