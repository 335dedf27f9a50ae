"""One process per run directory: a lock that the kernel releases when its holder dies."""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import weakref
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from rl_training.errors import CheckpointError, RunBusyError
from rl_training.storage import open_plain, parse_json, read_regular_file, storage_error

_LONGEST = 4096  # bytes of a lock file

_HELD: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


class RunLock:
    """Holds `run.lock` of a directory for the length of a `with` block, or raises RunBusyError naming the holder.

    A forked process does not share it: one that an environment started would otherwise hold it after a kill.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "run.lock"
        self._made: list[Path] = []  # directories that were made for it, the innermost first
        self._handle: int | None = None

    def __enter__(self) -> "RunLock":
        handle = self._lock()
        while not self._is_in_place(handle):  # a failed start removed the file between opening and locking it
            os.close(handle)
            handle = self._lock()
        self._handle = handle
        _HELD.add(self)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"host": socket.gethostname(), "pid": os.getpid(), "since": since}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(record).encode(), 0)
        return self

    def _lock(self) -> int:
        """Make the directory if need be, and lock the file."""
        directory = self.path.parent
        try:
            self._made = [path for path in (directory, *directory.parents) if not path.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            handle = open_plain(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error(self.path, 0, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder_text(os.pread(handle, _LONGEST, 0))
            os.close(handle)
            raise RunBusyError(f"{directory}: is in use by {holder}; wait for it or choose another --run-dir") from None
        return handle

    def _is_in_place(self, handle: int) -> bool:
        """Whether the locked file is still the one that others would open."""
        try:
            return os.path.samestat(os.fstat(handle), self.path.lstat())
        except FileNotFoundError:
            return False

    def remove_if_made(self) -> None:
        """Remove the directory with all it holds if it was made for this lock, and the parents that were, if empty."""
        if not self._made:
            return
        shutil.rmtree(self._made[0], ignore_errors=True)
        for parent in self._made[1:]:
            with contextlib.suppress(OSError):  # another run is there
                parent.rmdir()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._handle is not None:
            os.close(self._handle)  # closing releases the lock; the file stays, so that nobody locks one that is gone
            self._handle = None


def _let_go_in_child() -> None:
    """Close the locks of the parent, which keeps them."""
    for lock in list(_HELD):
        lock.__exit__(None, None, None)


os.register_at_fork(after_in_child=_let_go_in_child)


def _holder_text(data: bytes) -> str:
    """Who holds a lock, for people, by what its file says; the file may be another user's, so nothing is taken on trust."""
    try:
        record = parse_json(data, "run.lock")
        process, host = int(record["pid"]), str(record["host"])
        since = datetime.fromisoformat(record["since"]).astimezone(UTC)
    except (CheckpointError, ValueError, KeyError, TypeError, OverflowError):
        return "another process"
    shown = host if host.isprintable() else ascii(host)
    return f"process {process} on {shown} since {since:%Y-%m-%d %H:%M:%S} UTC"


def was_locked(directory: Path) -> bool:
    """Whether a process has held the lock of a directory here; a copy of a run comes without."""
    return (directory / "run.lock").is_file()


def is_in_use(directory: Path) -> bool | None:
    """Whether a process holds the lock of a directory, which is not touched; None where that cannot be known from here."""
    path = directory / "run.lock"
    try:
        inode = path.lstat().st_ino
        record = parse_json(read_regular_file(path, _LONGEST), str(path))
        host, process = record["host"], int(record["pid"])
    except FileNotFoundError:
        return False
    except (OSError, CheckpointError, ValueError, KeyError, TypeError):
        return None
    if host != socket.gethostname():
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):  # only Linux lists locks
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        held = [line.split() for line in lines if "FLOCK" in line and "->" not in line]
        return any(int(entry[4]) == process or int(entry[5].rpartition(":")[2]) == inode for entry in held)
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
