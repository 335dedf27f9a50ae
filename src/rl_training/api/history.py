"""Where the metrics of a managed algorithm are written."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from rl_training.analysis.history import History
from rl_training.analysis.logged_run import parse_rows
from rl_training.errors import CheckpointError, DivergedError
from rl_training.experiment.manager import locate
from rl_training.experiment.run_record import run_status
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.metrics import read_rows
from rl_training.storage import open_plain


@dataclass(frozen=True)
class MetricsSource:
    """The part of a metrics file that belongs to a checkpoint, or to one member of it."""

    path: Path
    length: int
    member: int | None = None

    def history(self) -> History:
        """Return the metrics as columns; one member has them as a solo run."""
        return History.of_rows(read_rows(self.path, self.length, self.member))

    def diverged_later(self) -> set[int]:
        """Return the members that diverged after the checkpoint; of a damaged file none is known."""
        with contextlib.suppress(OSError, CheckpointError), os.fdopen(open_plain(self.path, os.O_RDONLY), "rb") as stream:
            stream.seek(self.length)
            return {row["member"] for row in parse_rows(stream.read(), self.path)[0] if row.get("event") == "diverged"}
        return set()


def metrics_of(checkpoint: Checkpoint, member: int | None = None) -> MetricsSource | None:
    """Return where the metrics of a checkpoint are; None for a checkpoint outside a run directory."""
    run_dir = locate(checkpoint.source)[0]
    length = int(checkpoint.state["metrics_bytes"])
    return None if run_dir is None else MetricsSource(run_dir / "metrics.jsonl", length, member)


def diverged_later(checkpoint: Checkpoint) -> list[int]:
    """Return the members that diverged in training after a checkpoint, which has them as they were before."""
    source = metrics_of(checkpoint)
    if source is None:
        return []
    before = [member for member, record in enumerate(checkpoint.state["members"]) if record["status"] != "diverged"]
    if run_status(source.path.parent) == DivergedError.__name__:
        return before  # that is said of a run once all of its members have
    later = source.diverged_later()
    return [member for member in before if member in later]
