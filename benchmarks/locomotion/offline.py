"""Every offline algorithm on every set: 10 seeds as one population, the packaged recipe, the last policy.

python -m benchmarks.locomotion.offline --data data --set device=cuda --parallel 3

A job is an algorithm on a set. Its result is one JSON file in `results/offline`, written when it has finished; jobs with a
result are skipped, and one that was interrupted, or killed, goes on from its last checkpoint.
"""

import argparse
import importlib.metadata
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.locomotion.behaviour import TASKS
from benchmarks.locomotion.data import make, split
from benchmarks.locomotion.jobs import arguments_of, do_jobs
from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.loading import load_config
from rl_training.data.dataset_loaders import load_dataset
from rl_training.experiment.manager import ExperimentManager
from rl_training.registry import REGISTRY
from rl_training.report.timing import timing_of

KINDS = ("medium", "medium-replay", "medium-expert")
SETS = tuple(f"{task}-{kind}" for task in TASKS for kind in KINDS)
ALGOS = tuple(algo for algo, spec in REGISTRY.items() if not spec.online)
STEPS, SEEDS, EPISODES = 100_000, 10, 10
PER_SET: dict[tuple[str, str], list[str]] = {  # what the comments of the recipes say about single sets
    ("rebrac", "halfcheetah-medium"): ["actor_bc_coef=0.001", "critic_bc_coef=0.01"],
    ("rebrac", "halfcheetah-medium-replay"): ["actor_bc_coef=0.01", "critic_bc_coef=0.001"],
    ("rebrac", "halfcheetah-medium-expert"): ["actor_bc_coef=0.01", "critic_bc_coef=0.1"],
    ("rebrac", "hopper-medium-replay"): ["actor_bc_coef=0.05", "critic_bc_coef=0.5"],
    ("rebrac", "hopper-medium-expert"): ["actor_bc_coef=0.1", "critic_bc_coef=0.01"],
    ("rebrac", "walker2d-medium"): ["actor_bc_coef=0.05", "critic_bc_coef=0.1"],
    ("rebrac", "walker2d-medium-replay"): ["actor_bc_coef=0.05", "critic_bc_coef=0.01"],
    ("edac", "halfcheetah-medium-expert"): ["eta=5"],
    ("edac", "walker2d-medium-expert"): ["eta=5"],
    ("cql", "hopper-medium"): ["reward.normalize=true"],
    ("cal_ql", "hopper-medium"): ["reward.normalize=true"],
}


def trained(algo: str, name: str, data: Path, run_dir: Path, settings: list[str], given: dict[str, Any]) -> LoggedRun:
    """Train a population on a set with the packaged recipe, or go on with it, evaluating beside training; return its run."""
    fixed = [f"eval_episodes={EPISODES}", "eval_mode=beside", *settings]
    values = {"env_id": TASKS[split(name)[0]], **given}
    config = load_config(f"{algo}/d4rl-locomotion", fixed, values, [str(make(name, data))])
    ExperimentManager(config, run_dir).train(resume=True)
    return LoggedRun.load(run_dir)


def job(algo: str, name: str, data: Path, runs: Path, steps: int, seeds: int, settings: list[str]) -> dict[str, Any]:
    """Train a population and return what its last policies reach."""
    own = [f"algo_kwargs.{setting}" for setting in PER_SET.get((algo, name), [])]
    rhythm = [f"eval_interval={steps // 5}", f"checkpoint_interval={steps // 5}"]
    given = {"total_timesteps": steps, "seeds": list(range(seeds))}
    run = trained(algo, name, data, runs / f"{algo}-{name}", [*rhythm, *own, *settings], given)
    curve, events = run.curve(), run.history.get("event")
    lost = [] if events is None else run.history["member"][events == "diverged"].tolist()
    return {
        **origin(algo, name, data, run),
        "steps": steps,
        "returns": [None if number in lost else value for number, value in enumerate(curve.last().tolist())],
        "curve": dict(zip(curve.positions.tolist(), np.round(curve.values, 3).tolist(), strict=True)),
        "per_set": own,
        "settings": settings,
        "seconds": round(timing_of(run).seconds, 1),
        "seconds_of_gradient_steps": run.timings[-1]["seconds/gradient_steps"],
        "command": command("offline", algo, name, settings, ["--steps", str(steps), "--seeds", str(seeds)]),
    }


def origin(algo: str, name: str, data: Path, run: LoggedRun) -> dict[str, Any]:
    """Return what was trained on what, where and with what."""
    return {
        "algo": algo,
        "set": name,
        "fingerprint": load_dataset(make(name, data)).fingerprint,
        "seeds": list(run.seeds.values()),
        "episodes": EPISODES,
        "execution": run.record["hardware"],
        "versions": {library: importlib.metadata.version(library) for library in ("torch", "mujoco", "gymnasium")},
    }


def command(module: str, algo: str, name: str, settings: list[str], options: Sequence[str] = ()) -> str:
    """Return the command that does a job."""
    words = ["python", "-m", f"benchmarks.locomotion.{module}", "--data", "data", "--algos", algo, "--sets", name, *options]
    return shlex.join([*words, *(word for setting in settings for word in ("--set", setting))])


def work(algo: str, name: str, given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Do a job; return its result and a line about it."""
    found = job(algo, name, given.data, given.runs, given.steps, given.seeds, given.settings)
    return found, f"{algo} on {name}: {[round(value or 0.0) for value in found['returns']]}, {found['seconds']} s"


def main() -> None:
    """Do the jobs that have no result yet."""
    parser = arguments_of(__doc__, "offline", ALGOS, SETS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    do_jobs("offline", parser.parse_args(), work)


if __name__ == "__main__":
    main()
