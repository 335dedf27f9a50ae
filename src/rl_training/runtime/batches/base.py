"""The interface of all batches, the same for eager and compiled gradient steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from rl_training.data.batch import Batch
from rl_training.data.packing import RowLayout

Bits = Callable[[str], Tensor]
"""64 random bits for each row of the batches of some steps, (members, steps, batch), from a named stream."""


class Batches(ABC):
    """Packed rows for gradient steps; which rows a step gets depends on its random bits and on the stored data alone.

    `indices`, `gather` and `batch` are plain tensor operations on storage that does not move, so that they run eagerly, in a
    compiled function and in a CUDA graph alike. Everything that may fail or block happens in `prepare` and `load`.
    """

    def __init__(self, layout: RowLayout, seeds: Tensor, batch_size: int) -> None:
        self.layout, self.seeds, self.batch_size = layout, seeds, batch_size

    @property
    def resident(self) -> bool:
        """Whether all rows are stored on the training device, so that a long chunk needs no more memory than a short one."""
        return True

    def prepare(self, first_step: int, count: int) -> None:
        """Fetch the rows of the next steps; errors outside the learner are raised here."""
        del first_step, count

    def load(self, first_step: int, count: int) -> None:
        """Load the rows that `gather` reads for the next steps."""
        del first_step, count

    def use_fixed_buffer(self, max_steps: int) -> None:
        """Make `gather` read from fixed memory from now on, as CUDA graphs need, for up to `max_steps` steps at a time."""
        del max_steps

    @abstractmethod
    def indices(self, bits: Bits, steps: int) -> tuple[Tensor, Tensor | None]:
        """Return the storage rows of each step, and flags for prior data where both kinds are mixed.

        Indices are (steps, members, batch), or (steps,) where the rows of each step were fetched beforehand.
        """

    @abstractmethod
    def gather(self, indices: Tensor) -> Tensor:
        """Return the packed rows at indices of some steps, (steps, members, batch, width)."""

    def batch(self, rows: Tensor, prior: Tensor | None) -> Batch:
        """Return packed rows (members, batch, width) as a batch, with the flags for prior data."""
        batch = self.layout.batch(rows)
        return batch if prior is None else replace(batch, prior=prior)

    def close(self) -> None:  # noqa: B027 - rows in memory need no closing
        """Release threads and files."""
