"""Arrays inside HDF5 files: checked by their headers before anything is allocated or any link is followed.

One array is open at a time. h5py's own objects cost many times more than a short episode, so its lower level is used.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.reading.guards import Allowance
from rl_training.data.reading.reading import bytes_held
from rl_training.errors import DatasetError

_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading."""
    import h5py

    with h5py.File(path, "r") as archive:
        yield archive


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array of numbers stored entirely inside its file, not yet read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    claimed: int  # bytes that reading takes, by whole chunks
    stored: int  # bytes in the file
    _dataset: Any

    @property
    def length(self) -> int:
        """The number of rows; 0 for a single number."""
        return self.shape[0] if self.shape else 0

    def read(self) -> NDArray[Any]:
        """Return the numbers."""
        from h5py import h5s

        values = np.empty(self.shape, self.dtype)
        if values.size:
            self._dataset.read(h5s.ALL, h5s.ALL, values)
        return values


def hdf5_group(group: Any, name: str) -> Any | None:
    """Return a group inside its file; None if the name is anything else, such as a link, which is not followed."""
    import h5py

    found = _inside(group, name)
    return h5py.Group(found) if isinstance(found, h5py.h5g.GroupID) else None


def hdf5_array(group: Any, name: str, source: str) -> StoredArray:
    """Return an array stored entirely inside its file; links and external storage are refused unopened.

    Raises KeyError for a name that does not exist.
    """
    import h5py

    where = f"{source}: `{group.name.rstrip('/')}/{name}`".replace("`/", "`")
    found = _inside(group, name)
    if found is None:
        raise DatasetError(f"{where} is a link to somewhere else; only data inside the file is read")
    if not isinstance(found, h5py.h5d.DatasetID):
        raise DatasetError(f"{where} is not a plain array stored inside the file")
    layout = found.get_create_plist()
    if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
        raise DatasetError(f"{where} is not a plain array stored inside the file")
    filters = [layout.get_filter(number)[0] for number in range(layout.get_nfilters())]
    if set(filters) - set(_FILTERS) or len(set(filters)) != len(filters):
        raise DatasetError(f"{where} cannot be read: it is packed by the filters {filters}; write it with gzip or unpacked")
    shape, dtype = found.shape, found.dtype
    if shape is None or dtype.kind not in "fiub":
        raise DatasetError(f"{where} has dtype {dtype}; numbers are needed")
    chunk = layout.get_chunk() if layout.get_layout() == h5py.h5d.CHUNKED else (0,)
    claimed = max(bytes_held(shape, dtype), math.prod(chunk) * dtype.itemsize)
    return StoredArray(shape, dtype, claimed, found.get_storage_size(), found)


def _inside(group: Any, name: str) -> Any | None:
    """The object of a name, opened; None if it is a link."""
    import h5py

    place = name.encode()
    hard = group.id.links.get_info(place).type == h5py.h5l.TYPE_HARD
    return h5py.h5o.open(group.id, place) if hard else None


class EpisodeArrays:
    """Reads the arrays of many episodes one by one; the first that would be too much is refused before it is read."""

    def __init__(self, allowance: Allowance, copies: int) -> None:
        self._allowance, self._copies = allowance, copies
        self._claimed = self._stored = 0

    def read(self, item: StoredArray) -> NDArray[Any]:
        """Return the numbers of an array."""
        self._claimed, self._stored = self._claimed + item.claimed, self._stored + item.stored
        self._allowance.check(self._copies * self._claimed, self._stored)
        return item.read()
