"""Are actions stored in the rows they belong to? Decided from the data alone.

What a command does shows in the next observation. If actions are stored one row late, the row after holds the one that
explains it, and the row's own explains nothing more; one row early, the row before does. Two honest logs look alike. Where a
controller reacts to each reading, the action after tells what was read; but that action follows from its own row, and in a
shifted log as well from the row before, or rewards show the shift, too. Where the plant answers one row late, the action
before explains more, and nothing else tells this from actions that are stored early: without rewards that agree, nothing is
said, and with them no more than that it seems so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.doctor.expectation import Numbers, Rows, explained_by

_ROWS, _FEWEST_ROWS, _BEFORE = 2000, 400, 5  # rows that are fitted, and rows before each that may still have an effect
_FLOOR = 0.02  # of the spread of a column, below which errors are alike
_BETTER, _NO_WORSE = 0.6, 1.25  # ratio of errors of the column that the neighbour tells best, and of the one it tells worst
_ADDS = 0.75  # ratio of errors below which another action adds something
_AS_WELL = 1.02  # ratio of errors of an action from the row before and from its own
_REWARD = 0.8  # ratio of errors of rewards with the neighbour's action and with their own, that counts


@dataclass(frozen=True)
class ActionShift:
    """Actions that are stored `lag` rows after the rows they belong to."""

    lag: int
    column: int  # of the observations: the one that shows it best
    errors: tuple[float, float]  # of its change in units of its spread, by the row's own action and by the neighbour's
    across: bool  # the shift crosses the seams between episodes
    sure: bool  # rewards show it, too


class ActionTest:
    """Errors of what follows in rows of a log, explained by their own actions or by those of their neighbours."""

    def __init__(self, data: TransitionDataset) -> None:
        self._data = data
        episode = np.cumsum(np.append(False, data.episode_ends[:-1]))
        rows = np.arange(_BEFORE, len(episode) - 1)
        rows = rows[(episode[rows - _BEFORE] == episode[rows]) & (episode[rows] == episode[rows + 1])]
        self._rows = np.sort(np.random.Generator(np.random.Philox(0)).permutation(rows)[:_ROWS])

    def shift(self) -> ActionShift | None:
        """Return how actions are shifted against transitions; None if they are not, or if the data cannot tell."""
        for lag in (1, -1) if len(self._rows) >= _FEWEST_ROWS else ():
            ratios = self._ratios(lag)
            if ratios.min() < _BETTER and ratios.max() < _NO_WORSE and self._alone(lag):
                agrees = self._reward_agrees(lag)
                if agrees or (lag > 0 and self._follow_from_the_row_before()):
                    column = int(np.argmin(ratios))
                    errors = (float(self._errors(0)[column]), float(self._errors(lag)[column]))
                    return ActionShift(lag, column, errors, self._across(lag), sure=agrees and lag > 0)
        return None

    def may_be_shifted(self, lag: int) -> bool:
        """Return whether rewards and next observations leave open that it is the actions that are shifted."""
        if len(self._rows) < _FEWEST_ROWS or self._ratios(lag).max() >= _NO_WORSE:
            return False
        data, rows = self._data, self._rows
        by_action = self._reward_error((data.observations[rows], data.actions[rows + lag], data.next_observations[rows]))
        before = rows + lag
        by_row = self._reward_error((data.observations[before], data.actions[before], data.next_observations[before]))
        return by_action < _NO_WORSE * by_row

    def _ratios(self, lag: int) -> Numbers:
        """Errors with the action of a neighbour, in those with the row's own, of the columns that move."""
        return np.asarray(self._errors(lag) / self._errors(0))

    def _errors(self, *lags: int) -> Numbers:
        """The error of the next change of each column, given the observation and the actions of these rows."""
        if lags not in self._known:
            rows = self._rows
            actions = [self._data.actions[rows + lag] for lag in lags]
            self._known[lags] = _error((self._data.observations[rows], *actions), self._changes)
        return self._known[lags]

    @cached_property
    def _known(self) -> dict[tuple[int, ...], Numbers]:
        return {}

    @cached_property
    def _changes(self) -> Numbers:
        here, after = self._data.observations[self._rows], self._data.next_observations[self._rows]
        return _scaled(np.asarray(after, dtype=np.float64) - here)

    def _alone(self, lag: int) -> bool:
        """Whether neither the row's own action nor earlier ones add anything to the neighbour's."""
        earlier = range(lag - 1 if lag < 0 else -1, -_BEFORE - 1, -1)
        others = ((lag, 0), (lag, *earlier))
        return all(bool((self._errors(*lags) > _ADDS * self._errors(lag)).all()) for lags in others)

    def _reward_agrees(self, lag: int) -> bool:
        """Whether the reward of a row follows from its observations and the neighbour's action, and not from its own."""
        data, rows = self._data, self._rows
        here, after = data.observations[rows], data.next_observations[rows]
        own, other = (self._reward_error((here, data.actions[rows + k], after)) for k in (0, lag))
        return other < _REWARD * own and other < _REWARD

    def _reward_error(self, parts: Sequence[NDArray[Any]]) -> float:
        rewards = _scaled(np.asarray(self._data.rewards[self._rows], dtype=np.float64)[:, None])
        return float(_error(parts, rewards)[0])

    def _follow_from_the_row_before(self) -> bool:
        """Whether every action follows from the observation of the row before as well as from that of its own row."""
        rows, observations = self._rows, self._data.observations
        actions = _scaled(np.asarray(self._data.actions[rows + 1], dtype=np.float64))
        return bool((_error((observations[rows],), actions) < _AS_WELL * _error((observations[rows + 1],), actions)).all())

    def _across(self, lag: int) -> bool:
        """Whether the rows at the edges of episodes hold actions, and not all the same number in place of one."""
        ends = self._data.episode_ends
        edges = self._data.actions[np.append(True, ends[:-1]) if lag > 0 else ends]
        return len(edges) > 1 and bool((edges != edges[0]).any())


def _scaled(values: Numbers) -> Numbers:
    """Columns without far outliers, in units of their spread; 0 where they hardly move."""
    low, high = np.quantile(values, (0.05, 0.95), axis=0)
    bounded = np.clip(values, 2 * low - high, 2 * high - low)
    spread = bounded.std(axis=0)
    moving = spread > 1e-12 * np.abs(bounded).max(axis=0)
    return np.asarray(bounded / np.where(moving, spread, np.inf))


def _error(parts: Sequence[NDArray[Any]], targets: Numbers) -> Numbers:
    """The mean error of each target, explained by these parts in a fit to the other half of the rows, plus a floor."""
    order = np.arange(len(targets))
    halves: tuple[Rows, Rows] = (order[::2], order[1::2])
    errors = [np.abs(explained_by(parts, fit, targets[fit])(test) - targets[test]) for fit, test in (halves, halves[::-1])]
    return np.asarray(np.concatenate(errors).mean(axis=0) + _FLOOR)
