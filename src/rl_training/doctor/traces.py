"""A few episodes over time, thinned out to what a small chart can show."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.doctor.findings import Finding

MOST_COLUMNS = 16  # of observations, and of actions
_BUCKETS = 100  # each drawn by its smallest and its largest value
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Trace:
    """One episode: what it is, and its reward, actions and observations as points (step, value)."""

    role: str
    number: int
    length: int
    total_reward: float  # as it was logged, with the rewards of last steps that were left out
    mean_reward: float  # of the steps that are drawn
    ended: bool
    reward: Points
    actions: dict[int, Points]  # by column
    observations: dict[int, Points]


def episode_traces(dataset: TransitionDataset, findings: Sequence[Finding] = ()) -> list[Trace]:
    """Return the first episode and those with the best, the median and the worst return, each once.

    Of very many columns they have those that `findings` are about, and then the first.
    """
    returns = dataset.logged_returns()
    order = np.argsort(returns, kind="stable")
    chosen = {"first": 0, "best": int(order[-1]), "median": int(order[len(order) // 2]), "worst": int(order[0])}
    roles: dict[int, list[str]] = {}
    for role, number in chosen.items():
        roles.setdefault(number, []).append(role)
    if len(returns) == 1:
        roles = {0: ["the only one"]}
    told = " ".join(finding.evidence for finding in findings)
    columns = {
        role: _chosen(role, count, told)
        for role, count in (("action", dataset.action_dim), ("observation", dataset.observation_dim))
    }
    return [_trace(dataset, number, names, float(returns[number]), columns) for number, names in roles.items()]


def _chosen(role: str, count: int, told: str) -> list[int]:
    """The columns to show, in their order: those that are named in what was found, then the first."""
    lists = re.findall(rf"\b{role} columns? (\d+(?:, \d+)*)", told)
    found = {int(number) for listed in lists for number in listed.split(", ")}
    return sorted(sorted(range(count), key=lambda column: column not in found)[:MOST_COLUMNS])


def _trace(
    dataset: TransitionDataset, number: int, roles: Sequence[str], total: float, columns: Mapping[str, Sequence[int]]
) -> Trace:
    start, length = (int(values[number]) for values in dataset.episode_spans)
    rows = slice(start, start + length)
    actions, observations = dataset.actions[rows], dataset.observations[rows]
    return Trace(
        role=" and ".join(roles),
        number=number,
        length=length,
        total_reward=total,
        mean_reward=float(np.mean(dataset.rewards[rows], dtype=np.float64)),
        ended=bool(dataset.terminals[rows.stop - 1]),
        reward=_points(dataset.rewards[rows]),
        actions={column: _points(actions[:, column]) for column in columns["action"]},
        observations={column: _points(observations[:, column]) for column in columns["observation"]},
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
