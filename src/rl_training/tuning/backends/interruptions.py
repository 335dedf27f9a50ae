"""A job that was interrupted is run again, as long as it gets on."""

from pathlib import Path

from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
from rl_training.tuning.job import PopulationJob

LIMIT = 5  # interruptions of a job without a new checkpoint, after which it is given up


class Interruptions:
    """Counts how often each job was interrupted since its last new checkpoint."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[str | None, int]] = {}  # by name: the newest checkpoint then, and the count

    def give_up(self, job: PopulationJob, reason: str) -> str | None:
        """Count an interruption; return why the job failed for good, or None if it is to be run again."""
        newest = (CheckpointStore(Path(job.run_dir) / "checkpoints", 2).names() or [None])[-1]
        before, count = self._counts.get(job.name, (None, 0))
        count = count + 1 if newest == before else 1
        self._counts[job.name] = newest, count
        return f"was interrupted {count} times without a new checkpoint: {reason}" if count >= LIMIT else None
