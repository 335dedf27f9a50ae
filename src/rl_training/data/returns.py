"""Monte-Carlo returns of logged episodes, and what discounted returns their rewards allow."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_training.data.row_blocks import blocks
from rl_training.errors import ConfigError, DatasetError

Tail = Literal["last_penalty", "last_reward", "zero", "none"]


@dataclass(frozen=True)
class RewardRange:
    """The lowest and the highest reward of rows after which an episode goes on, and of its true ends; None without such rows.

    An episode that truly ends after T steps with a reward of at most E, and of at most G before, is worth at most
    G (1 - gamma^T) / (1 - gamma) + gamma^T E. That lies between E and G / (1 - gamma), which one earns who never ends.
    """

    going: tuple[float, float] | None
    ending: tuple[float, float] | None

    @classmethod
    def of(cls, rewards: NDArray[np.floating], terminals: NDArray[np.bool_]) -> "RewardRange":
        """Return the rewards that rows have."""
        kinds = [rewards[~terminals], rewards[terminals]]
        return cls(*((float(own.min()), float(own.max())) if len(own) else None for own in kinds))

    def joined(self, other: "RewardRange") -> "RewardRange":
        """Return the rewards of both."""
        return RewardRange(_hull(self.going, other.going), _hull(self.ending, other.ending))

    def values(self, gamma: float) -> tuple[float, float]:
        """Return the lowest and the highest discounted return that these rewards allow."""
        found = [*(reward / (1.0 - gamma) for reward in self.going or ()), *(self.ending or ())]
        return min(found), max(found)


def _hull(*ranges: tuple[float, float] | None) -> tuple[float, float] | None:
    """The smallest range around those that are known."""
    known = [number for one in ranges for number in one or ()]
    return (min(known), max(known)) if known else None


def compute_returns_to_go(
    rewards: ArrayLike,
    terminals: ArrayLike,
    timeouts: ArrayLike,
    gamma: float,
    tail: Tail = "last_penalty",
    failure_reward: float | None = None,
) -> NDArray[np.float32]:
    """Return the discounted return from each row to the end of its episode; no sum crosses an episode boundary.

    A true end closes the sum with 0. A time limit, or the end of the data, closes it by `tail`:

    * `last_penalty`: with r_T / (1 - gamma), as if the last reward repeated forever, where that is negative, and with 0
      otherwise. A truncated sum of negative rewards would overestimate the return, and so would a reward that nobody saw
      repeat, such as that of a goal reached at the time limit;
    * `last_reward`: with r_T / (1 - gamma), whatever its sign;
    * `zero`: with 0, a lower bound only if no reward is negative;
    * `none`: not at all; every row of such an episode is -inf, which is no floor.

    With sparse rewards the truncated sum of a failed episode says little: an episode whose rewards all equal
    `failure_reward` gets r / (1 - gamma) on every row, however it ended.
    """
    if tail not in get_args(Tail):
        raise ConfigError(f"tail = {tail!r} is not legal: use one of {', '.join(get_args(Tail))}")
    if not 0.0 <= gamma < 1.0:
        raise ConfigError(f"gamma = {gamma!r} is not legal: must be a number >= 0 and < 1")
    reward, terminal, timeout = np.asarray(rewards), np.asarray(terminals, dtype=bool), np.asarray(timeouts, dtype=bool)
    if not len(reward) == len(terminal) == len(timeout):
        raise DatasetError(
            f"rewards, terminals and timeouts differ in length: {len(reward)}, {len(terminal)}, {len(timeout)}"
        )
    result = np.empty(len(reward), dtype=np.float32)
    total, last = 0.0, len(reward) - 1
    for part in reversed(list(blocks(len(reward)))):  # Python floats are faster than array elements, but take memory
        values = reward[part].astype(np.float64).tolist()
        ends = zip(terminal[part].tolist(), timeout[part].tolist(), strict=True)
        rows = zip(range(part.start, part.stop), values, ends, strict=True)
        for row, value, (ended, cut) in reversed(list(rows)):
            if ended:
                total = 0.0
            elif cut or row == last:
                forever = value / (1.0 - gamma)
                total = {"last_penalty": min(forever, 0.0), "last_reward": forever, "zero": 0.0, "none": -np.inf}[tail]
            total = value + gamma * total if np.isfinite(total) else total
            result[row] = total
    if failure_reward is not None:
        _mark_failures(result, reward.astype(np.float64), terminal | timeout, gamma, failure_reward)
    return result


def _mark_failures(
    returns: NDArray[np.float32], rewards: NDArray[np.float64], ends: NDArray[np.bool_], gamma: float, failure: float
) -> None:
    """Overwrite the returns of episodes whose rewards all equal `failure`."""
    starts = np.flatnonzero(np.concatenate(([True], ends[:-1])))
    for start, stop in zip(starts, [*starts[1:], len(rewards)], strict=True):
        if np.isclose(rewards[start:stop], failure, rtol=1e-6, atol=1e-9).all():
            returns[start:stop] = failure / (1.0 - gamma)


def rewards_of_steps_after(
    rewards: NDArray[np.generic], left_out: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Return, for each row, the reward of the step after it if that is left out and finite, else 0; None if all are 0."""
    if rewards.size != len(left_out) or rewards.dtype.kind not in "fiub":
        return None  # refused with the other arrays, by what is wrong with them
    known = rewards.reshape(-1).astype(np.float64)
    lost = np.where(left_out & np.isfinite(known), known, 0.0)
    after = np.where(ends, 0.0, np.append(lost[1:], 0.0))
    return after if after.any() else None
