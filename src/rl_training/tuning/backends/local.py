"""Jobs on this machine: in this process one after the other, or in several processes side by side."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from rl_training.envs.imports import import_requested, imported
from rl_training.envs.workers.process import end_with
from rl_training.errors import StoppedBySignal, StorageError
from rl_training.tuning.job import PopulationJob, run_job


class LocalBackend:
    """Runs jobs here; `processes` of them side by side, each of which ends with this process."""

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes

    def run(self, jobs: Sequence[PopulationJob]) -> Iterator[tuple[PopulationJob, str]]:
        """Run every job and yield each when it ends; a stop signal saves those under way and is raised."""
        if self._processes == 1 or len(jobs) == 1:
            for job in jobs:
                yield job, run_job(job)
        else:
            yield from self._side_by_side(jobs)

    def _side_by_side(self, jobs: Sequence[PopulationJob]) -> Iterator[tuple[PopulationJob, str]]:
        start = multiprocessing.get_context("spawn")
        count = min(self._processes, len(jobs))
        with ProcessPoolExecutor(count, start, _begin, (os.getpid(), imported())) as pool:
            futures = {pool.submit(_work, job): job for job in jobs}
            try:
                for done in as_completed(futures):
                    result = done.result()
                    if isinstance(result, int):
                        raise StoppedBySignal(result, f"{signal.Signals(result).name}: a job was stopped")
                    yield futures[done], result
            except BrokenProcessPool:
                raise StorageError("a process of a job was killed, perhaps for want of memory; use fewer --jobs") from None
            finally:
                for future in futures:
                    future.cancel()
                for child in multiprocessing.active_children():
                    child.terminate()  # a job saves itself first; an idle process ends


def _begin(parent: int, imports: Sequence[str]) -> None:
    end_with(parent)
    for module in imports:
        import_requested(module)


def _work(job: PopulationJob) -> str | int:
    """The result of a job, or the number of the signal that stopped it."""
    try:
        return run_job(job)
    except StoppedBySignal as stop:
        return stop.signal_number
