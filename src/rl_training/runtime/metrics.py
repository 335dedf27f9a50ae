"""Append-only JSON lines: metrics that are a function of config and step, and timings that are not."""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from rl_training.errors import CheckpointError, StorageError
from rl_training.faults import fault_point
from rl_training.storage import open_plain, storage_error

_PART = 2**20  # bytes that are hashed at a time
_ELSEWHERE = ", so it was changed; go on from the checkpoint in a new --run-dir"


class JsonLines:
    """A file with one JSON object per line, which a resumed run cuts to a recorded length and continues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: BinaryIO | None = None
        self._digest = hashlib.sha256()  # of all that was written

    def open(self) -> None:
        """Open the file for appending."""
        try:
            self._opened = os.fdopen(open_plain(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
        except OSError as error:
            raise storage_error(self.path, 0, error) from error

    @property
    def _stream(self) -> BinaryIO:
        if self._opened is None:
            raise ValueError(f"{self.path}: is not open")
        return self._opened

    @property
    def length(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return self._digest.hexdigest()

    def cut(self, length: int, expected: str | None) -> None:
        """Remove everything after `length` bytes, once their hash is known to be the expected one, if any is recorded."""
        self._digest = checked_beginning(self.path, length, expected)
        self._stream.truncate(length)
        self._stream.seek(length)

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows and flush them to the operating system."""
        try:
            for row in rows:
                line = (json.dumps(row, allow_nan=False) + "\n").encode()
                self._stream.write(line)
                self._digest.update(line)
                fault_point("metrics:row")
            self._stream.flush()
        except OSError as error:
            raise storage_error(self.path, 0, error) from error

    def sync(self) -> None:
        """Make everything written durable."""
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise storage_error(self.path, 0, error) from error

    def close(self) -> None:
        """Close the file; write errors have been raised before."""
        with contextlib.suppress(OSError):
            if self._opened is not None:
                self._opened.close()


def checked_beginning(path: Path, length: int, expected: str | None) -> "hashlib._Hash":
    """Return the digest of the first bytes of a file; a CheckpointError if there are fewer, or they were changed."""
    digest, left = hashlib.sha256(), length
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as stream:
            while left and (part := stream.read(min(left, _PART))):
                digest.update(part)
                left -= len(part)
    except OSError as error:
        if length:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}{_ELSEWHERE}") from None
    if left:
        raise CheckpointError(f"{path}: is shorter than the checkpoint recorded ({length:,} bytes){_ELSEWHERE}")
    if expected not in (None, digest.hexdigest()):
        raise CheckpointError(f"{path}: its first {length:,} bytes are not those that the checkpoint recorded{_ELSEWHERE}")
    return digest


def under(group: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return metrics under the name of their group, such as `validation/action_distance`."""
    return {f"{group}/{name}": value for name, value in values.items()}


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without NaN and inf, which JSON cannot hold: a loss may overflow on held-out rows alone."""
    return {name: value for name, value in row.items() if not isinstance(value, float) or math.isfinite(value)}


def read_rows(path: Path, length: int, member: int | None = None) -> list[dict[str, Any]]:
    """Return the rows in the first `length` bytes of a metrics file; those of one member as a solo run writes them."""
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as stream:
            text = stream.read(length)
        rows = [json.loads(line) for line in text.splitlines()]
        if any(type(row["member"]) is not int for row in rows):
            raise ValueError
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{path}: is damaged; use a copy of the checkpoint outside its run") from None
    if len(text) < length:
        raise CheckpointError(f"{path}: is shorter than the checkpoint recorded ({length:,} bytes), so it was changed")
    if member is None:
        return rows
    mine = [{**row, "member": 0} for row in rows if row["member"] == member]
    return [{name: value for name, value in row.items() if not name.startswith("knob/")} for row in mine]


Activity = Literal["environments", "acting", "gradient_steps", "evaluation", "saving", "rest"]
"""What a run spends its time on."""


class Stopwatch:
    """Wall-clock figures of a run in this process; at any moment its time goes to one activity.

    A device works while the host goes on, so the time of its work counts where the host waits for it.
    """

    def __init__(self) -> None:
        self.start(0)

    def start(self, position: int) -> None:
        """Begin at a position, with no time spent."""
        self._start = self._last = self._since = time.perf_counter()
        self._started = round(time.time(), 6)  # by which readers tell the processes of a resumed run apart
        self._last_position = position
        self._activity: Activity = "rest"
        self._seconds: dict[Activity, float] = dict.fromkeys(get_args(Activity), 0.0)

    def switch(self, activity: Activity) -> None:
        """Count the time from now on as that of an activity."""
        now = time.perf_counter()
        self._seconds[self._activity] += now - self._since
        self._activity, self._since = activity, now

    @contextlib.contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Count the time of a block as that of an activity."""
        before = self._activity
        self.switch(activity)
        try:
            yield
        finally:
            self.switch(before)

    def lap(self, position: int, counters: Mapping[str, int]) -> dict[str, float | int]:
        """Return the counters, when it started, the seconds since then, by activity too, and the speed since the last lap."""
        self.switch(self._activity)
        now = self._since
        speed = (position - self._last_position) / max(now - self._last, 1e-9)
        self._last, self._last_position = now, position
        parts = {f"seconds/{activity}": round(seconds, 3) for activity, seconds in self._seconds.items()}
        figures = {"seconds": round(now - self._start, 3), "steps_per_second": round(speed, 2), **parts}
        return {**counters, "started": self._started, **figures}
