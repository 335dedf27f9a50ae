"""Flat HDF5 in D4RL's style, with or without `timeouts` and `next_observations`."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import HDF5_MAGIC, Candidate, Reader
from rl_training.data.reading.guards import check_size, hdf5_array, hdf5_bytes, open_hdf5
from rl_training.data.reading.reading import KNOWN_NAMES, Arrays, Reading, reading_of


class HDF5Reader(Reader):
    """Arrays of one length at the top of an HDF5 file."""

    name = "hdf5"
    title = "flat HDF5 (D4RL style)"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file is HDF5; the readers of other layouts are tried first."""
        return candidate.head.startswith(HDF5_MAGIC)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the top-level arrays that have a name we know."""
        arrays, found = flat_arrays(path, KNOWN_NAMES, options.max_bytes)
        return reading_of(arrays, found, str(path), self.title)


def flat_arrays(path: Path, wanted: Collection[str], limit: int | None) -> tuple[Arrays, list[str]]:
    """Return the wanted top-level arrays of an HDF5 file, and every name in it."""
    with open_hdf5(path) as archive:
        found = list(archive)
        items: dict[str, Any] = {name: hdf5_array(archive, name, str(path)) for name in found if name in wanted}
        claimed, stored = hdf5_bytes(items.values())
        copies = 1 if {"next_observations", "next_obs"} & set(items) else 2  # next observations are made by copying
        check_size(str(path), copies * claimed, limit, stored)
        return {name: item[()] for name, item in items.items()}, found
