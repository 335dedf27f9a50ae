"""Transforms of a run without data: what is far from ordinary size in random steps is brought there, the rest is left alone.

Networks, step sizes and temperatures are made for observations of about 1 and rewards of about 10, and cannot learn from
pressures in pascals. But random steps show little of what a policy will see, so whatever they do not prove far off stays
as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import RewardConfig
from rl_training.data.transforms import Transforms, center_and_spread

_LARGE = 20.0  # size of an observation from which on it is scaled
_LARGE_BESIDE = 5.0  # likewise, beside one that is scaled: otherwise it would outweigh that one, as it did not before
_TINY = 1e-3  # likewise: never more in any step, and the space does not say that it could be
_NOISE = 1e-10  # numerical noise, which may become anything: whitened by what it was, 0.1 would be 1e16
_ORDINARY_REWARDS = (0.05, 100.0)
_REWARD = 10.0  # size that others are brought to: at 1 the entropy bonus weighs too much in a short run
_LEAST_FACTOR = 2.0  # by which small rewards are made larger: less is not worth another number
_LEAST_DIFFERENCE = 0.01  # of large rewards from one another, as a share of their size
_MOST_NAMED = 6
_FEWEST_EPISODES = 3  # from which on a mean return says something


@dataclass(frozen=True, eq=False)
class RandomSteps:
    """What an environment showed in random steps, and what it says that it may show."""

    observations: NDArray[np.float32]  # (steps, observation_dim)
    rewards: NDArray[np.float32]  # (steps,)
    low: NDArray[np.float32]  # bounds of the observation space, (observation_dim,)
    high: NDArray[np.float32]
    returns: Sequence[float] = ()  # of the episodes that ended

    @property
    def play(self) -> dict[str, Any] | None:
        """What random actions earn, as plain values; None where too few episodes ended to say."""
        if len(self.returns) < _FEWEST_EPISODES:
            return None
        return {"return_mean": float(np.mean(self.returns)), "episodes": len(self.returns)}


def ordinary_scale(steps: RandomSteps, normalize: bool | Literal["auto"], reward: RewardConfig) -> Transforms:
    """Return transforms that bring observations and rewards to ordinary size: `auto` only those that are far from it."""
    transforms = Transforms.unfitted(steps.observations.shape[1], reward)
    if not len(steps.rewards):
        return transforms
    if reward.is_automatic:
        transforms = replace(transforms, reward_scale=_reward_scale(steps.rewards))
    if normalize is False:
        return transforms
    chosen = _far_from_ordinary(steps) if normalize == "auto" else np.ones(steps.observations.shape[1], dtype=bool)
    mean, std = center_and_spread(steps.observations)
    # a column that did not change may do so later: of its own size, for want of anything better
    std = np.where(np.isinf(std), np.where(mean == 0.0, 1.0, np.abs(mean)), std)
    return replace(
        transforms,
        observation_mean=np.where(chosen, mean, 0.0).astype(np.float32),
        observation_std=np.where(chosen, std, 1.0).astype(np.float32),
    )


def _far_from_ordinary(steps: RandomSteps) -> NDArray[np.bool_]:
    """Which columns are far larger than 1, or far smaller and neither declared to become larger nor numerical noise."""
    sizes = np.abs(steps.observations)
    size, largest = np.quantile(sizes, 0.99, axis=0), sizes.max(axis=0)
    large = size > (_LARGE_BESIDE if (size > _LARGE).any() else _LARGE)
    declared = np.maximum(np.abs(steps.low), np.abs(steps.high))
    may_grow = np.isfinite(declared) & (declared >= _TINY)
    return np.asarray(large | ((largest > _NOISE) & (largest < _TINY) & ~may_grow))


def _reward_scale(rewards: NDArray[np.float32]) -> float:
    """The factor to ordinary size of rewards that are far from it; a rare reward counts only where there is no other.

    But where small rewards are made larger, a rare one among them stays ordinary too: a goal of 100 beside the cost of fuel.
    """
    sizes = np.abs(rewards.astype(np.float64))
    largest = float(sizes.max())
    size = float(np.quantile(sizes, 0.95)) or largest
    low, high = _ORDINARY_REWARDS
    if size > high:
        return _REWARD / size
    factor = min(_REWARD / size, high / largest) if 0.0 < size < low else 1.0
    return factor if factor > _LEAST_FACTOR else 1.0


def scale_note(transforms: Transforms, names: Sequence[str], steps: int) -> str | None:
    """Return what is scaled and how to switch that off; None if everything is left as it is."""
    mean, std, told = transforms.observation_mean, transforms.observation_std, []
    if columns := np.flatnonzero((mean != 0.0) | (std != 1.0)).tolist():
        shown = [f"`{names[column]}` {mean[column]:.3g} +- {std[column]:.2g}" for column in columns[:_MOST_NAMED]]
        more = f" and {len(columns) - _MOST_NAMED} more" if len(columns) > _MOST_NAMED else ""
        told.append(f"whitens {', '.join(shown)}{more} (off: `normalize_observations: false`)")
    if transforms.reward_scale != 1.0:
        told.append(f"multiplies rewards by {transforms.reward_scale:.3g} (off: `reward: {{normalize: false}}`)")
    return f"scale, by {steps:,} random steps before the run: {' and '.join(told)}" if told else None


def offset_warning(rewards: NDArray[np.float32]) -> str | None:
    """Return a warning if rewards are a large constant, of which an action changes next to nothing; otherwise None."""
    if not len(rewards):
        return None
    low, middle, high = np.quantile(rewards.astype(np.float64), (0.05, 0.5, 0.95)).tolist()
    if abs(middle) <= _ORDINARY_REWARDS[1] or not 0.0 < high - low < _LEAST_DIFFERENCE * abs(middle):
        return None
    share = (high - low) / abs(middle)
    return (
        f"almost all rewards of random steps are {low:g} to {high:g}, so an action changes {share:.1g} of their size, "
        "too little to learn from: take the constant off in the environment, or, if no episode ends early, by "
        f"`reward: {{shift: {-middle:.6g}}}`"
    )
