"""Our own directory format, mapped instead of read."""

from dataclasses import dataclass
from pathlib import Path

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.readers.base import Candidate, Reader
from rl_training.data.reading import Reading, ReadOptions
from rl_training.data.store import is_store, open_store


@dataclass
class MappedReading(Reading):
    """A reading whose dataset stays on disk."""

    mapped: TransitionDataset | None = None

    def dataset(self) -> TransitionDataset:
        """Return the mapped dataset, which was checked when it was written and verified when it was opened."""
        return self.mapped or super().dataset()


class StoreReader(Reader):
    """A directory with `manifest.json` and `rows.npy`."""

    name = "rl_training"
    title = "rl_training dataset directory"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether both files are there."""
        return candidate.path.is_dir() and is_store(candidate.path)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Map the rows; they take no memory of their own."""
        del options
        data = open_store(path)
        notes = ["ends: `terminals` are true ends, `timeouts` time limits"]
        return MappedReading(str(path), self.title, data.fields(), notes, data.action_low, data.action_high, mapped=data)
