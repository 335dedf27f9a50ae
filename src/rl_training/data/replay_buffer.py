"""Online experience: a ring of packed transitions per member, on the training device, together with prior data."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.data.batch import Batch
from rl_training.data.n_step import SINGLE_STEPS, NStep
from rl_training.data.packing import RowLayout, row_layout
from rl_training.errors import ConfigError, StorageError

Returns = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[np.float32]]
"""Returns-to-go of whole episodes from (rewards, terminals, timeouts)."""
PriorRows = Callable[[RowLayout], NDArray[np.float32]]
"""Rows of a dataset, packed in the layout of the buffer."""


class ReplayBuffer:
    """The last `capacity` transitions of every member; batches depend only on (seed, step) and on what was added.

    Members add in lockstep, one transition each. Transition number n is in slot n modulo the capacity. With `returns` a
    transition may be sampled only once its episode has ended and its return is known; with `n_step` once that many steps
    have been taken or its episode has ended; otherwise immediately. With `next_actions` they are part of a row: those of new
    transitions are NaN, which is unknown. `prior` rows of a dataset are shared by all members and kept in the same storage,
    so that a mixed batch is one gather.
    """

    def __init__(
        self,
        capacity: int,
        observation_dim: int,
        action_dim: int,
        *,
        members: int = 1,
        device: torch.device | str = "cpu",
        prior: PriorRows | None = None,
        returns: Returns | None = None,
        next_actions: bool = False,
        n_step: NStep = SINGLE_STEPS,
    ) -> None:
        if capacity < 1 or members < 1:
            raise ConfigError(f"capacity {capacity} and members {members} of a replay buffer must be at least 1")
        self.capacity, self.members, self.returns, self.n_step = capacity, members, returns, n_step
        wanted = {"next_actions": next_actions, "discounts": n_step.steps > 1, "returns_to_go": returns is not None}
        self.layout = row_layout(observation_dim, action_dim, [name for name in wanted if wanted[name]], timeouts=True)
        rows = None if prior is None else prior(self.layout)
        self.prior_rows = 0 if rows is None else len(rows)
        self.added = 0  # transitions ever added, per member
        self.first = 0  # number of the first that was kept; those before it were forgotten
        self.ready = np.zeros(members, dtype=np.int64)  # how many of them, from the first on, may be sampled
        try:
            self.storage = torch.zeros(self.prior_rows + members * capacity, self.layout.width, device=device)
        except RuntimeError as error:  # raised by the host's allocator too
            needed = (self.prior_rows + members * capacity) * self.layout.width * 4
            raise StorageError(f"the replay buffer needs {needed:,} bytes; lower buffer_capacity ({error})") from error
        if rows is not None:
            self.storage[: self.prior_rows] = torch.from_numpy(rows)
        self._ring = self.storage[self.prior_rows :].view(members, capacity, self.layout.width)
        self._first_slots = self.prior_rows + np.arange(members) * capacity
        self.first_slots = torch.from_numpy(self._first_slots).to(device).unsqueeze(1)
        unknown = {"next_actions": np.full((members, action_dim), np.nan), "returns_to_go": np.full(members, -np.inf)}
        self._unknown = {**unknown, "discounts": np.full(members, n_step.gamma)}  # of a transition that has just been taken

    def __len__(self) -> int:
        return min(self.added - self.first, self.capacity)

    @property
    def oldest(self) -> int:
        """Number of the oldest transition that is held."""
        return self.added - len(self)

    @property
    def available(self) -> NDArray[np.int64]:
        """How many transitions of each member may be sampled now, (members,)."""
        return np.maximum(self.ready - self.oldest, 0)

    def add(self, transition: Mapping[str, NDArray[Any]], idle: Collection[int] = ()) -> None:
        """Add one transition per member: fields (members, width), or (members,) for rewards, terminals and timeouts.

        A row that is both a true end and a time limit is a true end. `idle` members no longer train: their rows only fill
        the slot and wait for no return.
        """
        rows = self.pack(transition)
        if rows.shape != (self.members, self.layout.width):
            raise ConfigError(
                f"a transition of shape {rows.shape} was added; ({self.members}, {self.layout.width}) is needed"
            )
        self._ring[:, self.added % self.capacity] = torch.from_numpy(rows).to(self._ring.device)
        self.count(transition, idle)

    def pack(self, transition: Mapping[str, NDArray[Any]], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the rows of one transition per member, (members, width), in `out` if it is given."""
        values = dict(transition)
        values["timeouts"] = np.asarray(transition["timeouts"], dtype=bool) & ~np.asarray(transition["terminals"], dtype=bool)
        return self.layout.pack({**values, **self._unknown}, out)

    @property
    def next_slots(self) -> NDArray[np.int64]:
        """The row of the storage that the next transition of each member belongs to, (members,)."""
        return self._first_slots + self.added % self.capacity

    def count(self, transition: Mapping[str, NDArray[Any]], idle: Collection[int] = ()) -> None:
        """Count one more transition per member, which is stored in `next_slots`; where `waits`, it must be so already."""
        self.added += 1
        if not self.waits:
            self.ready[:] = self.added
            return
        ends = np.asarray(transition["terminals"], dtype=bool) | np.asarray(transition["timeouts"], dtype=bool)
        for member in range(self.members):
            if member in idle:
                self.ready[member] = self.added
            elif ends[member]:
                self._settle([member], self.added)
        if self.returns is None:
            seen = self.added - self.n_step.steps + 1  # transitions whose steps have all been taken
            if late := np.flatnonzero(self.ready < seen).tolist():
                self._settle(late, seen)

    @property
    def waits(self) -> bool:
        """Whether a transition is completed by later ones."""
        return self.returns is not None or self.n_step.steps > 1

    def _settle(self, members: Sequence[int], stop: int) -> None:
        """Complete the transitions before number `stop` of members that wait for equally many; they may be sampled now."""
        first = max(int(self.ready[members[0]]), self.oldest)
        self.ready[members] = stop
        if first >= stop:
            return
        slots = torch.arange(first, self.added, device=self._ring.device) % self.capacity
        owners = torch.tensor(members, device=self._ring.device).unsqueeze(1)
        rows = self._ring[owners, slots].cpu()
        columns = {name: values.numpy() for name, values in self.layout.columns(rows).items()}
        if self.returns is not None:
            for own in range(len(members)):
                flags = columns["terminals"][own], columns["timeouts"][own]
                columns["returns_to_go"][own] = self.returns(columns["rewards"][own], *flags)
        if self.n_step.steps > 1:
            self._span_steps(columns)
        self._ring[owners, slots[: stop - first]] = rows[:, : stop - first].to(self._ring.device)

    def _span_steps(self, columns: dict[str, NDArray[Any]]) -> None:
        """Make transitions (members, rows, ...) in time order span several steps, as far as the rows go."""
        ends = (columns["terminals"] + columns["timeouts"]) > 0.0
        sums, taken = self.n_step.sums(columns["rewards"], ends)
        owners, final = np.arange(len(sums))[:, None], np.arange(sums.shape[1]) + taken - 1
        for name in ("next_observations", "terminals"):
            columns[name][:] = columns[name][owners, final]
        columns["rewards"][:], columns["discounts"][:] = sums, self.n_step.discounts(taken)

    def cut(self, member: int) -> None:
        """End a member's episode at its last transition, as a time limit would: what follows is a new episode."""
        if self.added:
            last = self._ring[member, (self.added - 1) % self.capacity]
            columns = self.layout.columns(last)
            columns["timeouts"].copy_(1.0 - columns["terminals"])
            if self.waits:
                self._settle([member], self.added)

    def storage_rows(self, indices: Tensor) -> Tensor:
        """Return the rows of storage for indices (members, count), counted from the oldest transition that is held."""
        return (indices + self.oldest) % self.capacity + self.first_slots

    def gather(self, rows: Tensor) -> Batch:
        """Return the transitions at storage rows (members, batch): prior rows come first, then each member's ring."""
        return self.layout.batch(self.storage.index_select(0, rows.reshape(-1)).view(*rows.shape, -1))

    def sample(self, batch_size: int, *, seed: int | Sequence[int] = 0, step: int = 0) -> Batch:
        """Return a uniform batch of new transitions: (batch, ...) for one seed, (members, batch, ...) for one per member."""
        if not self.available.all():
            raise ConfigError("the replay buffer has nothing to sample yet: add transitions first")
        seeds = [seed] if isinstance(seed, int) else list(seed)
        if len(seeds) != self.members:
            raise ConfigError(f"{len(seeds)} seeds were given for a replay buffer of {self.members} members")
        high = torch.from_numpy(self.available).to(self._ring.device)
        indices = rng.integers(seeds, "batches", step, (batch_size,), high=high, device=self._ring.device)
        batch = self.gather(self.storage_rows(indices))
        return batch.without_members() if isinstance(seed, int) else batch

    def rows(self, first: int, stop: int) -> NDArray[np.float32]:
        """Return transitions number first to stop, (members, count, width), on the host; they must still be held."""
        slots = torch.arange(first, stop, device=self._ring.device) % self.capacity
        return self._ring[:, slots].cpu().numpy()

    def begin_at(self, number: int) -> None:
        """Hold nothing, and count on from a transition as if those before it had been forgotten."""
        self.added = self.first = number
        self.ready[:] = number

    def restore(self, rows: NDArray[np.float32], added: int, ready: Sequence[int] | None = None, first: int = 0) -> None:
        """Restore the last of `added` transitions, (members, count, width); those beyond the capacity are dropped.

        `first` is the number of the first that was kept.
        """
        rows = rows[:, max(0, rows.shape[1] - self.capacity) :]
        slots = torch.arange(added - rows.shape[1], added, device=self._ring.device) % self.capacity
        self._ring[:, slots] = torch.from_numpy(rows).to(self._ring.device)
        self.added, self.first = added, first
        self.ready[:] = added if ready is None else ready
