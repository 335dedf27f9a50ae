"""Train the twelve policies of a task by the rule in `tasks.py`; what is there is kept.

python -m benchmarks.off_policy.policies pendulum hopper halfcheetah --out runs --data sets

With `--algos` some of them only, so that several processes may share the work; with `--set device=cuda` on a GPU.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.off_policy.tasks import ALGOS, TASKS, data_of, run_of, steps_of
from rl_training.config.loading import load_config
from rl_training.experiment.manager import ExperimentManager


def train(task: str, algo: str, out: Path, data: Path | None, own: Sequence[str] = ()) -> Path:
    """Train one algorithm, or go on with it, unless it is done; return its run directory. `own` are further settings."""
    middle, last = steps_of(task, algo)
    run = run_of(task, algo, out)
    if (run / "checkpoints" / f"step-{last:09d}").exists():
        return run
    settings = [
        f"total_timesteps={last}",
        f"eval_interval={last}",
        f"checkpoint_interval={middle}",
        f"seed={100 + ALGOS.index(algo)}",
        "keep_checkpoints=10",
        *own,
    ]
    logged = data_of(task, data)
    given = {} if logged is None else {"env_id": TASKS[task].env_id}
    config = load_config(f"{algo}/{TASKS[task].recipe}", settings, given, () if logged is None else [logged])
    ExperimentManager(config, run).train(resume=True)
    return run


def main() -> None:
    """Train what is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+", choices=list(TASKS), metavar="TASK")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="where the sets of benchmarks.locomotion are")
    parser.add_argument("--algos", nargs="+", choices=ALGOS, default=ALGOS)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE", help="of the device, say")
    given = parser.parse_args()
    for task in given.tasks:
        for algo in given.algos:
            print(train(task, algo, given.out, given.data, given.settings), flush=True)


if __name__ == "__main__":
    main()
