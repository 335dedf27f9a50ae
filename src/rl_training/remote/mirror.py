"""Copies a run to its store: files first, the index that names them last, so that the store always holds a whole run."""

import os
import socket
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_training.errors import RunBusyError, StorageError
from rl_training.faults import fault_point
from rl_training.remote.index import Files, Index, index_name, newest_index, newest_number, object_name, read_index
from rl_training.remote.runs import Known, LocalCopy
from rl_training.remote.store import Store
from rl_training.storage import sha256

_NOTHING = Index(0, {}, {})


class Mirror:
    """Writes the states of a run to its store, one after another; another writer is noticed, and ends this one."""

    def __init__(self, address: str, warn: Callable[[str], None]) -> None:
        self._store, self._copy, self._known, self._warn = Store(address), LocalCopy(address), Known(), warn
        self._last, self._before = _NOTHING, _NOTHING  # the index in the store, and the one before it
        since = datetime.now(UTC).isoformat(timespec="seconds")
        self._writer = {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "id": uuid.uuid4().hex}

    def claim(self) -> None:
        """Become the writer of the run; whoever was it before fails with its next state. A RunBusyError if it has changed."""
        found = newest_index(self._store) or _NOTHING
        if found.number not in (self._copy.seen[0], 0):
            raise RunBusyError(
                f"{self._store.address}: was written by {_name(found)} since it was read; try again once that has ended"
            )
        if found.writer.get("writing") and not self._is_gone(found):
            self._warn(
                f"{self._store.address}: {_name(found)} has not said that it ended; if it still runs, it stops at its next "
                "checkpoint, and this run goes on"
            )
        self._last, self._before = found, read_index(self._store, found.number - 1) or _NOTHING
        self._commit(found.files, writing=True)

    def save(self, *, writing: bool = True) -> None:
        """Copy what has changed, and then the index; a StorageError leaves the last state as it was."""
        there = self._last.objects | self._before.objects
        try:
            files = self._copy.files(self._known)
            for name, entry in files.items():
                if object_name(name, entry) not in there:
                    self._upload(self._copy.path / name, name, entry)
        except OSError as error:
            raise StorageError(f"{self._copy.path}: cannot be copied to {self._store.address}: {error}") from error
        fault_point("mirror:before-index")
        self._commit(files, writing=writing)

    def _upload(self, path: Path, name: str, entry: dict[str, Any]) -> None:
        data = path.read_bytes()[: entry["bytes"]]  # a log of a backend may have grown since
        if sha256(data) != entry["sha256"]:
            raise StorageError(f"{path}: changed while it was copied to {self._store.address}")
        self._store.write(object_name(name, entry), data)
        fault_point("mirror:file")

    def _commit(self, files: Files, *, writing: bool) -> None:
        """Create the next index, and remove what only states before the last two had."""
        index = Index(self._last.number + 1, files, {**self._writer, "writing": writing})
        created = self._store.create(index_name(index.number), index.encoded())
        if not created or newest_number(self._store) != index.number:  # the number was another's, and is long removed
            other = _name(newest_index(self._store) or index)
            raise RunBusyError(
                f"{self._store.address}: {other} has taken over the run; what this one had is kept in {self._copy.path}"
            )
        self._copy.remember(index.number, files)
        outdated, kept = self._before, self._last.objects | index.objects
        self._before, self._last = self._last, index
        fault_point("mirror:after-index")
        if outdated.number:
            self._store.remove([*sorted(outdated.objects - kept), index_name(outdated.number)])

    def _is_gone(self, index: Index) -> bool:
        """Whether the writer of an index is a process of this machine that has ended."""
        if index.writer.get("host") != self._writer["host"]:
            return False
        return not os.path.exists(f"/proc/{int(index.writer.get('pid', 0))}")


def _name(index: Index) -> str:
    writer = index.writer
    return f"process {writer.get('pid')} of {writer.get('host')} (since {writer.get('since')})"
