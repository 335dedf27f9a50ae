"""What every source of batches is: one mechanism for eager and compiled gradient steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from rl_training.data.batch import Batch
from rl_training.data.packing import RowLayout

Bits = Callable[[str], Tensor]
"""64 random bits for each row of the batches of some steps, (members, steps, batch), from a named stream."""


class Batches(ABC):
    """Packed rows for gradient steps; which rows a step gets depends on its random bits and on what the source holds.

    `indices`, `gather` and `batch` are plain tensor operations on storage that stays in place, so that they run eagerly, in a
    compiled function and in a CUDA graph alike. Whatever may fail or has to wait happens in `prepare` and `load`.
    """

    def __init__(self, layout: RowLayout, seeds: Tensor, batch_size: int) -> None:
        self.layout, self.seeds, self.batch_size = layout, seeds, batch_size

    @property
    def resident(self) -> bool:
        """Whether all rows lie on the training device, so that a long chunk takes no more room than a short one."""
        return True

    def prepare(self, first_step: int, count: int) -> None:
        """Fetch what the next steps need; everything that can fail outside the learner fails here."""
        del first_step, count

    def load(self, first_step: int, count: int) -> None:
        """Put in place what `gather` reads for the next steps."""
        del first_step, count

    def keep_in_place(self, most_steps: int) -> None:
        """Let `gather` read from the same memory from now on, for up to so many steps at a time: a CUDA graph will."""
        del most_steps

    @abstractmethod
    def indices(self, bits: Bits, steps: int) -> tuple[Tensor, Tensor | None]:
        """Return the rows of storage for each step, and which of them are prior data where both kinds are mixed.

        Indices are (steps, members, batch), or (steps,) where rows were fetched for their steps beforehand.
        """

    @abstractmethod
    def gather(self, indices: Tensor) -> Tensor:
        """Return the packed rows at indices of some steps, (steps, members, batch, width)."""

    def batch(self, rows: Tensor, prior: Tensor | None) -> Batch:
        """Return packed rows (members, batch, width) as a batch, with which of them are prior."""
        batch = self.layout.batch(rows)
        return batch if prior is None else replace(batch, prior=prior)

    def close(self) -> None:  # noqa: B027 - rows in memory need no care
        """Let go of whatever is held."""
