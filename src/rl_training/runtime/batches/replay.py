"""Batches of a replay buffer: fresh transitions only, an exact share of prior ones, or both as one pool."""

import torch
from torch import Tensor

from rl_training import rng
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import ConfigError
from rl_training.runtime.batches.base import Batches, Bits
from rl_training.runtime.batches.inbox import Inbox


class ReplayBatches(Batches):
    """Rows of a replay buffer as of the last `refresh` that was sent; all that changes with the buffer is in the inbox.

    If the buffer holds prior data, `shared` batches have a given number of prior rows each; otherwise prior data and fresh
    transitions are one pool.
    """

    def __init__(self, buffer: ReplayBuffer, seeds: Tensor, batch_size: int, inbox: Inbox, *, shared: bool) -> None:
        super().__init__(buffer.layout, seeds, batch_size)
        self._buffer, self._shared, self._inbox = buffer, shared, inbox
        self._available, self._oldest, self._share = (inbox.device[name] for name in ("available", "oldest", "share"))
        self._positions = torch.arange(batch_size, device=seeds.device)

    def refresh(self, share: int = 0) -> None:
        """Write what the buffer now holds, and the number of prior rows in a batch, into the inbox."""
        if not self._buffer.prior_rows and not self._buffer.available.all():
            raise ConfigError(
                "the replay holds no transition that can be sampled yet: raise learning_starts or buffer_capacity above the "
                "length of an episode (above n_step where the algorithm needs no returns)"
            )
        written = self._inbox.host
        written["available"][:, 0] = self._buffer.available
        written["oldest"][()], written["share"][()] = self._buffer.oldest, share

    def indices(self, bits: Bits, steps: int) -> tuple[Tensor, Tensor | None]:
        """Return storage rows; a member without fresh transitions to sample yet gets prior data only."""
        prior_rows, available = self._buffer.prior_rows, self._available.expand(-1, steps)
        if not prior_rows:
            return self._slots(rng.bounded(bits("batches"), available, 1)), None
        if self._shared:
            prior = rng.bounded(bits("prior_batches"), prior_rows, 1).transpose(0, 1)
            fresh = self._slots(rng.bounded(bits("batches"), available, 1))
            use_prior = (self._positions < self._share) | (self._available == 0)
            found = torch.where(use_prior, prior, fresh)
        else:
            pool = rng.bounded(bits("batches"), available + prior_rows, 1)
            found = torch.where((pool < prior_rows).transpose(0, 1), pool.transpose(0, 1), self._slots(pool - prior_rows))
        found = found.contiguous()
        return found, (found < prior_rows).to(torch.float32)

    def _slots(self, indices: Tensor) -> Tensor:
        """Storage rows (steps, members, batch) for indices (members, steps, batch) counted from the oldest transition."""
        slots = (indices + self._oldest) % self._buffer.capacity + self._buffer.first_slots.unsqueeze(2)
        return slots.transpose(0, 1).contiguous()

    def gather(self, indices: Tensor) -> Tensor:
        """Return the packed rows."""
        return self._buffer.storage.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)
