"""Our own directory format, mapped instead of read."""

from dataclasses import dataclass, replace
from pathlib import Path

from rl_training.config.blocks import ReadOptions
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.bounds import requested_bounds
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.notes import Note, Usual
from rl_training.data.reading.reading import Reading
from rl_training.data.store.directory import is_store, open_store


@dataclass
class MappedReading(Reading):
    """A reading whose dataset stays on disk."""

    mapped: TransitionDataset | None = None

    def settled(self, options: ReadOptions) -> Reading:
        """Return the reading still mapped, with other bounds if set; a fix that changes rows loads them all."""
        if self.mapped is None or options.changes_rows:
            check_size(self.source, 2 * sum(array.nbytes for array in self.arrays.values()), options.max_bytes)
            return super().settled(options)
        bounds = requested_bounds(options, self.mapped.action_dim, self.source)
        if bounds is None:
            return self
        low, high = bounds
        return replace(self, action_low=low, action_high=high, mapped=self.mapped.with_bounds(low, high))

    def dataset(self) -> TransitionDataset:
        """Return the mapped dataset, which was checked when it was written and verified when it was opened."""
        return self.mapped or super().dataset()


class StoreReader(Reader):
    """A directory with `manifest.json` and `rows.npy`."""

    name = "rl_training"
    title = "rl_training dataset directory"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether both files exist."""
        return candidate.path.is_dir() and is_store(candidate.path)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Map the rows; they take no memory of their own."""
        del options
        data = open_store(path)
        notes: list[Note] = [Usual("ends: `terminals` are true ends, `timeouts` time limits")]
        return MappedReading(
            *(str(path), self.title, data.fields(), notes, data.action_low, data.action_high),
            ends_known=True,
            observation_names=data.observation_names,
            action_names=data.action_names,
            divided=True,
            mapped=data,
        )
