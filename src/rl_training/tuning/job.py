"""A job: a config and the run directory to train it in; all that a machine needs to run it, and all that it leaves behind."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.loading import make_config
from rl_training.errors import RLTrainingError, RunBusyError, StoppedBySignal, StorageError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run_record import run_status

FINISHED = "finished"


@dataclass(frozen=True)
class PopulationJob:
    """A population to train; its results are read from its run directory alone."""

    name: str
    run_dir: str
    config: Mapping[str, Any]  # plain and resolved, as RunConfig.record() gives it
    gpus: float = 0.0
    cpus: int = 1


def run_job(job: PopulationJob) -> str:
    """Train a job to its end, from its last checkpoint if it has one; return `finished`, or in one line why it failed.

    A finished job returns at once, so running a job again is harmless. What is no fault of the job (a stop signal, a full
    disk, another process in its directory) is raised, and running the job again goes on exactly.
    """
    if run_status(Path(job.run_dir)) == FINISHED:
        return FINISHED
    try:
        ExperimentManager(make_config(job.config, job.name), job.run_dir).train(resume=True)
    except (StoppedBySignal, RunBusyError, StorageError):
        raise
    except RLTrainingError as error:
        return f"{type(error).__name__}: {error}"
    return FINISHED
