"""Observation and reward transforms as data: fitted once, stored with the checkpoint, applied everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config.blocks import RewardConfig
from rl_training.data.row_blocks import Rows, blocks, column_moments, column_range
from rl_training.data.row_view import RowView

OBSERVATION_LIMIT = 10.0  # standard deviations at which a normalised observation is bounded
RETURN_RANGE = 1000.0  # `reward.normalize: true`: the returns in the data span this much
_SAMPLE = 50_000  # rows from which the usual range of a column is estimated
_FAR = 10.0  # a value this many usual ranges outside the usual range does not count in mean and deviation
_NORMAL_90 = 3.29  # standard deviations between the 5 % and the 95 % quantile of a normal distribution
_RANGE = "transforms/observation_range"  # (2, observation_dim)
_CONSTANT = 4 * np.finfo(np.float32).eps  # a column whose relative range is smaller never changes


Ends = tuple[NDArray[np.float32], NDArray[np.float32]]
"""The smallest and the largest value of each column."""


@dataclass(frozen=True, eq=False)
class Transforms:
    """The map from raw observations and rewards to those a learner sees, and the range of the data that it was fitted on."""

    observation_mean: NDArray[np.float32]  # (observation_dim,)
    observation_std: NDArray[np.float32]  # inf for a column that never changes: it becomes 0
    observation_limit: float = np.inf  # largest absolute value of a transformed observation
    reward_scale: float = 1.0
    reward_shift: float = 0.0
    reward_clip: tuple[float, float] = field(default=(-np.inf, np.inf))
    observation_range: Ends | None = None  # of the rows; None without data, and in checkpoints of earlier versions

    @classmethod
    def identity(cls, observation_dim: int) -> "Transforms":
        """Return transforms that change nothing."""
        return cls(np.zeros(observation_dim, dtype=np.float32), np.ones(observation_dim, dtype=np.float32))

    @classmethod
    def unfitted(cls, observation_dim: int, reward: RewardConfig) -> "Transforms":
        """Return transforms that need no data: observations unchanged, rewards scaled, shifted and clipped."""
        return replace(
            cls.identity(observation_dim),
            reward_scale=reward.scale,
            reward_shift=reward.shift,
            reward_clip=reward.clip or (-np.inf, np.inf),
        )

    @classmethod
    def fit(cls, view: RowView, *, normalize_observations: bool, reward: RewardConfig) -> "Transforms":
        """Return the transforms fitted on rows of a dataset."""
        seen = view.column("observations")
        low, high = column_range(seen)
        ends = (np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32))
        transforms = replace(cls.unfitted(view.dataset.observation_dim, reward), observation_range=ends)
        if reward.normalize is True:
            transforms = replace(transforms, reward_scale=reward.scale * return_range_scale(view))
        elif reward.is_automatic:
            transforms = replace(transforms, reward_scale=spread_scale(view))
        if normalize_observations:
            mean, std = center_and_spread(seen, (low, high))
            fitted = {"observation_mean": mean, "observation_std": std, "observation_limit": OBSERVATION_LIMIT}
            transforms = replace(transforms, **fitted)  # type: ignore[arg-type]
        return transforms

    @cached_property
    def _keeps_observations(self) -> bool:
        unscaled = not self.observation_mean.any() and bool((self.observation_std == 1.0).all())
        return unscaled and np.isinf(self.observation_limit)

    def observations(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return normalised observations, bounded where they are fitted; always a new array."""
        if self._keeps_observations:
            return np.array(values, dtype=np.float32)
        scaled = np.asarray((values - self.observation_mean) / self.observation_std, dtype=np.float32)
        if np.isinf(self.observation_limit):
            return scaled
        return np.minimum(np.maximum(scaled, -self.observation_limit), self.observation_limit)  # faster than np.clip

    def rewards(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return transformed rewards."""
        return np.clip(values * self.reward_scale + self.reward_shift, *self.reward_clip).astype(np.float32)

    def real_observations(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return observations in real units; what was bounded is at its bound, and a column that never changed constant."""
        fitted = np.isfinite(self.observation_std)
        spread = np.where(fitted, self.observation_std, 0.0)
        return np.asarray(values * spread + self.observation_mean, dtype=np.float32)

    def real_rewards(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return rewards in real units; one that was clipped has its bound, and with a scale of 0 all are NaN."""
        scale = self.reward_scale or np.nan
        return ((np.asarray(values, dtype=np.float64) - self.reward_shift) / scale).astype(np.float32)

    def real_values(self, values: NDArray[Any], gamma: float | NDArray[Any]) -> NDArray[np.float64]:
        """Return discounted returns of transformed rewards in the units of the logged rewards.

        A shift of every reward adds shift / (1 - gamma) to the value of a task that never truly ends, so the result is exact
        there; where an episode ends, less of the shift was earned and the result is too low for a positive shift. Rewards
        that were clipped cannot be restored, and with a scale of 0 nothing can: all values are NaN.
        """
        scale = self.reward_scale or np.nan
        return (np.asarray(values, dtype=np.float64) - self.reward_shift / (1.0 - gamma)) / scale

    def tensors(self) -> dict[str, Tensor]:
        """Return the transforms by logical name, for a checkpoint."""
        reward = [self.reward_scale, self.reward_shift, *self.reward_clip]
        known = {} if self.observation_range is None else {_RANGE: torch.from_numpy(np.stack(self.observation_range))}
        return {
            "transforms/observation_mean": torch.from_numpy(self.observation_mean.copy()),
            "transforms/observation_std": torch.from_numpy(self.observation_std.copy()),
            "transforms/observation_limit": torch.tensor(self.observation_limit, dtype=torch.float64),
            "transforms/reward": torch.tensor(reward, dtype=torch.float64),
            **known,
        }

    @classmethod
    def from_tensors(cls, values: Mapping[str, Tensor]) -> "Transforms":
        """Return the transforms that `tensors` wrote; those of earlier versions have no range, and the first no limit."""
        scale, shift, low, high = values["transforms/reward"].tolist()
        mean, std = values["transforms/observation_mean"].numpy(), values["transforms/observation_std"].numpy()
        limit, ends = values.get("transforms/observation_limit"), values.get(_RANGE)
        seen = None if ends is None else (ends[0].numpy(), ends[1].numpy())
        return cls(mean, std, np.inf if limit is None else float(limit), scale, shift, (low, high), seen)


def return_range_scale(view: RowView) -> float:
    """Return 1000 / (largest - smallest episode return), or 1 if all returns are equal."""
    span = float(np.ptp(view.episode_returns()))
    return RETURN_RANGE / span if span > 0.0 else 1.0


def spread_scale(view: RowView) -> float:
    """Return 1 / the spread of the rewards: the deviation of a normal distribution with the same middle 90 %.

    A rare penalty would dominate the standard deviation, and leave nothing of the other rewards; it is used only where nine
    of ten rewards are equal. Rewards that never change are not scaled.
    """
    rewards = view.whole("rewards").astype(np.float64)
    low, high = np.quantile(rewards, (0.05, 0.95))
    spread = float(high - low) / _NORMAL_90 or float(rewards.std())
    return 1.0 / spread if spread > _CONSTANT * float(np.abs(rewards).max()) else 1.0


def center_and_spread(
    values: Rows, ends: tuple[NDArray[Any], NDArray[Any]] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of each column without its far outliers; the deviation of a constant column is inf.

    `ends` are `column_range(values)`, where it is known already: on disk a pass takes time.
    """
    smallest, largest = column_range(values) if ends is None else ends
    low, high = _usual_window(values)
    bounded = bool(((smallest < low) | (largest > high)).any())
    mean, std = column_moments(_Bounded(values, low, high) if bounded else values)
    constant = largest - smallest <= _CONSTANT * np.maximum(np.abs(smallest), np.abs(largest))
    return mean.astype(np.float32), np.where(constant, np.inf, std).astype(np.float32)


def _usual_window(values: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Limits beyond which a value is a far outlier of its column; none for a column that is mostly one value."""
    step = max(1, len(values) // _SAMPLE)
    sample = np.concatenate([values[part][::step] for part in blocks(len(values))])
    low, high = np.quantile(sample.astype(np.float64), (0.01, 0.99), axis=0)
    reach = np.where(high > low, _FAR * (high - low), np.inf)
    return low - reach, high + reach


class _Bounded:
    """Rows with every column bounded."""

    def __init__(self, values: Rows, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        self._values, self._low, self._high = values, low, high

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        return np.asarray(np.clip(self._values[part], self._low, self._high))
