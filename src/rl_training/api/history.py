"""Where the metrics of a managed algorithm are written."""

from dataclasses import dataclass
from pathlib import Path

from rl_training.analysis.history import History
from rl_training.experiment.manager import locate
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.metrics import read_rows


@dataclass(frozen=True)
class MetricsSource:
    """The part of a metrics file that belongs to a checkpoint, or to one member of it."""

    path: Path
    length: int
    member: int | None = None

    def history(self) -> History:
        """Return the metrics as columns; one member has them as a solo run."""
        return History.of_rows(read_rows(self.path, self.length, self.member))


def metrics_of(checkpoint: Checkpoint, member: int | None = None) -> MetricsSource | None:
    """Return where the metrics of a checkpoint are; None for a checkpoint outside a run directory."""
    run_dir = locate(checkpoint.source)[0]
    length = int(checkpoint.state["metrics_bytes"])
    return None if run_dir is None else MetricsSource(run_dir / "metrics.jsonl", length, member)
