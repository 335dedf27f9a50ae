"""Small jobs, what local runs of them leave behind, and who works on one."""

import json
from pathlib import Path

from rl_training.config.loading import load_config
from rl_training.tuning.job import PopulationJob, run_job
from tests.helpers import assert_same_run, metric_rows

TINY = [
    *("total_timesteps=600", "eval_interval=200", "eval_episodes=1", "log_interval=50", "checkpoint_interval=50"),
    *("algo_kwargs.hidden_sizes=[16,16]", "algo_kwargs.batch_size=32", "device=cpu"),
]
DATA = [{"kind": "random", "size": 600, "seed": 0}, {"kind": "scripted", "size": 600, "seed": 1, "noise": 0.5}]


def tiny_jobs(folder, number, members=3, **changes):
    """Jobs of the packaged config with a tiny budget, each with seeds of its own."""
    jobs = []
    for index in range(number):
        seeds = list(range(members * index, members * (index + 1)))
        values = load_config("iql/pendulum-mixture", TINY, {"seeds": seeds, **changes}).record()
        values["algo_kwargs"]["dataset"] = DATA
        jobs.append(PopulationJob(f"population-{index}", str(folder / f"population-{index}"), values))
    return jobs


def assert_as_local(jobs, folder):
    """Compare finished jobs with plain runs of them in this process, byte for byte."""
    for job in jobs:
        alone = PopulationJob(job.name, str(folder / job.name), job.config)
        assert run_job(alone) == "finished"
        assert_same_run(job.run_dir, alone.run_dir)
        rows = [(row["step"], row["member"], *sorted(row)) for row in metric_rows(job.run_dir)]
        assert len(rows) == len(set(rows))


def holder(job):
    """The process that holds the directory of a job, or held it last."""
    try:
        return json.loads((Path(job.run_dir) / "run.lock").read_text())["pid"]
    except (OSError, ValueError):
        return None


def resumed_from(job):
    """The gradient step at which the last start of a job began."""
    return json.loads((Path(job.run_dir) / "run.json").read_text())["phases"][-1]["from_step"]
