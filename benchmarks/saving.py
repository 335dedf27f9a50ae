"""`python -m benchmarks.saving`: the share of a run's time that goes into checkpoints, at the intervals of the config.

Each named packaged config (`iql/pendulum` and `sac/pendulum` by default) is trained for `--steps` steps in a temporary
directory on the CPU, with its own evaluations and logs. All of the loop's `_save` counts as saving: copying the state,
encoding, hashing, syncing, verifying, replay segments and the removal of old checkpoints. `--folder` chooses the file
system; `--json` prints the figures as one object.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rl_training.config.loading import load_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.loop import TrainingLoop

CONFIGS = ("iql/pendulum", "sac/pendulum")


class Saves:
    """Seconds and bytes of every checkpoint of a run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.bytes = 0

    def timed(self, loop: TrainingLoop, *, best: bool) -> Path:
        """Save as the loop does, and record the time."""
        start = time.perf_counter()
        path = _SAVE(loop, best=best)
        self.seconds.append(time.perf_counter() - start)
        self.bytes = sum(file.stat().st_size for file in path.iterdir())
        return path


_SAVE = TrainingLoop._save


def measure(name: str, steps: int, folder: Path) -> dict[str, Any]:
    """Return the share of the training time that saving takes in a run of `steps` steps."""
    manager = ExperimentManager(
        load_config(name, (f"total_timesteps={steps}", "device=cpu")), folder / name.replace("/", "-")
    )
    saves = Saves()
    with patch.object(TrainingLoop, "_save", lambda loop, *, best: saves.timed(loop, best=best)):
        training = TrainingLoop.run
        spent: list[float] = []

        def timed_run(loop: TrainingLoop) -> Any:
            start = time.perf_counter()
            result = training(loop)
            spent.append(time.perf_counter() - start)
            return result

        with patch.object(TrainingLoop, "run", timed_run):
            manager.train()
    return {
        "config": name,
        "steps": steps,
        "seconds": spent[0],
        "saves": len(saves.seconds),
        "saving_seconds": sum(saves.seconds),
        "slowest_save": max(saves.seconds),
        "share": sum(saves.seconds) / spent[0],
        "checkpoint_bytes": saves.bytes,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("configs", nargs="*", default=CONFIGS, help="packaged configs")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of each run, in the unit of total_timesteps")
    parser.add_argument("--folder", help="where the runs are written; the system's temporary directory by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = [measure(name, options.steps, Path(folder)) for name in options.configs]
    if options.json:
        print(json.dumps({row["config"]: row for row in rows}))
        return
    print(f"{'config':<24} {'steps':>7} {'time':>8} {'saves':>6} {'each':>9} {'slowest':>9} {'bytes':>10} {'share':>7}")
    for row in rows:
        each = row["saving_seconds"] / row["saves"]
        print(
            f"{row['config']:<24} {row['steps']:>7,} {row['seconds']:>7.1f}s {row['saves']:>6} {each * 1e3:>7.1f}ms "
            f"{row['slowest_save'] * 1e3:>7.1f}ms {row['checkpoint_bytes']:>10,} {row['share']:>7.2%}"
        )


if __name__ == "__main__":
    main()
