"""How likely ranks are by chance: the test of Wilcoxon, Mann and Whitney, exact unless there are many scores."""

from collections.abc import Sequence
from math import lcm, sqrt
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from rl_training.analysis.aggregates import Values, wins

Pairs: TypeAlias = Sequence[tuple[Sequence[float] | Values, Sequence[float] | Values]]
"""The scores of two groups on each task."""
_MOST_WORK = 3e7  # additions, for the distribution over tasks: 50 scores against 50 are exact, and are computed in 0.1 s


def chance_of_ranking_lower(found: Sequence[float], recorded: Sequence[float]) -> float:
    """Return how likely the sum of the ranks of `found` is as low as this, or lower, if all scores come from one source.

    This is the one-sided test of Wilcoxon, Mann and Whitney, with mean ranks for equal scores: every choice of as many of all
    the scores is equally likely. Only the order of scores counts, so the lowest rank is also that of a seed that diverged
    (-inf), and one lucky or unlucky seed cannot decide. `is_exact` says when the chance is that of a normal distribution.
    """
    return _chance_of_fewer_wins([(found, recorded)])


def chance_of_ranking_apart(tasks: Pairs) -> float:
    """Return how likely ranks are that favour either group as much as these do, if their scores come from one source each.

    Ranks are those within a task, and each task counts alike, as in the probability of improvement.
    """
    sides = (tasks, [(second, first) for first, second in tasks])
    return min(1.0, 2.0 * min(map(_chance_of_fewer_wins, sides)))


def is_exact(sizes: Sequence[tuple[int, int]]) -> bool:
    """Return whether so many scores of two groups on each task are few enough to count all choices."""
    pairs = [first * second for first, second in sizes]
    return 2 * sum(pairs) * 2 * len(pairs) * lcm(*pairs) <= _MOST_WORK


def _chance_of_fewer_wins(tasks: Pairs) -> float:
    """The chance that the share of wins of the first groups, averaged over tasks, is as low as this or lower."""
    groups = [(np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)) for first, second in tasks]
    if not is_exact([(len(first), len(second)) for first, second in groups]):
        return _normal_chance(groups)
    unit = lcm(*(len(first) * len(second) for first, second in groups))
    chances, place = np.ones(1), 0  # of each number of wins of all tasks so far, in half wins of a task with `unit` pairs
    for first, second in groups:
        step = unit // (len(first) * len(second))
        own = _chances_of_wins(first, second)
        joined = np.zeros(len(chances) + step * (len(own) - 1))
        for count in np.flatnonzero(own):
            joined[step * count : step * count + len(chances)] += own[count] * chances
        chances, place = joined, place + step * round(2 * float(wins(first, second).sum()) * len(second))
    return float(chances[: place + 1].sum())


def _chances_of_wins(first: Values, second: Values) -> Values:
    """The chance of each number of half wins of `first`, over all choices of as many of these scores."""
    scores = np.concatenate([first, second])
    ranks = [int(2 * (scores < one).sum() + (scores == one).sum() + 1) for one in scores]  # doubled: whole numbers
    fewer, most = min(len(first), len(second)), 2 * len(first) * len(second)
    lowest = fewer * (fewer + 1)  # the sum of the ranks of the smaller group if it wins nothing
    ways = np.zeros((fewer + 1, lowest + most + 1))  # choices of so many scores with such a sum
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    chances: Values = ways[-1, lowest:] / ways[-1].sum()
    return chances if fewer == len(first) else chances[::-1]  # what one group does not win, the other does


def _normal_chance(groups: Sequence[tuple[Values, Values]]) -> float:
    """The same chance for many scores, by the normal distribution with corrections for ties and for whole wins."""
    excess = variance = 0.0
    for first, second in groups:
        count, pairs = len(first) + len(second), len(first) * len(second)
        ties = np.unique(np.concatenate([first, second]), return_counts=True)[1].astype(np.float64)
        variance += (count + 1 - (ties**3 - ties).sum() / (count * (count - 1))) / (12 * pairs)
        excess += float(wins(first, second).mean()) - 0.5
    half = 0.5 / max(len(first) * len(second) for first, second in groups)
    return NormalDist().cdf((excess + half) / sqrt(variance)) if variance > 0.0 else 1.0
