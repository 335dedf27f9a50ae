"""Jobs as arrays of Slurm, through submitit: one whose time is up saves, is queued again, and goes on exactly."""

import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from rl_training.envs.imports import imported
from rl_training.errors import ConfigError, StoppedBySignal
from rl_training.experiment.run_record import run_status
from rl_training.storage import canonical_json, parse_json, read_regular_file, replace_file
from rl_training.tuning.backends.attempts import PAUSE, Interruptions, attempt
from rl_training.tuning.job import FINISHED, PopulationJob

LONGEST_ARRAY = 1000  # Slurm's default limit is 1001
TIME_LIMITS = 1000  # a job may reach its time limit this often
GRACE = 600.0  # seconds to wait for a kill after a SIGTERM
SUBMITTED = "submitted.json"  # which number Slurm gave to each job: whoever is killed finds its jobs again


class SlurmBackend:
    """Runs jobs through submitit, whose files are kept in `folder`; `options` are those of sbatch: time, partition, ..."""

    executor = "SlurmExecutor"  # of submitit

    def __init__(self, folder: str | Path, options: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        make = getattr(_library(), self.executor)
        try:
            self._executor = make(self.folder, max_num_timeout=TIME_LIMITS)
            self._executor.update_parameters(**(options or {}))
        except (RuntimeError, ValueError, TypeError) as error:
            raise ConfigError(f"--backend slurm: {' '.join(str(error).split())}") from None
        self._interruptions = Interruptions()
        self._queued: dict[str, tuple[Any, PopulationJob]] = {}  # by name: submitit's job, and ours

    def run(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        """Run every job and yield each when it ends."""
        self._submit(self._not_queued(jobs))
        try:
            while self._queued:
                for name, (task, job) in list(self._queued.items()):
                    if not task.done():
                        continue
                    del self._queued[name]
                    if (result := self._result(task, job)) is None:
                        self._submit([job])
                    else:
                        yield job, result
                time.sleep(PAUSE)
        finally:
            for task, _ in self._queued.values():
                task.cancel(check=False)  # they save first: it is a SIGTERM

    def _not_queued(self, jobs: Sequence[PopulationJob]) -> list[PopulationJob]:
        """Find jobs that Slurm still has from a process that was killed, and return the others."""
        numbers = self._numbers()
        for job in (job for job in jobs if job.name in numbers):
            task = self._executor.job_class(folder=self._executor.folder, job_id=numbers[job.name])
            if not task.done():
                self._queued[job.name] = task, job
        return [job for job in jobs if job.name not in self._queued]

    def _numbers(self) -> dict[str, str]:
        path = self.folder / SUBMITTED
        return parse_json(read_regular_file(path), str(path)) if path.exists() else {}

    def _submit(self, jobs: Sequence[PopulationJob]) -> None:
        """Submit jobs that need the same as one array."""
        for (cpus, gpus), alike in groupby(sorted(jobs, key=_needs), key=_needs):
            if gpus != int(gpus):
                raise ConfigError(f"--backend slurm: {gpus:g} GPUs for a job: Slurm gives whole ones")
            self._executor.update_parameters(cpus_per_task=cpus, gpus_per_node=int(gpus))
            array = list(alike)
            for first in range(0, len(array), LONGEST_ARRAY):
                self._submit_array(array[first : first + LONGEST_ARRAY])

    def _submit_array(self, jobs: Sequence[PopulationJob]) -> None:
        with self._executor.batch():
            tasks = [self._executor.submit(_Attempt(job, imported())) for job in jobs]
        self._queued |= {job.name: (task, job) for task, job in zip(tasks, jobs, strict=True)}
        numbers = {job.name: task.job_id for task, job in zip(tasks, jobs, strict=True)}
        replace_file(self.folder / SUBMITTED, canonical_json({**self._numbers(), **numbers}))

    def _result(self, task: Any, job: PopulationJob) -> str | None:
        """Return what a job returned, or None if it is to be submitted again."""
        if run_status(Path(job.run_dir)) == FINISHED:
            return FINISHED
        error = task.exception()
        if error is None:
            return str(task.result())
        if "CANCELLED" in task.state.upper():
            raise StoppedBySignal(signal.SIGTERM, f"{job.name}: was cancelled; the same command goes on with all jobs")
        return self._interruptions.give_up(job, f"{task.state}; see {task.paths.stderr}")


class _Attempt:
    """A job as submitit calls it; before the time is up it sends SIGUSR2, and queues what `checkpoint` returns."""

    def __init__(self, job: PopulationJob, imports: Sequence[str]) -> None:
        self.job, self.imports = job, imports

    def __call__(self) -> str:
        """Run the job. At SIGUSR2 it saves and is queued again; at SIGTERM it saves and waits for its end.

        Slurm queues a job that it has preempted once more when it has killed it, and no job that was cancelled; one that
        leaves by itself before that counts as failed.
        """
        queue_again, ignore = signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)
        time_is_up = False

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal time_is_up
            time_is_up = True
            if signal.getsignal(signal.SIGTERM) is not ignore:  # training: the stop comes when the state is saved
                signal.raise_signal(signal.SIGTERM)
            elif callable(queue_again):
                queue_again(number, frame)

        signal.signal(signal.SIGUSR2, stop)
        try:
            return attempt(self.job, self.imports)
        except StoppedBySignal as error:
            if time_is_up and callable(queue_again):
                queue_again(signal.SIGUSR2, None)
            if error.signal_number == signal.SIGTERM:
                time.sleep(GRACE)
            sys.exit(error.exit_code)  # without a result, which would end the job for whoever waits for it

    def checkpoint(self) -> Any:
        """Return what to run when the job is queued again: the same, since its run directory holds all that was done."""
        return _library().helpers.DelayedSubmission(self)


def _needs(job: PopulationJob) -> tuple[int, float]:
    return job.cpus, job.gpus


def _library() -> Any:
    try:
        import submitit
    except ImportError:
        raise ConfigError('--backend slurm: submitit is not installed: pip install "rl-training[slurm]"') from None
    return submitit
