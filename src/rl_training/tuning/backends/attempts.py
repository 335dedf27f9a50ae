"""Jobs on machines that may die: an attempt waits for one that is still at work, and a job that gets on is tried again."""

import time
from collections.abc import Sequence
from pathlib import Path

from rl_training.envs.imports import import_requested
from rl_training.errors import RunBusyError
from rl_training.tuning.job import PopulationJob, run_job

PATIENCE = 600.0  # seconds to wait for another process in the run directory, on a node that was cut off and not ended yet
PAUSE = 2.0
LIMIT = 5  # interruptions of a job without a new checkpoint, after which it is given up


def attempt(job: PopulationJob, imports: Sequence[str]) -> str:
    """Run a job where an earlier attempt may still be at work, on a node that was cut off: it holds the run directory."""
    for module in imports:
        import_requested(module)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return run_job(job)
        except RunBusyError:
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)


class Interruptions:
    """Counts how often each job was interrupted since its last new checkpoint."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[str | None, int]] = {}  # by name: the newest checkpoint then, and the count

    def give_up(self, job: PopulationJob, reason: str) -> str | None:
        """Count an interruption; return why the job failed for good, or None if it is to be run again."""
        from rl_training.runtime.checkpoints.checkpoint import CheckpointStore

        newest = next(reversed(CheckpointStore(Path(job.run_dir) / "checkpoints", 2).names()), None)
        before, count = self._counts.get(job.name, (None, 0))
        count = count + 1 if newest == before else 1
        self._counts[job.name] = newest, count
        return f"was interrupted {count} times without a new checkpoint: {reason}" if count >= LIMIT else None
