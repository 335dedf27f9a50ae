"""How far the returns of an evaluation are spread, over seeds and episodes, and how sure their mean is."""

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.bootstrap import student_quantile


def std_over_seeds(returns: NDArray[np.float64]) -> float | None:
    """Return the standard deviation of the mean returns of members (members, episodes), as a sample; None of one."""
    return float(returns.mean(axis=1).std(ddof=1)) if len(returns) > 1 else None


def interval_of(returns: NDArray[np.float64], *, same_episodes: bool) -> list[float] | None:
    """Return the interval of the mean over members, or over the episodes of one; None for a single value, which has none."""
    if returns.size == 1:
        return None
    if len(returns) == 1:
        return mean_interval(returns[0])
    return crossed_interval(returns) if same_episodes else mean_interval(returns.mean(axis=1))


def mean_interval(values: NDArray[np.float64]) -> list[float]:
    """Return the 95 % interval of the mean over members (or over the episodes of a solo run); of a single one, its value.

    By Student's distribution, because resampling two or three members never leaves their range, which is too narrow.
    """
    mean, reach = float(values.mean()), 0.0
    if len(values) > 1:
        reach = student_quantile(0.95, len(values) - 1) * float(values.std(ddof=1)) / len(values) ** 0.5
    return [mean - reach, mean + reach]


def crossed_interval(returns: NDArray[np.float64]) -> list[float]:
    """Return the 95 % interval of the mean return (members, episodes) where all members had the same episodes.

    The luck of episodes is then that of all members at once, so the spread over members does not contain it: it is added, as
    of two crossed factors, with Satterthwaite's degrees of freedom. A single episode has no spread.
    """
    members, episodes = returns.shape
    if episodes == 1:
        return mean_interval(returns[:, 0])
    by_member, by_episode, mean = returns.mean(axis=1), returns.mean(axis=0), float(returns.mean())
    rest = returns - by_member[:, None] - by_episode + mean
    both = float((rest**2).sum()) / ((members - 1) * (episodes - 1) * returns.size)  # is part of both variances below
    parts = [float(by_member.var(ddof=1)) / members, float(by_episode.var(ddof=1)) / episodes]
    variance = max(*parts, sum(parts) - both)
    if variance == 0.0:
        return [mean, mean]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (members - 1) + parts[1] ** 2 / (episodes - 1))
    reach = student_quantile(0.95, freedom) * variance**0.5
    return [mean - reach, mean + reach]
