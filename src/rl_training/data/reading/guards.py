"""Guards against hostile files: headers are checked before anything is allocated or any link is followed."""

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_training.errors import DatasetError
from rl_training.storage import read_regular_file

MOST_INFLATION = 1000  # declared over stored bytes
SMALL = 2**26  # bytes of arrays below which any inflation is allowed
MARGIN = 2**28  # bytes that reading may take beyond the limit: libraries, their buffers, and what files say about themselves
_OWN_MARGIN = MARGIN * 3 // 4  # of it; the rest is for the pages of libraries, which the system counts elsewhere
_LEAST_LIMIT = 2**28  # bytes, even if less memory is free
_READING = threading.RLock()


def memory_limit(limit: int | None) -> int:
    """Return the bytes that data may take in memory: the limit if set, else 80 % of the free memory."""
    if limit is not None:
        return limit
    return max(int(0.8 * available_memory()), _LEAST_LIMIT)


def available_memory() -> int:
    """Return the bytes available without swapping: free memory and reclaimable page cache."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Allowance:
    """The memory that the data of one source may take; what is too much is refused before it is allocated."""

    def __init__(self, source: str, limit: int | None) -> None:
        self._source, self._allowed = source, memory_limit(limit)
        self._what = "80 % of the free memory" if limit is None else "max_dataset_bytes"
        self._taken = 0

    def take(self, more: int) -> None:
        """Count what is held in parts, and refuse the first that is too much."""
        self._taken += more
        self.check(self._taken)

    def check(self, needed: int, stored: int | None = None) -> None:
        """Refuse data that takes more memory than allowed, or inflates implausibly from the bytes stored."""
        if needed > self._allowed:
            raise DatasetError(
                f"{self._source}: holds {needed:,} bytes of arrays, more than {self._what} ({self._allowed:,}); "
                "raise max_dataset_bytes, or convert it in parts with `rl-training data convert` and train from that"
            )
        if stored is not None and needed > SMALL and needed > MOST_INFLATION * stored:
            raise DatasetError(
                f"{self._source}: {stored:,} stored bytes claim to hold {needed:,}; looks like a decompression bomb"
            )


def check_size(source: str, needed: int, limit: int | None, stored: int | None = None) -> None:
    """Refuse, before anything is allocated, data that takes more memory than allowed or inflates implausibly."""
    Allowance(source, limit).check(needed, stored)


@contextmanager
def bounded_memory(limit: int | None) -> Iterator[None]:
    """Let this process take no more than the limit and `MARGIN` beyond what it has: who asks for more gets a MemoryError.

    The libraries that parse foreign files believe what these say, in places that no check reaches beforehand. The system
    bounds the whole process, so files are read one at a time. Only Linux counts in this way.
    """
    with _READING:
        before, hard = resource.getrlimit(resource.RLIMIT_DATA)
        taken = _private_memory()
        bounds = [bound for bound in (before, hard) if bound != resource.RLIM_INFINITY]
        if taken is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (min([taken + memory_limit(limit) + _OWN_MARGIN, *bounds]), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _private_memory() -> int | None:
    """The bytes of private memory that this process has reserved; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None


def read_small_file(path: Path, limit: int = 2**20) -> bytes:
    """Return the bytes of a file beside the data, such as its metadata; one that is not plain or not small is refused."""
    return read_regular_file(path.resolve(), limit, DatasetError)
