"""Are rewards stored in the rows they belong to? Decided from the data alone.

Two tests, each a regression of rewards on transitions (observation, action, next observation):

* Inside episodes: the reward of a row is far better explained by the transition before, or after, than by its own.
* At the seams between episodes. If neighbouring rewards are similar, a shift hardly shows inside, but it does at a seam: with
  rewards one row late, the first reward of an episode is explained by the last transition of the episode before, and not by
  its own; or it is a zero that belongs to no transition.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FEATURES, _ROWS, _SEAMS = 300, 8000, 2000
_FEWEST_ROWS, _FEWEST_SEAMS = 200, 8
_RARE = 0.05  # share of zeros among rewards below which a zero at every seam is no coincidence
Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]
Model = Callable[[Rows], Numbers]


@dataclass(frozen=True)
class Shift:
    """Rewards that are stored `lag` rows after the rows they belong to."""

    lag: int
    own_error: float  # of rewards predicted from their own transitions
    other_error: float  # predicted from the transitions they seem to belong to
    rows: int  # how many rewards were tested
    where: str
    across: bool = False  # the shift crosses the seams between episodes


def find_shift(
    observations: NDArray[np.generic],
    actions: NDArray[np.generic],
    rewards: NDArray[np.generic],
    next_observations: NDArray[np.generic],
    terminals: NDArray[np.bool_],
    ends: NDArray[np.bool_],
) -> Shift | None:
    """Return how rewards are shifted against transitions; None if they are not, or if the data cannot tell."""
    reward = np.asarray(rewards, dtype=np.float64)
    last = np.flatnonzero(ends)
    first = np.append(0, last[:-1] + 1)
    inside = np.ones(len(reward), dtype=bool)
    inside[last] = inside[first] = False
    pool = np.flatnonzero(inside)
    spread = float(np.median(np.abs(reward - np.median(reward))))
    if len(pool) < _FEWEST_ROWS or spread == 0.0:  # mostly one value: seams look the same wherever the rewards belong
        return None
    draw = np.random.Generator(np.random.Philox(0))
    chosen = np.sort(draw.permutation(pool)[: 2 * _ROWS])
    regression = _Regression(observations, actions, next_observations, chosen, draw)
    test = _ShiftTest(reward, regression, chosen[::2], chosen[1::2], spread)
    joins = ~terminals[last[:-1]] if (~terminals[last[:-1]]).sum() >= _FEWEST_SEAMS else np.ones(len(last) - 1, dtype=bool)
    before, after = last[:-1][joins][:_SEAMS], first[1:][joins][:_SEAMS]
    return test.at_seams(1, after, before) or test.at_seams(-1, before, after) or test.inside()


class _ShiftTest:
    """Errors of rewards under the assumption that they belong to the row itself, the one before, or the one after."""

    def __init__(self, reward: Numbers, regression: "_Regression", train: Rows, test: Rows, spread: float) -> None:
        self._reward, self._test, self._spread = reward, test, spread
        self._models = {lag: regression(train - lag, reward[train]) for lag in (-1, 0, 1)}
        self._errors = {lag: self._error(lag, test, test - lag) for lag in self._models}

    def _error(self, lag: int, rows: Rows, explained_by: Rows) -> float:
        return float(np.median(np.abs(self._models[lag](explained_by) - self._reward[rows])))

    def inside(self) -> Shift | None:
        """Test rows inside episodes."""
        own = self._errors[0]
        lag = min((1, -1), key=lambda lag: self._errors[lag])
        other = self._errors[lag]
        if other < 0.4 * own and other < 0.2 * self._spread and own > 0.02 * self._spread:
            return Shift(lag, own, other, len(self._test), "inside episodes")
        return None

    def at_seams(self, lag: int, rows: Rows, neighbours: Rows) -> Shift | None:
        """Test the rewards of rows next to a seam against their neighbours across it."""
        if len(rows) < _FEWEST_SEAMS:
            return None
        own, usual = self._error(0, rows, rows), self._errors[0]
        if own < 2.0 * usual or own < 0.02 * self._spread or self._errors[lag] > 1.5 * usual:
            return None  # its own transition explains the reward, at the seam or elsewhere
        if not self._reward[rows].any() and (self._reward[self._test] == 0.0).mean() < _RARE:
            return Shift(lag, own, usual, len(rows), "at the seams, where it is always 0")
        other = self._error(lag, rows, neighbours)
        informed = self._errors[lag] < 0.8 * self._spread  # rewards that are pure noise say nothing
        if informed and 2.0 * other < own and other < 1.5 * self._spread and own > 0.5 * self._spread:
            return Shift(lag, own, other, len(rows), "at the seams between episodes", across=True)
        return None


class _Regression:
    """Ridge regression on random features of standardised transitions: smooth, fast, and good enough to tell rows apart."""

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
