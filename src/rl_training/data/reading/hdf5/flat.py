"""Flat HDF5 in D4RL's style, with or without `timeouts` and `next_observations`."""

from collections.abc import Collection
from pathlib import Path

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import HDF5_MAGIC, Candidate, Reader
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.hdf5.arrays import hdf5_array, open_hdf5
from rl_training.data.reading.reading import KNOWN_NAMES, Arrays, Reading, copies_held, reading_of


class HDF5Reader(Reader):
    """Arrays of one length at the top of an HDF5 file."""

    name = "hdf5"
    title = "flat HDF5 (D4RL style)"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file is HDF5; the readers of other layouts are tried first."""
        return candidate.head.startswith(HDF5_MAGIC)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the top-level arrays that have a name we know."""
        arrays, found = flat_arrays(path, KNOWN_NAMES, options)
        return reading_of(arrays, found, str(path), self.title)


def flat_arrays(path: Path, wanted: Collection[str], options: ReadOptions) -> tuple[Arrays, list[str]]:
    """Return the wanted top-level arrays of an HDF5 file, and every name in it."""
    with open_hdf5(path) as archive:
        found = list(archive)
        items = {name: hdf5_array(archive, name, str(path)) for name in found if name in wanted}
        claimed, stored = (sum(sizes) for sizes in zip(*((i.claimed, i.stored) for i in items.values()), strict=True))
        check_size(str(path), copies_held(items, options) * claimed, options.max_bytes, stored)
        return {name: item.read() for name, item in items.items()}, found
