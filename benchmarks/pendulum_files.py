"""Offline algorithms on third-party Pendulum data: `python -m benchmarks.pendulum_files FOLDER`.

FOLDER holds `pendulum_random.h5` and `pendulum_replay.h5` of d3rlpy (old layout, dynamics of Pendulum-v0). Each cell is the
packaged `<id>/pendulum` config with the file instead of its recipe and the changes below, four seeds as one population;
the last checkpoint is evaluated on `Pendulum-v1`, 20 fixed episodes per seed.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from rl_training.api.policy import Policy
from rl_training.config.loading import load_config, make_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.progress import default_reporter

FILES = {"random": "pendulum_random.h5", "replay": "pendulum_replay.h5"}
ALGORITHMS = ("iql", "td3_bc", "cql", "cal_ql")
# the replay of a trained agent has few actions per state: the penalty takes longer to relax, and cloning is worth more
SLOWER: dict[str, Any] = {"total_timesteps": 12_000, "algo_kwargs": {"actor_learning_rate": 3e-4}}
CHANGES: dict[tuple[str, str], dict[str, Any]] = {
    ("td3_bc", "replay"): {"algo_kwargs": {"alpha": 40.0}},
    ("cql", "replay"): SLOWER,
    ("cal_ql", "replay"): SLOWER,
}


def cell(algo: str, file: str, path: Path, run_dir: Path) -> list[float]:
    """Train one cell of the table and return each seed's mean return."""
    values = load_config(f"{algo}/pendulum", extra={"seeds": [0, 1, 2, 3]}).record()
    changes = CHANGES.get((algo, file), {})
    kwargs = {**values["algo_kwargs"], **changes.get("algo_kwargs", {}), "dataset": {"path": str(path)}}
    config = make_config({**values, **changes, "algo_kwargs": kwargs}, f"{algo} on {file}")
    result = ExperimentManager(config, run_dir).train(reporter=default_reporter())
    return Policy.load(result.checkpoint).evaluate(20).member_means


def main() -> None:
    """Print a row per cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--algo", choices=ALGORITHMS, action="append", help="all by default")
    arguments = parser.parse_args()
    for algo in arguments.algo or ALGORITHMS:
        for file, name in FILES.items():
            with tempfile.TemporaryDirectory() as folder:
                means = cell(algo, file, arguments.folder / name, Path(folder) / "run")
            seeds = ", ".join(f"{mean:.0f}" for mean in means)
            print(f"| `{algo}` | {file} | {sum(means) / len(means):.0f} | {seeds} |", flush=True)


if __name__ == "__main__":
    main()
