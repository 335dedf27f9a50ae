"""Guards against hostile files: headers are checked before anything is allocated or any link is followed."""

import contextlib
import math
import os
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import DatasetError

MOST_INFLATION = 1000  # declared over stored bytes
SMALL = 2**26  # bytes of arrays below which any inflation is allowed
_LEAST_LIMIT = 2**28  # bytes, even if less memory is free


def memory_limit(limit: int | None) -> int:
    """Return the bytes that data may take in memory: the limit if set, else 80 % of the free memory."""
    if limit is not None:
        return limit
    return max(int(0.8 * available_memory()), _LEAST_LIMIT)


def available_memory() -> int:
    """Return the bytes available without swapping: free memory and reclaimable page cache."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_size(source: str, needed: int, limit: int | None, stored: int | None = None) -> None:
    """Refuse, before anything is allocated, data that takes more memory than allowed or inflates implausibly."""
    allowed, what = memory_limit(limit), "80 % of the free memory" if limit is None else "max_dataset_bytes"
    if needed > allowed:
        raise DatasetError(
            f"{source}: holds {needed:,} bytes of arrays, more than {what} ({allowed:,}); "
            "raise max_dataset_bytes, or convert it in parts with `rl-training data convert` and train from that"
        )
    if stored is not None and needed > SMALL and needed > MOST_INFLATION * stored:
        raise DatasetError(f"{source}: {stored:,} stored bytes claim to hold {needed:,}; looks like a decompression bomb")


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading."""
    import h5py

    with h5py.File(path, "r") as archive:
        yield archive


def hdf5_array(group: Any, name: str, source: str) -> Any:
    """Return an h5py dataset stored entirely inside its file; links and external storage are refused unopened."""
    import h5py

    where = f"{source}: `{group.name.rstrip('/')}/{name}`".replace("`/", "`")
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DatasetError(f"{where} is a link to somewhere else; only data inside the file is read")
    item = group[name]
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise DatasetError(f"{where} is not a plain array stored inside the file")
    if item.dtype.kind not in "fiub":
        raise DatasetError(f"{where} has dtype {item.dtype}; numbers are needed")
    return item


def is_group(group: Any, name: str) -> bool:
    """Return whether a name is a group inside the file; a link is not followed."""
    import h5py

    return isinstance(group.get(name, getlink=True), h5py.HardLink) and isinstance(group[name], h5py.Group)


def hdf5_group(group: Any, name: str, source: str) -> Any:
    """Return a group inside its file; a link is refused unopened."""
    if not is_group(group, name):
        raise DatasetError(f"{source}: `{name}` is not a plain group inside the file")
    return group[name]


def hdf5_bytes(items: Iterable[Any]) -> tuple[int, int]:
    """Return the bytes that reading arrays takes, by whole chunks, and the bytes they take in the file."""
    claimed = stored = 0
    for item in items:
        whole = math.prod(item.shape) * item.dtype.itemsize
        chunk = math.prod(item.chunks) * item.dtype.itemsize if item.chunks else 0
        claimed += max(whole, chunk)
        stored += int(item.id.get_storage_size())
    return claimed, stored


def read_npz(
    path: Path, wanted: Collection[str], limit: int | None, text: Collection[str] = ()
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the wanted arrays of an npz file and the names of all; headers are checked against the stored sizes first.

    Only those named in `text` may hold text.
    """
    source = str(path)
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        chosen = {name: info for name, info in entries.items() if name in wanted or name in text}
        if len(entries) != len(archive.infolist()):
            raise DatasetError(f"{source}: holds two arrays with the same name")
        needed = sum(info.file_size for info in chosen.values())
        check_size(source, needed, limit, sum(info.compress_size for info in chosen.values()))
        for name, info in chosen.items():
            with archive.open(info) as stream:
                _check_header(stream, info.file_size, f"{source}: `{name}`", "U" if name in text else "fiub")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in chosen}, list(entries)


def _check_header(stream: IO[bytes], size: int, where: str, kinds: str) -> None:
    """Refuse an array whose header does not match the bytes that follow it, or declares objects."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise DatasetError(
            f"{where} has dtype object, so it is a pickle, which may run code when opened; export it as npz, CSV or Parquet"
        )
    if dtype.kind not in kinds:
        raise DatasetError(f"{where} has dtype {dtype}; {'text is' if kinds == 'U' else 'numbers are'} needed")
    if math.prod(shape) * dtype.itemsize != size - stream.tell():
        raise DatasetError(f"{where} claims the shape {shape}, which does not match the stored bytes")
