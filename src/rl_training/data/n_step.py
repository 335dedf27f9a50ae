"""Transitions over several steps: what an episode earns on the way, and how far the value at their end is discounted."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class NStep:
    """The first `steps` steps from each row, fewer at the end of its episode, discounted by `gamma`."""

    steps: int = 1
    gamma: float = 0.0

    @classmethod
    def of(cls, kwargs: Any) -> Self:
        """Return the rule of a run; an algorithm without critics takes single steps."""
        return cls(getattr(kwargs, "n_step", 1), getattr(kwargs, "gamma", 0.0))

    @cached_property
    def _powers(self) -> NDArray[np.float64]:
        return np.array([self.gamma**power for power in range(self.steps + 1)])

    def discounts(self, taken: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return gamma^m for m steps that were taken."""
        return self._powers[taken].astype(np.float32)

    def sums(self, rewards: NDArray[Any], ends: NDArray[np.bool_]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the discounted reward of the steps from each row, (..., rows), and how many they are.

        `ends` marks the last row of each episode; the last row of all is one, too.
        """
        values = rewards.astype(np.float64)
        totals, taken = values.copy(), np.ones(values.shape, dtype=np.int64)
        running = np.ones(values.shape, dtype=bool)
        for step in range(1, min(self.steps, values.shape[-1])):
            running = running[..., :-1] & ~ends[..., step - 1 : -1]
            totals[..., :-step] += np.where(running, self._powers[step] * values[..., step:], 0.0)
            taken[..., :-step] += running
        return totals.astype(np.float32), taken

    def steps_taken(self, discounts: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many steps each discount stands for: the inverse of `discounts`."""
        apart = np.abs(np.asarray(discounts)[..., None] - self._powers[1:])
        return np.asarray(apart.argmin(axis=-1) + 1, dtype=np.int64)

    def single_rewards(self, sums: NDArray[Any], taken: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the reward of each row, (rows,), from the sums over the steps that were taken: the inverse of `sums`."""
        rewards, powers = np.asarray(sums, dtype=np.float64).tolist(), self._powers.tolist()
        for row in range(len(rewards) - 2, -1, -1):
            later = range(1, int(taken[row]))
            rewards[row] -= sum(powers[step] * rewards[row + step] for step in later)
        return np.array(rewards)


SINGLE_STEPS = NStep()
