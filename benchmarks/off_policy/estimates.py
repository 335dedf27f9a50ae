"""Estimate what the policies earn from the data that they were trained on, and compare with the truth.

python -m benchmarks.off_policy.estimates pendulum --runs runs

Every run is also added to `results/rounds.json`, with the commit of the estimators, so that earlier ones are not forgotten.
The report of `rl_training.evaluate_off_policy` is kept whole, with its wall time; policies are called ALGO@STEP in it.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.off_policy.measures import opinion, outcome, summary
from benchmarks.off_policy.tasks import ALGOS, GAMMA, RESULTS, TASKS, arguments, data_of, read, run_of, write
from rl_training.api.off_policy import evaluate_off_policy


def estimate(task: str, runs: Path, data: Path | None) -> dict[str, Any]:
    """Return the plain report on the twelve policies, and how long it took."""
    where = [run_of(task, algo, runs) for algo in ALGOS]
    started, begin = time.time(), time.perf_counter()
    parts: dict[str, float] = {}

    def begun(text: str) -> None:
        parts[text] = round(time.perf_counter() - begin, 1)

    report = evaluate_off_policy(
        where,
        data_of(task, data),
        checkpoints="all",
        gamma=GAMMA,
        device="cpu",
        tell=begun,
    )
    plain = report.plain()
    taken = round(time.perf_counter() - begin, 1)
    plain["data"] = TASKS[task].set or f"iql/{TASKS[task].recipe}"
    for policy in plain["policies"]:
        policy["run"] = policy["algo"]
        policy["name"] = f"{policy['algo']}@{policy['step']}"
    day = time.strftime("%Y-%m-%d", time.gmtime(started))
    return {"date": day, "seconds": taken, "begun_at": parts, "torch": torch.__version__, "report": plain}


def show(task: str, found: dict[str, Any], truth: dict[str, Any]) -> None:
    """Print every policy, and every estimator."""
    print(f"== {task}: {found['report']['rows']:,} rows, {found['seconds']} s, parts begun at {found['begun_at']}")
    for policy in found["report"]["policies"]:
        true = truth["policies"][policy["name"]]
        words = [f"{policy['name']:13s} truth {true['value']:8.1f}  beyond {policy['scores']['beyond_support']:.2f}"]
        for name in ("fqe", "model", "joint", "dr", "wpdis"):
            said = opinion(policy, name)
            value = "none" if said["value"] is None else f"{said['value']:.0f} +- {said['std']:.0f}"
            words.append(f"{name} {value} {said['verdict']}{' MISSED' if outcome(said, true['value']) == 'missed' else ''}")
        print(" | ".join(words))
    for name, one in summary(found["report"], truth).items():
        print(f"{name:16s} spearman value {one.pop('value'):.2f} return {one.pop('return'):.2f} {one}")


def remember(task: str, found: dict[str, Any], truth: dict[str, Any], commit: str) -> None:
    """Add the figures of a run to those of all runs."""
    path = RESULTS / "rounds.json"
    rounds = json.loads(path.read_text()) if path.exists() else []
    figures = summary(found["report"], truth)
    rounds.append({"commit": commit, "task": task, **{name: figures[name] for name in ("fqe", "model", "joint")}})
    path.write_text(json.dumps(rounds, indent=1) + "\n")


def commit_of_estimators() -> str:
    """Return the last commit that changed the estimators."""
    command = ["git", "log", "-1", "--format=%h", "--", "src/rl_training/ope", "src/rl_training/api/off_policy.py"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    """Estimate where there is no result yet; print all."""
    given = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    for task in given.tasks:
        truth, commit = read("truth", task), commit_of_estimators()
        if given.again or read("estimates", task) is None:
            write("estimates", task, {"commit": commit, **estimate(task, given.runs, given.data)})
            if truth is not None:
                remember(task, read("estimates", task), truth, commit)
        if truth is not None:
            show(task, read("estimates", task), truth)


if __name__ == "__main__":
    main()
