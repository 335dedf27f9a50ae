"""Rows on disk, mapped into memory: one record per transition, so that a random row is one contiguous read."""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.reading.guards import available_memory
from rl_training.errors import DatasetError


@dataclass(frozen=True, eq=False)
class RecordFile:
    """A mapped file of records that must not change while it is in use."""

    path: Path
    rows: NDArray[Any]  # structured, mapped read-only
    content: str  # fingerprint of the rows
    stamp: tuple[int, int]  # bytes and time of the last change when it was opened

    @classmethod
    def open(cls, path: Path, dtype: np.dtype[Any], offset: int, rows: int, content: str) -> "RecordFile":
        """Map a file of `rows` records behind a header of `offset` bytes."""
        mapped = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=(rows,))
        return cls(path, mapped, content, _stamp(path))

    def expect_random_access(self) -> None:
        """Tell the system that rows will be read in random order.

        A file that fits in the page cache is loaded there sequentially as a whole; of a larger one only the requested pages
        are read, since read-ahead would be wasted.
        """
        mapped = getattr(self.rows, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM if self.stamp[0] > available_memory() else mmap.MADV_WILLNEED)

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the records of some rows; a file that was truncated or rewritten since it was opened is refused."""
        if _stamp(self.path) != self.stamp:
            raise DatasetError(f"{self.path}: was changed while it was in use; restore the file and resume")
        return np.take(self.rows, rows, axis=0)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise DatasetError(f"{path}: can no longer be read: {error.strerror}; restore the file and resume") from None
    return status.st_size, status.st_mtime_ns
