"""The formats that datasets come in, each a small reader in a table; nothing in a file is executed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rl_training.data.readers.base import Reader
from rl_training.data.readers.csv_files import CSVReader
from rl_training.data.readers.d3rlpy import D3rlpyReader
from rl_training.data.readers.hdf5 import HDF5Reader
from rl_training.data.readers.minari import MinariReader
from rl_training.data.readers.npz import NpzReader
from rl_training.data.readers.store import StoreReader
from rl_training.data.readers.tables import ParquetReader

_ALL: tuple[Reader, ...] = (
    StoreReader(),
    NpzReader(),
    MinariReader(),
    D3rlpyReader(),
    HDF5Reader(),
    ParquetReader(),
    CSVReader(),
)

READERS: Final[Mapping[str, Reader]] = MappingProxyType({reader.name: reader for reader in _ALL})
"""By format name, in the order in which they are asked whether a file is theirs."""
