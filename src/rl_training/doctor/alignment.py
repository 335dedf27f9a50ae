"""Are rewards stored in the rows they belong to? Decided from the data alone.

Four tests, two of which regress rewards on transitions (observation, action, next observation):

* Payouts: rewards far from all others in the first rows of episodes, or in those before the last, belong to the last rows.
* Rewards that go on smoothly across a seam, but step next to it inside an episode: the row at the seam holds another's.
* At the seams between episodes. If neighbouring rewards are similar, a shift hardly shows inside, but it does at a seam: with
  rewards one row late, the first reward of an episode is explained by the last transition of the episode before, and not by
  its own; or it is a zero that belongs to no transition, from which rewards step away. A plant that runs on has transitions
  at a seam that look like no other, which no model explains, and similar rewards on both sides of it. So the transition at
  the seam has to explain the reward of the next row as well.
* Inside episodes: the reward of a row is clearly better explained by the transition before, or after, than by its own.

Models are fitted to rewards within bounds, and what decides holds for most seams: no penalty, however large, decides alone.
A reward of the state alone that is stored one row early is the reward of the next state, which is as good: nothing shows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from rl_training.doctor.expectation import Numbers, Rows, explained_by

_ROWS, _SEAMS = 4000, 2000
_FEWEST_ROWS, _FEWEST_SEAMS, _FEWEST_PAYOUTS = 200, 8, 3
_RARE = 0.05  # share of zeros among rewards below which a zero at every seam is no coincidence
_FILLED = 0.5  # of the spread of rewards, by which a zero in every first row must be off
_STEEPER = 2.0  # times the step beside it, that leads away from a zero that was filled in
_REACH = 3.0  # times the range of the middle 80 %, beyond which rewards are bounded
_BETTER, _FAR_BETTER, _CERTAIN = (
    0.8,
    0.6,
    8.0,
)  # ratio of errors that counts, that is an error; in standard errors of the mean
_AT_SEAMS = 0.25  # ratio of median errors that counts at seams, where transitions are unlike those that models are fitted to
_MOST, _CHANCE = 0.8, 0.005  # of the seams agree, and a fair coin does so more rarely than this


@dataclass(frozen=True)
class Shift:
    """Rewards that are stored `lag` rows after the rows they belong to."""

    lag: int
    reason: str
    across: bool = False  # the shift crosses the seams between episodes
    sure: bool = True
    inside: bool = False  # it shows inside episodes, where a shift of the actions may look the same


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
    plain = _misplaced_payouts(reward, first, last, terminals[last]) or _smooth_across(reward, first, last, pool)
    if plain is not None:
        return plain
    draw = np.random.Generator(np.random.Philox(0))
    chosen = np.sort(draw.permutation(pool)[:_ROWS])
    parts = (observations, actions, next_observations)
    test = _ShiftTest(reward, (*parts, *(np.abs(part) for part in parts)), chosen)  # many rewards are distances
    long = (last > first)[:-1] & (last > first)[1:]  # so that there is a row beside the seam
    cut = long & ~terminals[last[:-1]]
    joins = cut if cut.sum() >= _FEWEST_SEAMS else long
    before, after = last[:-1][joins][:_SEAMS], first[1:][joins][:_SEAMS]
    return test.at_seams(1, after, before) or test.at_seams(-1, before, after) or test.inside()


def _misplaced_payouts(reward: Numbers, first: Rows, last: Rows, truly: NDArray[np.bool_]) -> Shift | None:
    """Rewards that dwarf all others, in the rows after true ends or in those before."""
    truly = truly if truly.any() else np.ones_like(truly)
    before = last[truly & (last - first >= 2)] - 1
    for lag, rows, where in ((1, first[1:][truly[:-1]], "first"), (-1, before, "last but one")):
        others = np.ones(len(reward), dtype=bool)
        others[rows] = others[0] = False
        low, high = reward[others].min(), reward[others].max()
        reach = high - low
        far = (reward[rows] < low - reach) | (reward[rows] > high + reach)
        if len(rows) >= _FEWEST_PAYOUTS and far.mean() > 0.9:
            reason = f"in the {where} rows of {far.sum()} episodes they are far from all others ({low:.4g} to {high:.4g})"
            return Shift(lag, f"{reason}, as the last ones may be", across=True)
    return None


def _smooth_across(reward: Numbers, first: Rows, last: Rows, inside: Rows) -> Shift | None:
    """Rewards that go on smoothly from one episode to the next, but not from the edge row to its neighbour inside."""
    before, after = last[:-1], first[1:]
    long = (before - first[:-1] >= 2) & (last[1:] - after >= 2)
    before, after = before[long], after[long]
    if len(before) < _FEWEST_SEAMS:
        return None
    usual = float(np.median(np.abs(reward[inside] - reward[inside - 1])))
    across = np.abs(reward[after] - reward[before])
    for lag, edge in ((1, np.abs(reward[after] - reward[after + 1])), (-1, np.abs(reward[before] - reward[before - 1]))):
        if np.median(across) <= 2.0 * usual and np.median(edge) > 5.0 * usual and (edge > across).mean() > 0.8:
            steps = f"step by {np.median(across):.3g} from episode to episode and by {np.median(edge):.3g} next to it"
            return Shift(lag, f"at {len(before)} seams they {steps}, where {usual:.3g} is usual", across=True)
    return None


def _bounded(reward: Numbers, usual: Numbers) -> Numbers:
    """Rewards with those far outside the usual ones moved to a bound; as they are if the middle 80 % are all the same."""
    low, high = np.quantile(usual, (0.1, 0.9))
    reach = _REACH * (high - low)
    return np.clip(reward, low - reach, high + reach) if reach else reward


def _in_most(agree: NDArray[np.bool_]) -> bool:
    """Whether most agree, and more than by chance (a sign test)."""
    count, agreed = len(agree), int(agree.sum())
    chance = sum(comb(count, more) for more in range(agreed, count + 1)) / 2**count
    return agreed > _MOST * count and chance < _CHANCE


class _ShiftTest:
    """Errors of rewards under the assumption that they belong to the row itself, the one before, or the one after."""

    def __init__(self, rewards: Numbers, transitions: Sequence[NDArray[np.generic]], rows: Rows) -> None:
        self._zero = rewards == 0.0
        self._reward = reward = _bounded(rewards, rewards[rows])
        halves = (rows[::2], rows[1::2])
        self._models = {lag: explained_by(transitions, halves[0] - lag, reward[halves[0]]) for lag in (-1, 0, 1)}
        crossed = {lag: explained_by(transitions, halves[1] - lag, reward[halves[1]]) for lag in (-1, 0, 1)}
        self._errors = {
            lag: np.concatenate(
                (
                    np.abs(self._models[lag](halves[1] - lag) - reward[halves[1]]),
                    np.abs(crossed[lag](halves[0] - lag) - reward[halves[0]]),
                )
            )
            for lag in (-1, 0, 1)
        }
        self._spread = float(np.abs(reward[rows] - np.median(reward[rows])).mean())
        self._zeros = float(self._zero[rows].mean())

    def inside(self) -> Shift | None:
        """Test rows inside episodes: a paired comparison of errors."""
        own = self._errors[0]
        lag = min((1, -1), key=lambda lag: float(self._errors[lag].mean()))
        other = self._errors[lag]
        ratio = float(other.mean() / own.mean()) if own.any() else 1.0
        gain = np.sqrt(own) - np.sqrt(other)  # no single row may decide
        certain = float(gain.mean()) > _CERTAIN * float(gain.std()) / np.sqrt(len(gain))
        if ratio < _BETTER and certain and own.mean() > 0.005 * self._spread:
            errors = _compared(own.mean(), other.mean(), _by_the_one(lag))
            return Shift(lag, f"inside episodes ({len(own)} rewards) {errors}", sure=ratio < _FAR_BETTER, inside=True)
        return None

    def at_seams(self, lag: int, rows: Rows, neighbours: Rows) -> Shift | None:
        """Test the rewards of rows next to a seam against their neighbours across it."""
        if len(rows) < _FEWEST_SEAMS:
            return None
        own, usual = self._error(0, rows, rows), float(np.median(self._errors[0]))
        error = float(np.median(own))
        if error < 2.0 * usual or error < 0.02 * self._spread:
            return None  # its own transition explains the reward
        if np.median(self._errors[lag]) > 2.0 * usual:
            return None  # inside episodes the neighbour explains less
        # where episodes begin at a set point, whose distance is the reward, zeros are due, and models are off at that edge
        filled = lag < 0 or error > _FILLED * self._spread
        if filled and self._zero[rows].all() and self._zeros < _RARE and self._step_from(rows, lag):
            errors = _compared(error, usual, "inside episodes")
            return Shift(lag, f"at the seams ({len(rows)} rewards) they are always 0, and {errors}")
        # if rewards are shifted, the transition at the seam belongs to the reward beside it, and explains that
        other = np.maximum(self._error(lag, rows, neighbours), self._error(lag, rows + lag, rows))
        informed = self._errors[lag].mean() < 0.8 * self._spread  # rewards that are pure noise say nothing
        better = np.median(other) < _AT_SEAMS * error and _in_most(other < own)
        if informed and better and error > 0.3 * self._spread:
            errors = _compared(error, float(np.median(other)), _by_the_one(lag))
            return Shift(lag, f"at the seams between episodes ({len(rows)} rewards) {errors}", across=True)
        return None

    def _step_from(self, rows: Rows, lag: int) -> bool:
        """Whether rewards step away from these rows; from those of a plant at rest, observed or not, they only move away."""
        beside, further = (np.clip(rows + k * lag, 0, len(self._reward) - 1) for k in (1, 2))
        step, after = (
            float(np.median(np.abs(self._reward[b] - self._reward[a]))) for a, b in ((rows, beside), (beside, further))
        )
        return step > _STEEPER * after

    def _error(self, lag: int, rows: Rows, explained_by: Rows) -> Numbers:
        return np.abs(self._models[lag](explained_by) - self._reward[rows])


def _by_the_one(lag: int) -> str:
    return f"by the one {'before' if lag > 0 else 'after'}"


def _compared(own: float, other: float, otherwise: str) -> str:
    return f"the error is {own:.3g} explained by its own transition, {other:.3g} {otherwise}"
