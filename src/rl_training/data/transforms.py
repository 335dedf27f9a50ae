"""Observation and reward transforms as data: fitted once, stored with the checkpoint, applied everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config.blocks import RewardConfig
from rl_training.data.row_blocks import column_moments
from rl_training.data.row_view import RowView
from rl_training.errors import ConfigError

STD_FLOOR = 1e-3  # added to every standard deviation, so that a constant column stays finite
RETURN_RANGE = 1000.0  # rewards are scaled so that the returns in the data span this much


@dataclass(frozen=True, eq=False)
class Transforms:
    """The map from raw observations and rewards to those a learner sees."""

    observation_mean: NDArray[np.float32]  # (observation_dim,)
    observation_std: NDArray[np.float32]
    reward_scale: float = 1.0
    reward_shift: float = 0.0
    reward_clip: tuple[float, float] = field(default=(-np.inf, np.inf))

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
        transforms = cls.unfitted(view.dataset.observation_dim, reward)
        if reward.normalize:
            transforms = replace(transforms, reward_scale=reward.scale * return_range_scale(view))
        if normalize_observations:
            mean, std = column_moments(view.column("observations"))
            center, spread = mean.astype(np.float32), (std + STD_FLOOR).astype(np.float32)
            transforms = replace(transforms, observation_mean=center, observation_std=spread)
        return transforms

    def observations(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return normalised observations."""
        return np.asarray((values - self.observation_mean) / self.observation_std, dtype=np.float32)

    def rewards(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return transformed rewards."""
        return np.clip(values * self.reward_scale + self.reward_shift, *self.reward_clip).astype(np.float32)

    def real_values(self, values: NDArray[Any], gamma: float | NDArray[Any]) -> NDArray[np.float64]:
        """Return discounted returns of transformed rewards in the units of the logged rewards.

        A shift of every reward adds shift / (1 - gamma) to the value of a task that never truly ends, so the result is exact
        there; where an episode ends, less of the shift was earned and the result is too low for a positive shift. Rewards
        that were clipped cannot be restored, and a scale of 0 leaves nothing to restore.
        """
        if self.reward_scale == 0.0:
            raise ConfigError("rewards were scaled by 0 (algo_kwargs.reward.scale), so values have no real units")
        return (np.asarray(values, dtype=np.float64) - self.reward_shift / (1.0 - gamma)) / self.reward_scale

    def tensors(self) -> dict[str, Tensor]:
        """Return the transforms by logical name, for a checkpoint."""
        reward = [self.reward_scale, self.reward_shift, *self.reward_clip]
        return {
            "transforms/observation_mean": torch.from_numpy(self.observation_mean.copy()),
            "transforms/observation_std": torch.from_numpy(self.observation_std.copy()),
            "transforms/reward": torch.tensor(reward, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, values: Mapping[str, Tensor]) -> "Transforms":
        """Return the transforms that `tensors` wrote."""
        scale, shift, low, high = values["transforms/reward"].tolist()
        mean, std = values["transforms/observation_mean"].numpy(), values["transforms/observation_std"].numpy()
        return cls(mean, std, scale, shift, (low, high))


def return_range_scale(view: RowView) -> float:
    """Return 1000 / (largest - smallest episode return), or 1 if all returns are equal."""
    span = float(np.ptp(view.episode_returns()))
    return RETURN_RANGE / span if span > 0.0 else 1.0
