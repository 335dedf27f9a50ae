"""What a run writes while it trains: metric rows, timings and checkpoints."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rl_training.errors import StorageError
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore
from rl_training.runtime.evaluating.evaluator import Snapshot
from rl_training.runtime.loop_parts import LoopParts
from rl_training.runtime.metrics import JsonLines


class RunFiles:
    """The files of a run in its directory."""

    def __init__(self, run_dir: Path, keep: int, warn: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._store = CheckpointStore(run_dir / "checkpoints", keep, warn)
        self._metrics, self._timings = JsonLines(run_dir / "metrics.jsonl"), JsonLines(run_dir / "timings.jsonl")

    def open(self) -> None:
        """Open the files."""
        self._store.prepare()
        self._metrics.open()
        self._timings.open()

    def start_at(self, checkpoint: Checkpoint | None) -> None:
        """Cut the metrics to those of a checkpoint of this run, or to none, and let later checkpoints be replaced."""
        if checkpoint is not None:
            self._store.rewind(checkpoint.path)  # before the metrics are cut, so that `latest` never points past their end
        self._metrics.cut(*((0, None) if checkpoint is None else checkpoint.metrics))

    @property
    def metrics_so_far(self) -> dict[str, Any]:
        """The length and the hash of the metrics, for which a checkpoint vouches."""
        return {"metrics_bytes": self._metrics.length, "metrics_sha256": self._metrics.sha256}

    @property
    def timed(self) -> bool:
        """Whether there is a row of timings."""
        return bool(self._timings.length)

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add metric rows."""
        self._metrics.write(rows)

    def write_timing(self, row: Mapping[str, Any]) -> None:
        """Add a row of timings."""
        self._timings.write([row])

    def check_directory(self) -> None:
        """Raise a StorageError if the directory is gone."""
        if not self._run_dir.is_dir():
            raise StorageError(f"{self._run_dir}: the run directory has disappeared; nothing can be saved")

    def save(self, snapshot: Snapshot, *, best: bool, latest: bool) -> Path:
        """Write a checkpoint, once the metrics before it are durable."""
        self._metrics.sync()
        return self._store.save(snapshot.counters, snapshot.tensors, snapshot.state, best=best, latest=latest)

    def load(self, counters: Mapping[str, int]) -> Snapshot:
        """Return what the checkpoint at some counters holds."""
        return Snapshot.loaded(self._store.path(counters))

    def referenced_segments(self) -> Collection[str] | None:
        """Return the replay segments that checkpoints refer to; None when one of these cannot be read."""
        return self._store.referenced_segments()

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        self._timings.close()


class NoFiles(RunFiles):
    """The files of a run as a rank has them that writes none."""

    metrics_so_far: ClassVar[dict[str, Any]] = {}
    timed = True

    def open(self) -> None:
        """Open nothing."""

    def start_at(self, checkpoint: Checkpoint | None) -> None:
        """Change nothing."""

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write nothing."""

    def write_timing(self, row: Mapping[str, Any]) -> None:
        """Write nothing."""

    def check_directory(self) -> None:
        """Need no directory."""

    def save(self, snapshot: Snapshot, *, best: bool, latest: bool) -> Path:
        """Return where the checkpoint is written by another rank."""
        del best, latest
        return self._store.path(snapshot.counters)

    def load(self, counters: Mapping[str, int]) -> Snapshot:
        """Return a snapshot without contents, which is not written either."""
        return Snapshot(counters, {}, {})


def files_of(parts: LoopParts) -> RunFiles:
    """Return the files of a run; of several ranks one writes them."""
    kind = RunFiles if parts.ranks.writes else NoFiles
    return kind(parts.run_dir, parts.config.keep_checkpoints, parts.reporter.warn)
