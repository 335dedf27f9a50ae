"""Follows a run directory without changing it: only what is new is read, whatever happens to the run."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.analysis.history import History
from rl_training.analysis.logged_run import LoggedRun, is_left_of_run, open_plain, parse_rows, why_no_run
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, StorageError
from rl_training.experiment.manager import locate
from rl_training.experiment.run_record import run_status
from rl_training.output import printable
from rl_training.runtime.checkpoints.lock import is_in_use

_ANCHOR = 256  # bytes before the place that is read next; they differ if the file was cut and written again
_FILES = ("run.json", "config.yaml", "metrics.jsonl", "timings.jsonl")

_Signature = tuple[int, int, int]


class RowTail:
    """The rows of a growing file of JSON lines; a file that was cut, replaced or removed is read again from its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: _Signature | None = None
        self._offset, self._anchor = 0, b""

    def news(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the rows since the last call, and whether they replace all earlier ones."""
        signature = _signature(self.path)
        if signature == self._seen:
            return [], False
        replaced = signature is None or (self._seen is not None and signature[0] != self._seen[0])
        try:
            rows, anew = ([], True) if signature is None else self._read(again=replaced)
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be read: {error.strerror}") from None
        if signature is None:
            self._offset, self._anchor = 0, b""
        self._seen = signature  # last: what could not be read is still news
        return rows, anew

    def _read(self, *, again: bool) -> tuple[list[dict[str, Any]], bool]:
        """Read from where the last call ended, or from the start."""
        start = 0 if again else self._offset
        with open_plain(self.path) as stream:
            stream.seek(start - len(self._anchor) if start else 0)
            if start and stream.read(len(self._anchor)) != self._anchor:
                return self._read(again=True)
            text = stream.read()
        try:
            rows, length = parse_rows(text, self.path)
        except CheckpointError:
            if start:  # it was cut and written between two calls
                return self._read(again=True)
            raise
        if length:
            self._anchor = text[max(0, length - _ANCHOR) : length]
        elif not start:
            self._anchor = b""
        self._offset = start + length
        return rows, not start


class RunFollower:
    """One run as its directory tells of it by now; the directory is only read, and its lock is left alone."""

    def __init__(self, run: str | Path, *, wait: bool = False) -> None:
        self.path = _run_directory(run, wait=wait)
        self.run: LoggedRun | None = None  # None before it has begun
        self.alive: bool | None = False  # whether a process works on it; None if that cannot be known
        self.written = 0.0  # when a row was last written, in seconds since the epoch
        self._held: bool | None = False  # whether a process holds its lock
        self._wait = wait
        self._seen: list[_Signature | None] = []
        self._metrics, self._timings = RowTail(self.path / "metrics.jsonl"), RowTail(self.path / "timings.jsonl")
        self._history, self._times = History(), list[dict[str, Any]]()

    @property
    def name(self) -> str:
        """The last part of the path: what people call the run."""
        return printable(self.path.resolve().name)

    def poll(self) -> bool:
        """Read what is new; return whether anything is. Raise a CheckpointError if the run is not there, or no longer."""
        alive, seen = is_in_use(self.path), self._signatures()
        if alive == self._held and seen == self._seen:
            return False
        before, self._held, self._seen = self._seen, alive, seen
        self.alive = False if alive and self._holder_has_ended() else alive
        if run_status(self.path) is None or seen[1] is None:
            self._explain_absence()
            return True
        try:
            self._take_metrics(*self._metrics.news())  # each at once: a tail gives its rows once, and the other may fail
            self._take_timings(*self._timings.news())
            if self.run is None or seen[:2] != before[:2]:
                self.run = LoggedRun.with_rows(self.path, self._history, self._times)
            else:
                self.run = replace(self.run, history=self._history, timings=self._times)
        except (RLTrainingError, OSError):
            if self._signatures() == seen:
                raise
            self._seen = []  # it changed meanwhile, as when a run starts over: the next call reads it again
        self.written = last_written(self.path)
        return True

    def _holder_has_ended(self) -> bool:
        """Whether the process that holds the lock has written how it ended, and is about to leave."""
        record, lock = (_signature(self.path / name) for name in ("run.json", "run.lock"))
        ended = run_status(self.path) not in (None, "running")
        return ended and record is not None and lock is not None and record[2] > lock[2]

    def _signatures(self) -> list[_Signature | None]:
        return [_signature(self.path / name) for name in _FILES]

    def _take_metrics(self, rows: list[dict[str, Any]], anew: bool) -> None:
        known = History() if anew else self._history
        self._history = known.extended(rows) if rows else known

    def _take_timings(self, rows: list[dict[str, Any]], anew: bool) -> None:
        self._times = [*([] if anew else self._times), *rows]

    def _explain_absence(self) -> None:
        """Raise unless the run is about to begin: its process reads data, or clears the directory for a new start."""
        if self.alive is False and self.run is not None:
            raise CheckpointError(f"{self.path}: was removed, or is no longer a run; nothing is left to show")
        if self.alive is False and is_left_of_run(self.path):
            raise CheckpointError(f"{self.path}: {why_no_run(self.path)}")
        if self.alive is False and not self._wait:
            reason = why_no_run(self.path) or "has no config.yaml; use another copy of the run"
            raise CheckpointError(f"{self.path}: {reason}, or wait for it with `rl-training watch --wait`")


def last_written(run: Path) -> float:
    """Return when a file of a run was last written, in seconds since the epoch; 0 if it has none."""
    return max((found[2] for name in _FILES if (found := _signature(run / name))), default=0) / 1e9


def check_distinct(paths: Sequence[Path]) -> None:
    """Refuse a run that is named twice."""
    places = [path.resolve() for path in paths]
    twice = next((path for path, place in zip(paths, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice}: is named twice; name each run once")


def _run_directory(run: str | Path, *, wait: bool) -> Path:
    path = Path(run)
    if not path.exists():
        if wait:
            return path
        raise CheckpointError(
            f"{path}: there is no run here; pass a run directory, or wait for it with `rl-training watch --wait`"
        )
    found = locate(path)[0]
    if found is None:
        raise CheckpointError(f"{path}: is a checkpoint outside a run, which does not change; pass a run directory")
    return found


def _signature(path: Path) -> _Signature | None:
    """What changes with a file; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
