"""The table of supported formats, one reader each; nothing in a file is executed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.dataset_directory import StoreReader
from rl_training.data.reading.hdf5.d3rlpy import D3rlpyReader
from rl_training.data.reading.hdf5.flat import HDF5Reader
from rl_training.data.reading.hdf5.minari import MinariReader
from rl_training.data.reading.npz import NpzReader
from rl_training.data.reading.refused_files import file_fault
from rl_training.data.reading.run_directory import RunReader
from rl_training.data.reading.tables.csv_files import CSVReader
from rl_training.data.reading.tables.parquet import ParquetReader

_ALL: tuple[Reader, ...] = (
    StoreReader(),
    RunReader(),
    NpzReader(),
    MinariReader(),
    D3rlpyReader(),
    HDF5Reader(),
    ParquetReader(),
    CSVReader(),
)

READERS: Final[Mapping[str, Reader]] = MappingProxyType({reader.name: reader for reader in _ALL})
"""Readers by format name, in the order in which they are tried."""


def recognised(candidate: Candidate) -> str | None:
    """Return the format of a path, recognised by content; None for anything else, and for files refused by their kind."""
    if file_fault(candidate):
        return None
    return next((reader.name for reader in READERS.values() if reader.recognises(candidate)), None)
