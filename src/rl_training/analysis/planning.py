"""How many runs would show a difference that those at hand do not."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np

from rl_training.analysis.aggregates import Values, aggregate, cut, trimmed_mean
from rl_training.analysis.bootstrap import improvement_interval, normal_quantile, probability_variance, student_quantile

MOST_SEEDS: Final = 1000  # beyond this a number of seeds only says that there is no difference to be seen
# share of a normal distribution around its middle, whose upper end four of five are below
_FOUR_OF_FIVE: Final = 0.6
_RESAMPLES: Final = 1000
_GROWTH: Final = 1.5  # from one number of runs that is tried to the next


def seeds_needed(first: Sequence[Values], second: Sequence[Values], improvement: float, confidence: float) -> int | None:
    """Return with how many runs four of five experiments would show a difference as large as measured; None if unknown.

    It follows from how far the IQM strays with so many runs, drawn from those that are there. The variance of few runs,
    divided by a larger number, would not do: one failed run of ten is in the middle half of many tens of them, and of hardly
    any forty.
    """
    runs = [min(map(len, tasks)) for tasks in (first, second)]
    difference = abs(aggregate(first) - aggregate(second))
    if min(runs) < 2 or difference == 0.0:
        return None
    by_rank, fewest = seeds_to_rank(improvement, confidence, len(first)), min(runs)
    plain = [tuple(tuple(task.tolist()) for task in tasks) for tasks in (first, second)]
    needed = MOST_SEEDS + 1
    for count in _counts(min(runs)) if by_rank <= MOST_SEEDS else ():
        # as if the tasks of a group had as many runs as the smallest; one of n runs has lost 1 / n of the variance
        found = np.array([_variance(scores, count) * n / (n - 1) for scores, n in zip(plain, runs, strict=True)])
        shares = found / found.sum() if found.any() else np.array([0.5, 0.5])
        freedom = len(first) / float((shares**2).sum())  # of one more run of each; where one group spreads, its own alone
        needed = seeds_to_show(difference, float(found.sum()), confidence, freedom, fewest, count)
        if needed <= count:
            break
        fewest = count
    return max(needed, by_rank)


def _counts(runs: int) -> Iterator[int]:
    """Numbers of runs to try, each larger than the one before, up to the most that is told."""
    count = runs + 1
    while count < MOST_SEEDS:
        yield count
        count = math.ceil(_GROWTH * count)
    yield MOST_SEEDS


@lru_cache(maxsize=4096)  # a group is in many pairs
def _variance(tasks: tuple[tuple[float, ...], ...], count: int) -> float:
    """The variance of the interquartile mean of `count` runs a task, times their number, as intervals of such runs show it.

    An interval is made of runs that are drawn from an experiment, whose own runs are drawn here from those that are there:
    so there are two draws, each with its variance, and failed runs may be too many by either.
    """
    draw, middle = np.random.default_rng(0), 0.95
    drawn = []
    for task in tasks:
        experiments = np.array(task)[draw.integers(0, len(task), (_RESAMPLES, count))]
        drawn.append(np.take_along_axis(experiments, draw.integers(0, count, (_RESAMPLES, count)), axis=1))
    joined = np.concatenate(drawn, axis=1)
    means = trimmed_mean(joined, np.ones(joined.shape[1]), cut("iqm", joined.shape[1]))
    low, high = np.quantile(means, (0.5 - middle / 2.0, 0.5 + middle / 2.0))
    return float(count * ((high - low) / (2.0 * normal_quantile(middle))) ** 2 / 2.0)


def seeds_to_show(
    difference: float, variance: float, confidence: float, freedom: float, runs: int, most: int = MOST_SEEDS
) -> int:
    """Return how many runs a task and group need, more than `runs`, to show a difference in four of five experiments.

    `variance` and `freedom` are those of a difference with one run of each more than one. Beyond `most` the number is not
    exact.
    """
    power = normal_quantile(_FOUR_OF_FIVE)

    def enough(count: int) -> bool:
        quantile = student_quantile(confidence, freedom * (count - 1))
        return count * difference**2 >= variance * (quantile + power) ** 2

    by_normal = (math.sqrt(variance) / difference * (normal_quantile(confidence) + power)) ** 2  # Student's needs more
    least = max(runs + 1, math.ceil(min(by_normal, MOST_SEEDS + 1)))
    if least > most or not enough(most):
        return max(least, most + 1)
    return least + bisect_left(range(least, most), True, key=enough)


def seeds_to_rank(improvement: float, confidence: float, tasks: int) -> int:
    """Return how many runs a task and group need to show a probability of improvement in four of five experiments.

    As Noether (1987), "Sample size determination for some common nonparametric tests", but with the variance of few runs,
    and with that of the probability itself where it is far from 0.5: one near 1 hardly varies. A probability of 0.5 shows
    in no number.
    """
    quantile, power = normal_quantile(confidence), normal_quantile(_FOUR_OF_FIVE)
    levels = np.array([0.5, improvement])

    def enough(runs: int) -> bool:
        chance, own = np.sqrt(probability_variance(levels, runs, runs) / tasks)
        return bool(quantile * chance + power * own <= abs(improvement - 0.5))

    return 2 + bisect_left(range(2, MOST_SEEDS + 1), True, key=enough)


def can_be_shown(first: Sequence[Values], second: Sequence[Values], confidence: float) -> bool:
    """Return whether as many runs show that a group is better if every run of it beats every run of the other."""
    best = [len(other) + np.arange(len(task), dtype=np.float64) for task, other in zip(first, second, strict=True)]
    worst = [np.arange(len(other), dtype=np.float64) for other in second]
    return improvement_interval(best, worst, confidence=confidence).excludes(0.5)


@cache
def least_seeds(tasks: int, confidence: float) -> int:
    """Return the fewest runs a task and group that can show a difference at all."""
    runs = 2
    while runs < MOST_SEEDS and not can_be_shown([np.zeros(runs)] * tasks, [np.zeros(runs)] * tasks, confidence):
        runs += 1
    return runs
