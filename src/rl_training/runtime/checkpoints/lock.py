"""One process per run directory: a lock that the kernel releases when its holder dies."""

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from rl_training.errors import RunBusyError
from rl_training.storage import storage_error


class RunLock:
    """Holds `run.lock` of a directory for the length of a `with` block, or raises RunBusyError naming the holder."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "run.lock"
        self._handle: int | None = None

    def __enter__(self) -> "RunLock":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise storage_error(self.path, 0, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 4096, 0).decode(errors="replace").strip() or "an unknown process"
            os.close(handle)
            raise RunBusyError(
                f"{self.path.parent}: is in use by {holder}; wait for it or choose another --run-dir"
            ) from None
        self._handle = handle
        record = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(record).encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._handle is not None:
            os.close(self._handle)  # closing releases the lock; the file stays, because removing it would be a race
            self._handle = None
