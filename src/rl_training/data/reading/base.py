"""The interface of a reader."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.hdf5.arrays import open_hdf5
from rl_training.data.reading.reading import Reading

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Candidate:
    """A path whose format is to be recognised: its first bytes and, for HDF5, its top-level names, read once."""

    path: Path

    @cached_property
    def head(self) -> bytes:
        """The first bytes of a file; empty for a directory."""
        if not self.path.is_file():
            return b""
        with self.path.open("rb") as stream:
            return stream.read(4096)

    @cached_property
    def hdf5_names(self) -> frozenset[str]:
        """The top-level names of an HDF5 file; empty for anything else."""
        if not self.head.startswith(HDF5_MAGIC):
            return frozenset()
        with open_hdf5(self.path) as archive:
            return frozenset(archive)


class Reader(ABC):
    """Recognises a format by content and reads it."""

    name: ClassVar[str]  # the value of `format:`
    title: ClassVar[str]  # shown to users
    takes_columns: ClassVar[bool] = False  # whether a column map applies
    takes_member: ClassVar[bool] = False  # whether one of several members can be chosen

    @abstractmethod
    def recognises(self, candidate: Candidate) -> bool:
        """Return whether a path looks like this format."""

    def column_names(self, path: Path) -> Sequence[str]:
        """Return the names of the columns of a table; none for other formats."""
        del path
        return ()

    @abstractmethod
    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the fields of a file under our names."""
