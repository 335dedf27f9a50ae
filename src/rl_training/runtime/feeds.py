"""Where compiled steps get their rows: operations on tensors that stay in place, so that a graph can replay them."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rl_training import rng
from rl_training.data.batch import Batch
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.runtime.sources import BatchSource, DatasetSource


class RowFeed(ABC):
    """Packed rows of the next gradient steps, a function of their numbers and of what `load` has put in place."""

    @abstractmethod
    def load(self, first_step: int, count: int) -> None:
        """Put in place what the rows of steps depend on."""

    @abstractmethod
    def places(self, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows of storage for each step, (steps, members, batch), and which are prior data; this part is compiled."""

    @abstractmethod
    def gather(self, places: Tensor) -> Tensor:
        """Return the packed rows at places, (steps, members, batch, width)."""

    @abstractmethod
    def batch(self, rows: Tensor, prior: Tensor | None) -> Batch:
        """Return rows (members, batch, width) as a batch."""


class DatasetFeed(RowFeed):
    """Rows of a dataset on the training device."""

    def __init__(self, source: DatasetSource) -> None:
        self._source = source

    def load(self, first_step: int, count: int) -> None:
        """Nothing changes: the rows of a step depend on its number alone."""

    def places(self, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the rows that `DatasetSource` would take."""
        source = self._source
        indices = rng.integers(source.seeds, "batches", steps, (source.batch_size,), high=source.rows_available)
        return indices.transpose(0, 1).contiguous(), None

    def gather(self, places: Tensor) -> Tensor:
        """Return the packed rows at places."""
        return self._source.rows.index_select(0, places.reshape(-1)).view(*places.shape, -1)

    def batch(self, rows: Tensor, prior: Tensor | None) -> Batch:
        """Return rows as a batch."""
        del prior
        return self._source.as_batch(rows)


class SourceFeed(RowFeed):
    """Rows that any other source brings for a chunk: copied into a fixed place before the steps that use them."""

    def __init__(self, source: BatchSource, most_steps: int) -> None:
        self._source = source
        shape = (most_steps, len(source.seeds), source.batch_size, source.layout.width)
        self._rows = torch.zeros(shape, device=source.seeds.device)
        self._first, self._chunk = 0, self._rows[:0].transpose(0, 1)

    def take(self, first_step: int, rows: Tensor) -> None:
        """Hold the rows of a chunk of steps, (members, steps, batch, width)."""
        self._first, self._chunk = first_step, rows

    def load(self, first_step: int, count: int) -> None:
        """Copy the rows of the next steps of the chunk."""
        start = first_step - self._first
        self._rows[:count].copy_(self._chunk[:, start : start + count].transpose(0, 1))

    def places(self, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the number of each step in the fixed place."""
        return torch.arange(len(steps), device=steps.device), None

    def gather(self, places: Tensor) -> Tensor:
        """Return the rows that were loaded."""
        return self._rows[: len(places)]

    def batch(self, rows: Tensor, prior: Tensor | None) -> Batch:
        """Return rows as a batch."""
        del prior
        return self._source.as_batch(rows)


class ReplayFeed(RowFeed):
    """Rows of a replay buffer, fresh alone or mixed with prior ones; what grows with the buffer lies in small tensors."""

    def __init__(self, buffer: ReplayBuffer, seeds: Tensor, batch_size: int, *, shared: bool) -> None:
        self._buffer, self._shape, self._shared = buffer, (batch_size,), shared
        self._available = torch.zeros(buffer.members, 1, dtype=torch.int64, device=seeds.device)
        self._oldest = torch.zeros((), dtype=torch.int64, device=seeds.device)
        self._share = torch.zeros((), dtype=torch.int64, device=seeds.device)
        self._number = torch.arange(batch_size, device=seeds.device)
        self._ahead = rng.DrawnAhead(seeds)

    def look(self, share: int) -> None:
        """Take note of what the buffer holds now, and of how many rows of a batch are to be prior."""
        self._available.copy_(torch.from_numpy(self._buffer.available).unsqueeze(1))
        self._oldest.fill_(self._buffer.oldest)
        self._share.fill_(share)

    def load(self, first_step: int, count: int) -> None:
        """Nothing more than `look` took."""

    def places(self, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the rows that the online engine would take one step at a time."""
        buffer = self._buffer
        high = self._available.expand(-1, len(steps))
        if not buffer.prior_rows:
            fresh = self._integers("batches", steps, high)
            return self._slots(fresh), None
        if not self._shared:
            pool = self._integers("batches", steps, high + buffer.prior_rows).transpose(0, 1)
            slots = self._slots((pool - buffer.prior_rows).transpose(0, 1))
            places = torch.where(pool < buffer.prior_rows, pool, slots)
        else:
            prior = self._integers("prior_batches", steps, buffer.prior_rows).transpose(0, 1)
            slots = self._slots(self._integers("batches", steps, high))
            use_prior = (self._number < self._share) | (self._available == 0)
            places = torch.where(use_prior, prior, slots)
        places = places.contiguous()
        return places, (places < buffer.prior_rows).to(torch.float32)

    def _integers(self, stream: str, steps: Tensor, high: Tensor | int) -> Tensor:
        return rng.bounded(self._ahead((rng.bits, stream, self._shape), steps), high, len(self._shape))

    def _slots(self, indices: Tensor) -> Tensor:
        """Rows of storage (steps, members, batch) for indices (members, steps, batch) from the oldest transition held."""
        places = (indices + self._oldest) % self._buffer.capacity + self._buffer.first_slots.unsqueeze(2)
        return places.transpose(0, 1).contiguous()

    def gather(self, places: Tensor) -> Tensor:
        """Return the packed rows at places."""
        return self._buffer.storage.index_select(0, places.reshape(-1)).view(*places.shape, -1)

    def batch(self, rows: Tensor, prior: Tensor | None) -> Batch:
        """Return rows as a batch that says which of them are prior."""
        return self._buffer.batch(rows, prior)
