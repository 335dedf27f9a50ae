"""NumPy's npz: our own field names, OGBench's (`masks`), NeoRL-2's (`obs`, `action`, ...)."""

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import Allowance
from rl_training.data.reading.reading import KNOWN_NAMES, Arrays, Reading, bytes_held, copies_held, reading_of
from rl_training.data.store.directory import NAMES
from rl_training.errors import DatasetError

_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class NpzReader(Reader):
    """Arrays of one length in an npz file."""

    name = "npz"
    title = "NumPy npz"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file is a zip archive."""
        return candidate.head.startswith(b"PK\x03\x04")

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the arrays that have a name we know."""
        arrays, found = _read_npz(path, options)
        names = {field: tuple(arrays.pop(field).reshape(-1).tolist()) for field in NAMES if field in arrays}
        layout = "OGBench npz" if "masks" in arrays else "NeoRL-2 npz" if {"obs", "action"} <= set(arrays) else self.title
        reading = reading_of(arrays, found, str(path), layout)
        reading.observation_names, reading.action_names = (names.get(field) for field in NAMES)
        return reading


def _read_npz(path: Path, options: ReadOptions) -> tuple[Arrays, list[str]]:
    """Return the arrays of a known name and the names of all; headers are checked against the stored sizes first."""
    source, allowance = str(path), Allowance(str(path), options.max_bytes)
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        chosen = {name: info for name, info in entries.items() if name in (*KNOWN_NAMES, *NAMES)}
        if len(entries) != len(archive.infolist()):
            raise DatasetError(f"{source}: holds two arrays with the same name")
        if packed := [name for name, info in chosen.items() if info.compress_type not in _PACKED]:
            raise DatasetError(f"{source}: `{packed[0]}` is packed in an unknown way; save it with numpy.savez")
        stored = sum(info.compress_size for info in chosen.values())
        allowance.check(sum(info.file_size for info in chosen.values()), stored)
        needed = 0
        for name, info in chosen.items():
            with archive.open(info) as stream:
                needed += _checked_header(stream, info.file_size, f"{source}: `{name}`", "U" if name in NAMES else "fiub")
        allowance.check(copies_held(chosen, options) * needed)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in chosen}, list(entries)


def _checked_header(stream: IO[bytes], size: int, where: str, kinds: str) -> int:
    """The bytes that an array takes in memory; one whose header does not match its bytes, or declares objects, is refused."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise DatasetError(
            f"{where} has dtype object, so it is a pickle, which may run code when opened; export it as npz, CSV or Parquet"
        )
    if dtype.kind not in kinds:
        raise DatasetError(f"{where} has dtype {dtype}; {'text is' if kinds == 'U' else 'numbers are'} needed")
    if not dtype.itemsize or math.prod(shape) * dtype.itemsize != size - stream.tell():
        raise DatasetError(f"{where} claims the shape {shape}, which does not match the stored bytes")
    return bytes_held(shape, dtype)
