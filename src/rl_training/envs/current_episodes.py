"""The episodes that members are in: their lengths and returns so far, and the actions that rebuild them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST_REPLAY = 10_000  # most steps of an episode that a resume replays; a longer one is restarted


class CurrentEpisodes:
    """One episode per member, stepped together, and the result of the last complete one."""

    def __init__(self, members: int, action_dim: int) -> None:
        self.numbers = np.zeros(members, dtype=np.int64)  # complete episodes
        self.lengths = np.zeros(members, dtype=np.int64)
        self._totals = np.zeros(members)
        self._last_returns: list[float | None] = [None] * members
        self._last_lengths: list[int | None] = [None] * members
        self._action_dim = action_dim
        self._taken: list[NDArray[np.float32]] = []  # real actions (members, action_dim), the last of all last

    def __len__(self) -> int:
        return len(self.numbers)

    def add(
        self, actions: NDArray[np.float32], rewards: NDArray[np.float64], ended: NDArray[np.bool_], stepped: NDArray[np.bool_]
    ) -> list[int]:
        """Add a step of the members that were `stepped`; return those whose episodes have ended."""
        self._taken.append(actions)
        self.lengths += stepped
        self._totals += rewards
        finished: list[int] = np.flatnonzero(ended).tolist() if ended.any() else []
        for member in finished:
            self._last_returns[member], self._last_lengths[member] = float(self._totals[member]), int(self.lengths[member])
            self.begin_next(member)
        if finished or len(self._taken) > 2 * LONGEST_REPLAY:
            longest = min(int(self.lengths[stepped].max(initial=0)), LONGEST_REPLAY)
            del self._taken[: len(self._taken) - longest]
        return finished

    def begin_next(self, member: int) -> None:
        """Begin a member's next episode."""
        self.numbers[member] += 1
        self.lengths[member], self._totals[member] = 0, 0.0

    def total_reward(self, member: int) -> float:
        """Return the return so far of a member's episode."""
        return float(self._totals[member])

    def too_long(self, member: int) -> bool:
        """Return whether a member's episode is too long to be replayed."""
        return bool(self.lengths[member] > LONGEST_REPLAY)

    def actions(self, member: int) -> NDArray[np.float32]:
        """Return the actions of a member's episode, (steps, action_dim); none if it is too long to be replayed."""
        length = int(self.lengths[member])
        if not length or self.too_long(member):
            return np.empty((0, self._action_dim), dtype=np.float32)
        return np.stack([actions[member] for actions in self._taken[-length:]])

    def metrics(self, member: int) -> dict[str, float]:
        """Return the number of complete episodes of a member, and the return and length of the last."""
        total, length = self._last_returns[member], self._last_lengths[member]
        if total is None or length is None:
            return {}
        return {"data/episodes": int(self.numbers[member]), "data/episode_return": total, "data/episode_length": length}

    def state(self) -> list[dict[str, Any]]:
        """Return plain values."""
        columns = {
            "number": self.numbers.tolist(),
            "length": self.lengths.tolist(),
            "total_reward": self._totals.tolist(),
            "last_return": self._last_returns,
            "last_length": self._last_lengths,
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def restore(self, state: Sequence[Mapping[str, Any]], actions: Sequence[NDArray[np.float32]]) -> None:
        """Restore what `state` and `actions` of each member returned; KeyError, TypeError or ValueError if it is wrong."""
        for member, (values, own) in enumerate(zip(state, actions, strict=True)):
            if len(own) not in (0, values["length"]):  # none of an episode that is not replayed
                raise ValueError(f"{len(own)} actions, and the episode of member {member} has {values['length']}")
            self.numbers[member], self.lengths[member] = values["number"], values["length"]
            self._totals[member] = values["total_reward"]
            self._last_returns[member], self._last_lengths[member] = values["last_return"], values["last_length"]
        taken = np.zeros((max(map(len, actions), default=0), len(self), self._action_dim), dtype=np.float32)
        for member, own in enumerate(actions):
            taken[len(taken) - len(own) :, member] = own
        self._taken = list(taken)
