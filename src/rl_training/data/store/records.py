"""Rows on disk: one record per transition, so that a random row is one contiguous read.

Nothing is read through mapped memory: a file that somebody truncates would then end the process with SIGBUS. Blocks of rows
are read by `pread`. Random rows are gathered from a mapping by the system (`process_vm_readv`), which returns an error
instead, takes a thousand rows at once and needs no lock of the interpreter; without that call they are read one by one.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from rl_training.data.reading.guards import available_memory
from rl_training.data.row_blocks import blocks
from rl_training.errors import DatasetError

_MOST_ROWS = 1024  # that one call gathers


class RecordFile:
    """A file of records that must not change while it is in use."""

    def __init__(self, path: Path, dtype: np.dtype[Any], offset: int, rows: int, content: str) -> None:
        self.path, self.dtype, self.content = path, dtype, content  # the content is the fingerprint of the rows
        self._offset, self._rows = offset, rows
        self.stamp = _stamp(path)  # bytes and time of the last change when it was opened
        self._stream: BinaryIO = path.open("rb", buffering=0)
        self._mapped = mmap.mmap(self._stream.fileno(), offset + rows * dtype.itemsize, access=mmap.ACCESS_READ)
        self._address = np.frombuffer(self._mapped, dtype=np.uint8).ctypes.data + offset
        self._reading = threading.Lock()
        self._buffer = np.empty(0, dtype=dtype)  # the rows that were read last, for their other fields
        self._buffered: slice | None = None
        self._gather_call = _gather_call()

    def __len__(self) -> int:
        return self._rows

    def field(self, name: str) -> "RecordField":
        """Return a field of all rows."""
        return RecordField(self, name)

    def expect_random_access(self) -> None:
        """Tell the system that rows will be read in random order.

        A file that fits in the page cache is loaded there sequentially as a whole; of a larger one only the requested pages
        are read, since read-ahead would be wasted.
        """
        self._buffer, self._buffered = np.empty(0, dtype=self.dtype), None
        if hasattr(mmap, "MADV_RANDOM"):
            self._mapped.madvise(mmap.MADV_RANDOM if self.stamp[0] > available_memory() else mmap.MADV_WILLNEED)

    def forget_pages(self) -> None:
        """Unmap what was read, so that the system may drop it from the page cache."""
        self._mapped.madvise(mmap.MADV_DONTNEED)

    def copy(self, name: str, part: slice, target: NDArray[Any]) -> None:
        """Copy a field of a block of rows; a file that was truncated or rewritten since it was opened is refused."""
        with self._reading:
            if self._buffered != part:
                self._buffered = None
                count = part.stop - part.start
                if len(self._buffer) < count:
                    self._buffer = np.empty(count, dtype=self.dtype)
                self._read_into(self._buffer[:count].view(np.uint8), self._offset + part.start * self.dtype.itemsize)
                self._check_unchanged()
                self._buffered = part
            target[:] = self._buffer[: part.stop - part.start][name]

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the records of some rows; a file that was truncated or rewritten since it was opened is refused."""
        self.check_rows(rows)
        records = np.empty(len(rows), dtype=self.dtype)
        size, places = self.dtype.itemsize, rows.astype(np.int64) * self.dtype.itemsize
        if self._gather_call is not None and not self._gather(records, places):
            self._check_unchanged()
            self._gather_call = None  # the system does not allow it
        if self._gather_call is None:
            flat = records.view(np.uint8)
            for number, place in enumerate(places.tolist()):
                self._read_into(flat[number * size : (number + 1) * size], self._offset + place)
        self._check_unchanged()  # last: behind the end of a file that was truncated meanwhile, its last page holds zeros
        return records

    def check_rows(self, rows: NDArray[np.int64]) -> None:
        """Raise an IndexError for rows that there are not."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self._rows:
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {self._rows}")

    def _gather(self, records: NDArray[Any], places: NDArray[np.int64]) -> bool:
        """Copy rows from the mapping; return whether the system could."""
        size, call = self.dtype.itemsize, self._gather_call
        wanted = np.stack((places + self._address, np.full_like(places, size)), axis=1)
        for start in range(0, len(wanted), _MOST_ROWS):
            part = wanted[start : start + _MOST_ROWS]
            target = np.array([records.ctypes.data + start * size, len(part) * size], dtype=np.int64)
            ranges = ctypes.c_void_p(target.ctypes.data), 1, ctypes.c_void_p(part.ctypes.data), len(part)
            if call is None or call(os.getpid(), *ranges, 0) != len(part) * size:
                return False
        return True

    def _read_into(self, target: NDArray[np.uint8], place: int) -> None:
        while len(target):
            count = os.preadv(self._stream.fileno(), [target.data], place)
            if not count:
                raise self._changed()
            target, place = target[count:], place + count

    def _check_unchanged(self) -> None:
        if _stamp(self.path) != self.stamp:
            raise self._changed()

    def _changed(self) -> DatasetError:
        return DatasetError(f"{self.path}: was changed while it was in use; restore the file and resume")


@dataclass(frozen=True, eq=False)
class RecordField(NDArrayOperatorsMixin):
    """A field of a file of records: an array whose rows are read when they are asked for."""

    records: RecordFile
    name: str
    dtype: np.dtype[Any] = field(init=False)
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        own = self.records.dtype[self.name]
        object.__setattr__(self, "dtype", own.base)
        object.__setattr__(self, "shape", (len(self.records), *own.shape))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that all rows take."""
        return len(self.records) * self.records.dtype[self.name].itemsize

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, tuple):
            return self[rows[0]][(slice(None), *rows[1:])]
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            return self._slice(begin, end) if step == 1 else self[np.arange(begin, end, step)]
        wanted = np.asarray(rows)
        if wanted.dtype == bool:
            wanted = np.flatnonzero(wanted)
        flat = np.where(wanted < 0, wanted + len(self), wanted).reshape(-1)
        self.records.check_rows(flat)
        first, count = (int(flat[0]), len(flat)) if len(flat) else (0, 0)
        if np.array_equal(flat, np.arange(first, first + count)):
            found = self._slice(first, first + count)
        else:
            found = self.records.fetch(flat)[self.name]
        return found.reshape((*wanted.shape, *self.shape[1:]))[()]

    def _slice(self, begin: int, end: int) -> NDArray[Any]:
        """Rows that follow one another, block by block."""
        values = np.empty((max(end - begin, 0), *self.shape[1:]), dtype=self.dtype)
        for part in blocks(len(values), begin):
            self.records.copy(self.name, slice(begin + part.start, begin + part.stop), values[part])
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # it is always one
        return np.asarray(self[:], dtype=dtype)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        read = [value[:] if isinstance(value, RecordField) else value for value in inputs]
        return getattr(function, method)(*read, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[:], name)


def _gather_call() -> Any | None:
    """The system's call that copies ranges of a process's memory; None where there is none."""
    call = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if call is not None:
        call.restype = ctypes.c_ssize_t
    return call


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise DatasetError(f"{path}: can no longer be read: {error.strerror}; restore the file and resume") from None
    return status.st_size, status.st_mtime_ns
