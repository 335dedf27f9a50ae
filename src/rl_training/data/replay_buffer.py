"""Online experience: a ring of packed transitions per member, on the training device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.data.batch import Batch
from rl_training.data.packing import RowLayout
from rl_training.errors import ConfigError


class ReplayBuffer:
    """The last `capacity` transitions of every member; batches are a function of (seed, step) and of what was added.

    Members add in step, one transition each. Transition number n lies in slot n modulo the capacity.
    """

    def __init__(
        self,
        capacity: int,
        observation_dim: int,
        action_dim: int,
        *,
        members: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        if capacity < 1 or members < 1:
            raise ConfigError(f"capacity {capacity} and members {members} of a replay buffer must be at least 1")
        self.capacity, self.members = capacity, members
        self.layout = RowLayout(
            (
                ("observations", observation_dim),
                ("actions", action_dim),
                ("rewards", 1),
                ("next_observations", observation_dim),
                ("terminals", 1),
                ("timeouts", 1),
            )
        )
        self.added = 0  # transitions ever added, per member
        self._rows = torch.zeros(members, capacity, self.layout.width, device=device)
        self._flat = self._rows.view(members * capacity, self.layout.width)
        self._first_slots = torch.arange(members, device=device).unsqueeze(1) * capacity

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transition: Mapping[str, NDArray[Any]]) -> None:
        """Add one transition per member: fields (members, width), or (members,) for rewards, terminals and timeouts.

        A row that is a true end and a time limit at once is a true end.
        """
        rows = self.layout.pack(transition)
        if rows.shape != (self.members, self.layout.width):
            raise ConfigError(
                f"a transition of shape {rows.shape} was added; ({self.members}, {self.layout.width}) is needed"
            )
        rows[:, -1] *= 1.0 - rows[:, -2]
        self._rows[:, self.added % self.capacity] = torch.from_numpy(rows).to(self._rows.device)
        self.added += 1

    def batch(self, slots: Tensor) -> Batch:
        """Return the transitions in slots (members, batch): one gather, then views."""
        places = (slots + self._first_slots).reshape(-1)
        return self.layout.batch(self._flat.index_select(0, places).view(*slots.shape, -1))

    def sample(self, batch_size: int, *, seed: int | Sequence[int] = 0, step: int = 0) -> Batch:
        """Return a uniform batch of what is held: (batch, ...) for one seed, (members, batch, ...) for a seed per member."""
        if not len(self):
            raise ConfigError("the replay buffer is empty: add transitions first")
        seeds = [seed] if isinstance(seed, int) else list(seed)
        if len(seeds) != self.members:
            raise ConfigError(f"{len(seeds)} seeds were given for a replay buffer of {self.members} members")
        slots = rng.integers(seeds, "batches", step, (batch_size,), high=len(self), device=self._rows.device)
        batch = self.batch(slots)
        return batch.without_members() if isinstance(seed, int) else batch

    def rows(self, first: int, stop: int) -> NDArray[np.float32]:
        """Return transitions number first to stop, (members, count, width), on the host; they must still be held."""
        slots = torch.arange(first, stop, device=self._rows.device) % self.capacity
        return self._rows[:, slots].cpu().numpy()

    def restore(self, rows: NDArray[np.float32], added: int) -> None:
        """Take back the last transitions of `added`, (members, count, width); more than fit are left out."""
        rows = rows[:, max(0, rows.shape[1] - self.capacity) :]
        slots = torch.arange(added - rows.shape[1], added, device=self._rows.device) % self.capacity
        self._rows[:, slots] = torch.from_numpy(rows).to(self._rows.device)
        self.added = added
