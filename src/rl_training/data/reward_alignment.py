"""Do rewards stand in the rows they belong to? Answered from the data alone, at the seams between episodes.

Inside an episode neighbouring rewards are much alike, and a shift by a row hardly shows. At a seam it does: with rewards one
row late, the first reward of an episode is explained by the last transition of the episode before, and not by its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FEATURES, _ROWS, _SEAMS, _FEWEST_SEAMS = 300, 8000, 2000, 5
Numbers = NDArray[np.float64]
Model = Callable[[NDArray[np.intp]], Numbers]


@dataclass(frozen=True)
class Shift:
    """Rewards that are stored `lag` rows after the rows they belong to."""

    lag: int
    own_error: float  # of rewards at the seams, explained by their own rows
    other_error: float  # explained by the rows they seem to belong to
    seams: int


def find_shift(
    observations: NDArray[np.generic],
    actions: NDArray[np.generic],
    rewards: NDArray[np.generic],
    next_observations: NDArray[np.generic],
    ends: NDArray[np.bool_],
) -> Shift | None:
    """Return how rewards are shifted against transitions; None where they are not, or where the data cannot tell."""
    reward = np.asarray(rewards, dtype=np.float64)
    last = np.flatnonzero(ends)
    first = np.append(0, last[:-1] + 1)
    inside = np.ones(len(reward), dtype=bool)
    inside[last] = inside[first] = False
    pool = np.flatnonzero(inside)
    if len(last) <= _FEWEST_SEAMS or len(pool) < 100 or np.ptp(reward[pool]) == 0.0:
        return None
    draw = np.random.Generator(np.random.Philox(0))
    chosen = np.sort(draw.permutation(pool)[: 2 * _ROWS])
    fit = _Regression(observations, actions, next_observations, chosen, draw)
    train, test = chosen[::2], chosen[1::2]
    seams = slice(None, _SEAMS)
    own = fit(train, reward[train])
    usual = float(np.median(np.abs(own(test) - reward[test])))
    late_rows, before = first[1:][seams], last[:-1][seams]
    early_rows, after = last[:-1][seams], first[1:][seams]
    for lag, rows, explained_by in ((1, late_rows, before), (-1, early_rows, after)):
        own_error = float(np.median(np.abs(own(rows) - reward[rows])))
        if own_error <= 2.0 * usual:
            continue
        if lag == 1 and not reward[first].any() and own_error > max(4.0 * usual, 0.3 * reward.std()):
            return Shift(1, own_error, usual, len(rows))  # a zero that belongs to no row stands at the head of each episode
        if lag == -1 and not reward[last].any() and own_error > max(4.0 * usual, 0.3 * reward.std()):
            return Shift(-1, own_error, usual, len(rows))
        other = fit(train - lag, reward[train])
        other_error = float(np.median(np.abs(other(explained_by) - reward[rows])))
        if 2.0 * other_error < own_error:
            return Shift(lag, own_error, other_error, len(rows))
    return None


class _Regression:
    """Ridge regression on random features of standardised transitions: smooth, quick, and good enough to tell rows apart."""

    def __init__(
        self,
        observations: NDArray[np.generic],
        actions: NDArray[np.generic],
        next_observations: NDArray[np.generic],
        rows: NDArray[np.intp],
        draw: np.random.Generator,
    ) -> None:
        self._parts = (observations, actions, next_observations)
        raw = self._raw(rows)
        self._mean, self._std = raw.mean(axis=0), raw.std(axis=0) + 1e-9
        width = raw.shape[1]
        self._weights = draw.normal(size=(width, _FEATURES)) * 0.75 / np.sqrt(width)
        self._phases = draw.uniform(0.0, 2.0 * np.pi, _FEATURES)

    def _raw(self, rows: NDArray[np.intp]) -> Numbers:
        return np.concatenate([np.asarray(part[rows], dtype=np.float64) for part in self._parts], axis=1)

    def _features(self, rows: NDArray[np.intp]) -> Numbers:
        values = np.clip((self._raw(rows) - self._mean) / self._std, -5.0, 5.0)
        waves = np.cos(values @ self._weights + self._phases)
        return np.concatenate((np.ones((len(values), 1)), values, np.square(values), waves), axis=1)

    def __call__(self, rows: NDArray[np.intp], targets: Numbers) -> Model:
        """Return the function that predicts targets like these from the transitions of rows."""
        inputs = self._features(rows)
        normal = inputs.T @ inputs + 1e-3 * np.eye(inputs.shape[1])
        weights = np.linalg.solve(normal, inputs.T @ targets)
        return lambda wanted: np.asarray(self._features(wanted) @ weights)
