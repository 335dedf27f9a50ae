"""A few episodes over time, thinned out to what a small chart can show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset

MOST_COLUMNS = 16  # of observations, and of actions
_BUCKETS = 100  # each drawn by its smallest and its largest value
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Trace:
    """One episode: what it is, and its reward, actions and observations as points (step, value)."""

    role: str
    number: int
    length: int
    total_reward: float
    ended: bool
    reward: Points
    actions: list[Points]
    observations: list[Points]


def episode_traces(dataset: TransitionDataset) -> list[Trace]:
    """Return the first episode and those with the best, the median and the worst return, each once."""
    returns = dataset.episode_returns()
    order = np.argsort(returns, kind="stable")
    chosen = {"first": 0, "best": int(order[-1]), "median": int(order[len(order) // 2]), "worst": int(order[0])}
    roles: dict[int, list[str]] = {}
    for role, number in chosen.items():
        roles.setdefault(number, []).append(role)
    if len(returns) == 1:
        roles = {0: ["the only one"]}
    return [_trace(dataset, number, names, float(returns[number])) for number, names in roles.items()]


def _trace(dataset: TransitionDataset, number: int, roles: Sequence[str], total: float) -> Trace:
    start, length = (int(values[number]) for values in dataset.episode_spans)
    rows = slice(start, start + length)
    return Trace(
        role=" and ".join(roles),
        number=number,
        length=length,
        total_reward=total,
        ended=bool(dataset.terminals[rows.stop - 1]),
        reward=_points(dataset.rewards[rows]),
        actions=[_points(column) for column in dataset.actions[rows, :MOST_COLUMNS].T],
        observations=[_points(column) for column in dataset.observations[rows, :MOST_COLUMNS].T],
    )


def _points(values: NDArray[Any]) -> Points:
    """The values with their steps; of a long episode the extremes of equal parts, so that no peak is lost."""
    if len(values) <= 2 * _BUCKETS:
        return [(float(step), float(value)) for step, value in enumerate(values)]
    points: list[int] = []
    for part in np.array_split(np.arange(len(values)), _BUCKETS):
        points += sorted({int(part[np.argmin(values[part])]), int(part[np.argmax(values[part])])})
    points[-1] = len(values) - 1
    return [(float(step), float(values[step])) for step in points]
