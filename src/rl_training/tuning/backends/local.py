"""Jobs on this machine: in this process one after the other, or in several processes side by side."""

import multiprocessing
import os
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from rl_training.envs.imports import import_requested, imported
from rl_training.envs.workers.process import end_with
from rl_training.errors import StoppedBySignal, StorageError
from rl_training.faults import fault_point
from rl_training.runtime.signals import raise_if_interrupted, stop_signals_blocked, stopped_by_parent
from rl_training.tuning.job import PopulationJob, run_job


class LocalBackend:
    """Runs jobs here; `processes` of them side by side, each of which ends with this process."""

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes

    def run(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        """Run every job and yield each when it ends; a stop signal saves those under way and is raised."""
        if self._processes == 1 or len(jobs) == 1:
            for job in jobs:
                yield job, run_job(job)
        else:
            yield from self._side_by_side(jobs)

    def _side_by_side(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        start = multiprocessing.get_context("spawn")
        count = min(self._processes, len(jobs))
        with ProcessPoolExecutor(count, start, _begin, (os.getpid(), imported())) as pool:
            futures: dict[Future[str | int], PopulationJob] = {}
            try:
                with stop_signals_blocked():  # also in the processes that this starts
                    futures |= {pool.submit(_work, job): job for job in jobs}
                fault_point("jobs:submitted")
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
                    child.terminate()  # a job saves itself first, and its process takes no other


def _begin(parent: int, imports: Sequence[str]) -> None:
    end_with(parent)
    stopped_by_parent()
    for module in imports:
        import_requested(module)


def _work(job: PopulationJob) -> str | int:
    """The result of a job, or the number of the signal that stopped it."""
    try:
        raise_if_interrupted()
        return run_job(job)
    except StoppedBySignal as stop:
        return stop.signal_number
