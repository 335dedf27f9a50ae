"""Is the reward column a running sum of rewards? Decided from the data alone."""

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.doctor.expectation import Numbers, Rows, explained_by

_ROWS, _FEWEST_ROWS, _FEWEST_EPISODES, _SHORTEST = 4000, 100, 5, 10
_MORE_EXACT = 0.1  # ratio of squared errors


def find_running_sum(data: TransitionDataset) -> str | None:
    """Return why rewards look like a running sum; None if they do not.

    A running sum begins near 0 in each episode, mostly goes one way, moves in most rows, and its increments follow from the
    transitions far more exactly than it does itself. A reward that is a state (a distance, a yield) may do all but the last.
    """
    starts, lengths = data.episode_spans
    rewards = np.asarray(data.rewards, dtype=np.float64)
    inside = ~np.append(True, data.episode_ends[:-1]) & ~data.episode_ends  # an end may pay or cost much
    rows, long = np.flatnonzero(inside), lengths >= _SHORTEST
    if not long.any() or len(rows) < _FEWEST_ROWS:
        return None
    steps = rewards[rows] - rewards[rows - 1]
    rounding = 1e-6 * np.abs(rewards).max()
    one_way = max((steps >= -rounding).mean(), (steps <= rounding).mean())
    reach = np.maximum.reduceat(rewards, starts) - np.minimum.reduceat(rewards, starts)
    from_nothing = (np.abs(rewards[starts]) <= 0.2 * reach)[long]
    moving = (np.abs(steps) > rounding).mean()
    if from_nothing.mean() < 0.9 or moving < 0.5 or (one_way < 0.99 and long.sum() < _FEWEST_EPISODES):
        return None
    of_sum, of_steps = _unexplained(data, rows, rewards[rows], steps)
    variances = float(rewards[rows].var()), float(steps.var())
    if of_steps * variances[1] > _MORE_EXACT * of_sum * variances[0] or (one_way < 0.99 and of_steps > _MORE_EXACT * of_sum):
        return None
    way = f"{'rise' if steps.mean() > 0 else 'fall'} in {one_way:.0%} of the steps inside episodes"
    start = f"begin near 0 in {from_nothing.sum()} of {long.sum()}"
    errors = [float(np.sqrt(share * variance)) for share, variance in zip((of_steps, of_sum), variances[::-1], strict=True)]
    return f"they {way}, {start}, and transitions explain their steps to {errors[0]:.2g}, them to {errors[1]:.2g}"


def _unexplained(data: TransitionDataset, rows: Rows, *targets: NDArray[np.float64]) -> list[float]:
    """The share of the variance of each target that a smooth function of the transition does not explain."""
    draw = np.random.Generator(np.random.Philox(0))
    chosen = np.sort(draw.permutation(len(rows))[: 2 * _ROWS])
    fit, test = chosen[::2], chosen[1::2]
    transitions = (data.observations, data.actions, data.next_observations)
    return [_share(explained_by(transitions, rows[fit], target[fit])(rows[test]), target[test]) for target in targets]


def _share(predicted: Numbers, target: Numbers) -> float:
    spread = float(np.square(target - target.mean()).mean())
    return float(np.square(predicted - target).mean()) / spread if spread > 0.0 else 0.0
