"""What many scores say together: interquartile mean, mean, median, optimality gap, profiles, probability of improvement.

Scores are *strata*: one array of runs for each task. Every task has the same weight, whatever the number of its runs, and
every run of a task. With equally many runs everywhere the values are those of Agarwal et al. (2021), "Deep reinforcement
learning at the edge of the statistical precipice", except for the median, which is that of all runs instead of that of the
tasks' means.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_training.errors import ConfigError

Values: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Literal["iqm", "mean", "median"]
Scores: TypeAlias = ArrayLike | Sequence[ArrayLike]
"""Runs of one task, (tasks, runs), or a list with the runs of each task, which may differ in number."""
_LARGEST = 1e70  # the fourth power of twice as much is a number still: variances are squared
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


def strata(scores: Scores) -> list[Values]:
    """Return the runs of each task as arrays; a ConfigError for scores that are missing, nested deeper or not finite."""
    rows: Any = scores
    try:
        nested = any(np.ndim(row) > 0 for row in rows)
        found = [np.asarray(row, dtype=np.float64) for row in (rows if nested else [rows])]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError("scores must be numbers: the runs of a task, or a list with the runs of each task") from None
    if not found or any(task.ndim != 1 or not len(task) for task in found):
        raise ConfigError("every task needs at least one score, and scores are (runs) or (tasks, runs)")
    if not all(np.isfinite(task).all() for task in found):
        raise ConfigError("scores must be finite; leave out what was not measured, and say so")
    if any(np.abs(task).max() > _LARGEST for task in found):
        raise ConfigError(f"scores must not exceed {_LARGEST:g}: the variances of larger ones are no numbers any more")
    return found


def cut(statistic: Statistic, count: int) -> int:
    """Return how many of `count` scores a statistic leaves out at each end; of the rest it is the mean.

    The interquartile mean leaves out a quarter, rounded down (as `scipy.stats.trim_mean(scores, 0.25)` does): with three
    scores it is the mean of all, with four of the two in the middle.
    """
    cuts = {"iqm": count // 4, "mean": 0, "median": (count - 1) // 2}
    if statistic not in cuts:
        raise ConfigError(f"unknown statistic {statistic!r}; there are {', '.join(cuts)}")
    return cuts[statistic]


def weights(tasks: Sequence[Values]) -> Values:
    """Return the weight of each score of the joined tasks: equal for all tasks, and for all runs of a task."""
    return np.concatenate([np.full(len(task), 1.0 / (len(tasks) * len(task))) for task in tasks])


def trimmed_mean(values: Values, weight: Values, cut_count: int) -> Values:
    """Return the weighted mean over the last axis without the lowest and highest `cut_count / size` of the weight."""
    size = values.shape[-1]
    if np.ptp(weight) == 0.0:
        return np.asarray(np.sort(values, axis=-1)[..., cut_count : size - cut_count].mean(axis=-1))
    order = np.argsort(values, axis=-1)
    edges = np.cumsum(weight[order], axis=-1)
    share = cut_count / size
    kept = np.diff(np.clip(edges, share, 1.0 - share), axis=-1, prepend=share)
    return np.asarray((np.take_along_axis(values, order, axis=-1) * kept).sum(axis=-1) / (1.0 - 2.0 * share))


def aggregate(scores: Scores, statistic: Statistic = "iqm") -> float:
    """Return a statistic of all runs of all tasks."""
    tasks = strata(scores)
    joined = np.concatenate(tasks)
    return float(trimmed_mean(joined, weights(tasks), cut(statistic, len(joined))))


def optimality_gap(scores: Scores, target: float) -> float:
    """Return by how much runs fall short of the target on average; what lies above it makes up for nothing."""
    return target - aggregate([np.minimum(task, target) for task in strata(scores)], "mean")


def profile(scores: Scores, thresholds: ArrayLike) -> Values:
    """Return for each threshold the fraction of runs with a higher score, averaged over tasks."""
    levels = np.asarray(thresholds, dtype=np.float64)
    return np.asarray(np.mean([(task[:, None] > levels).mean(axis=0) for task in strata(scores)], axis=0))


def probability_of_improvement(scores: Scores, others: Scores) -> float:
    """Return how probable it is that a run scores higher than one of the others, averaged over tasks; ties count half.

    Of each task it is the Mann-Whitney U statistic over the number of pairs.
    """
    first, second = strata(scores), strata(others)
    if len(first) != len(second):
        raise ConfigError(
            f"the two have scores of {len(first)} and {len(second)} tasks; pass the same tasks in the same order"
        )
    return float(np.mean([wins(task, other).mean() for task, other in zip(first, second, strict=True)]))


def wins(scores: Values, others: Values) -> Values:
    """Return for each score the share of the others that it is higher than; equal ones count half."""
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, scores, side=side) for side in _SIDES)
    return np.asarray((below + up_to) / (2.0 * len(others)))
