"""NumPy's npz: our own field names, OGBench's (`masks`), NeoRL-2's (`obs`, `action`, ...)."""

from pathlib import Path

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import read_npz
from rl_training.data.reading.reading import KNOWN_NAMES, Reading, reading_of
from rl_training.data.store.directory import NAMES


class NpzReader(Reader):
    """Arrays of one length in an npz file."""

    name = "npz"
    title = "NumPy npz"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file is a zip archive."""
        return candidate.head.startswith(b"PK\x03\x04")

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the arrays that have a name we know."""
        arrays, found = read_npz(path, KNOWN_NAMES, options.max_bytes, text=NAMES)
        names = {field: tuple(arrays.pop(field).reshape(-1).tolist()) for field in NAMES if field in arrays}
        layout = "OGBench npz" if "masks" in arrays else "NeoRL-2 npz" if {"obs", "action"} <= set(arrays) else self.title
        reading = reading_of(arrays, found, str(path), layout)
        reading.observation_names, reading.action_names = (names.get(field) for field in NAMES)
        return reading
