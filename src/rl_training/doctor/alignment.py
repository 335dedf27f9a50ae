"""Are rewards stored in the rows they belong to? Decided from the data alone.

Three tests, two of which regress rewards on transitions (observation, action, next observation):

* Payouts: rewards far from all others that sit in the first rows of episodes, or in those before the last, belong to the last ones.
* At the seams between episodes. If neighbouring rewards are similar, a shift hardly shows inside, but it does at a seam: with
  rewards one row late, the first reward of an episode is explained by the last transition of the episode before, and not by
  its own; or it is a zero that belongs to no transition.
* Inside episodes: the reward of a row is clearly better explained by the transition before, or after, than by its own.

A reward of the state alone that is stored one row early is the reward of the next state, which is as good: nothing shows it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_training.doctor.regression import Numbers, Regression, Rows

_ROWS, _SEAMS = 8000, 2000
_FEWEST_ROWS, _FEWEST_SEAMS, _FEWEST_PAYOUTS = 200, 8, 3
_RARE = 0.05  # share of zeros among rewards below which a zero at every seam is no coincidence
_BETTER, _FAR_BETTER, _CERTAIN = 0.8, 0.6, 8.0  # ratio of errors that counts, that is an error; in standard errors of the mean


@dataclass(frozen=True)
class Shift:
    """Rewards that are stored `lag` rows after the rows they belong to."""

    lag: int
    reason: str
    across: bool = False  # the shift crosses the seams between episodes
    sure: bool = True


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
    if len(pool) < _FEWEST_ROWS or np.ptp(reward[pool]) == 0.0:
        return None
    if (paid := _misplaced_payouts(reward, first, last)) is not None:
        return paid
    draw = np.random.Generator(np.random.Philox(0))
    chosen = np.sort(draw.permutation(pool)[:_ROWS])
    test = _ShiftTest(reward, Regression((observations, actions, next_observations), chosen, draw), chosen)
    joins = ~terminals[last[:-1]] if (~terminals[last[:-1]]).sum() >= _FEWEST_SEAMS else np.ones(len(last) - 1, dtype=bool)
    before, after = last[:-1][joins][:_SEAMS], first[1:][joins][:_SEAMS]
    return test.at_seams(1, after, before) or test.at_seams(-1, before, after) or test.inside()


def _misplaced_payouts(reward: Numbers, first: Rows, last: Rows) -> Shift | None:
    """Rewards that dwarf all others, in the first rows of episodes or in those before the last."""
    long = last - first >= 2
    for lag, rows, where in ((1, first[1:][long[1:]], "first"), (-1, last[long] - 1, "last but one")):
        others = np.ones(len(reward), dtype=bool)
        others[rows] = others[0] = False
        low, high = reward[others].min(), reward[others].max()
        reach = high - low
        far = (reward[rows] < low - reach) | (reward[rows] > high + reach)
        if len(rows) >= _FEWEST_PAYOUTS and far.mean() > 0.9:
            reason = f"in the {where} rows of {far.sum()} episodes they are far from all others ({low:.4g} to {high:.4g})"
            return Shift(lag, f"{reason}, as the last ones may be", across=True)
    return None


class _ShiftTest:
    """Errors of rewards under the assumption that they belong to the row itself, the one before, or the one after."""

    def __init__(self, reward: Numbers, regression: Regression, rows: Rows) -> None:
        self._reward = reward
        halves = (rows[::2], rows[1::2])
        self._models = {lag: regression(halves[0] - lag, reward[halves[0]]) for lag in (-1, 0, 1)}
        crossed = {lag: regression(halves[1] - lag, reward[halves[1]]) for lag in (-1, 0, 1)}
        self._errors = {
            lag: np.concatenate((
                np.abs(self._models[lag](halves[1] - lag) - reward[halves[1]]),
                np.abs(crossed[lag](halves[0] - lag) - reward[halves[0]]),
            ))
            for lag in (-1, 0, 1)
        }
        self._spread = float(np.abs(reward[rows] - np.median(reward[rows])).mean())
        self._zeros = float((reward[rows] == 0.0).mean())

    def inside(self) -> Shift | None:
        """Test rows inside episodes: a paired comparison of errors."""
        own = self._errors[0]
        lag = min((1, -1), key=lambda lag: float(self._errors[lag].mean()))
        other = self._errors[lag]
        ratio = float(other.mean() / own.mean()) if own.any() else 1.0
        gain = np.sqrt(own) - np.sqrt(other)  # no single row may decide
        certain = float(gain.mean()) > _CERTAIN * float(gain.std()) / np.sqrt(len(gain))
        if ratio < _BETTER and certain and own.mean() > 0.005 * self._spread:
            return Shift(lag, _compared("inside episodes", len(own), own, other, lag), sure=ratio < _FAR_BETTER)
        return None

    def at_seams(self, lag: int, rows: Rows, neighbours: Rows) -> Shift | None:
        """Test the rewards of rows next to a seam against their neighbours across it."""
        if len(rows) < _FEWEST_SEAMS:
            return None
        own, usual = self._error(0, rows, rows), float(np.median(self._errors[0]))
        if np.median(own) < 2.0 * usual or np.median(own) < 0.02 * self._spread:
            return None  # its own transition explains the reward
        if np.median(self._errors[lag]) > 2.0 * usual:
            return None  # inside episodes the neighbour explains less
        if not self._reward[rows].any() and self._zeros < _RARE:
            return Shift(lag, _compared("at the seams, where it is always 0", len(rows), own, self._errors[0], lag))
        other = self._error(lag, rows, neighbours)
        informed = self._errors[lag].mean() < 0.8 * self._spread  # rewards that are pure noise say nothing
        if informed and 2.0 * other.mean() < own.mean() and (other < own).mean() > 0.8 and own.mean() > 0.3 * self._spread:
            return Shift(lag, _compared("at the seams between episodes", len(rows), own, other, lag), across=True)
        return None

    def _error(self, lag: int, rows: Rows, explained_by: Rows) -> Numbers:
        return np.abs(self._models[lag](explained_by) - self._reward[rows])


def _compared(where: str, count: int, own: Numbers, other: Numbers, lag: int) -> str:
    errors = f"{own.mean():.3g} explained by its own transition, {other.mean():.3g} by the one {'before' if lag > 0 else 'after'}"
    return f"{where} ({count} rewards) the error is {errors}"
