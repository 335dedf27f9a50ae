"""Where observations jump, judged against how they usually move.

A column is unexpected where it is much farther from what a smooth model of the log expects than it usually is. It jumps
where it also moves much farther than it usually does when it moves, and than just before and after: a set-point that steps
moves as far as it always does, and a transient takes more than one row. A new episode moves most of the columns that move all
the time; a clock that wraps around or a gear that is shifted moves few.

A large step that follows from a large command is no jump either. Where nearly all rows are predicted to the last digit, a
little more error is far from usual, so a step is judged by how much of it is left; and where large commands are so rare that
the smooth model has not seen them, a linear one tells what they do.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rl_training.doctor.expectation import Model, Rows, explained_by, linearly_explained_by

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
_FIT, _LOOK, _BLOCK = 2500, 5000, 20_000  # rows that are fitted, that usual errors are measured on, and predicted at once
_FAR, _TAIL, _STEPS = 10.0, 4.0, 3.0
_LEFT = 0.5  # of a step: with less left to explain it is no jump


class Jumps:
    """Jumps of observations: `rows` are inside episodes, each with its successor in the row below."""

    def __init__(
        self, observations: NDArray[np.generic], actions: NDArray[np.generic], rows: Rows, rounding: Numbers
    ) -> None:
        self.rows, self._observations, self._rounding = rows, observations, rounding
        draw = np.random.Generator(np.random.Philox(0))
        chosen = np.sort(draw.permutation(rows)[:_LOOK])
        self._chosen, self._parts = chosen, (observations, actions)

    @cached_property
    def _changes(self) -> Numbers:
        return self._change(self._chosen, self._observations[self._chosen + 1])

    @cached_property
    def _model(self) -> Model:
        """The expected change, smooth in observations and actions."""
        return self._fitted(explained_by)

    @cached_property
    def _linear(self) -> Model:
        """The expected change, linear in them."""
        return self._fitted(linearly_explained_by)

    def _fitted(self, fit: Callable[[Sequence[NDArray[np.generic]], Rows, Numbers], Model]) -> Model:
        """A model that is fitted twice: the second time without the rows that fit worst."""
        every = max(1, len(self._chosen) // _FIT)
        rows, changes = self._chosen[::every], self._changes[::every]
        errors = np.abs(fit(self._parts, rows, changes)(rows) - changes)
        worst = (errors / (np.median(errors, axis=0) + self._rounding)).max(axis=1)
        good = worst <= np.quantile(worst, 0.9)
        return fit(self._parts, rows[good], changes[good])

    @cached_property
    def usual_errors(self) -> Numbers:
        """The usual distance of each column from what is expected, widened where large ones are common."""
        errors = np.abs(self._model(self._chosen) - self._changes)
        middle, tail = np.quantile(errors, (0.5, 0.9), axis=0)
        return np.asarray(np.maximum(_FAR * middle, _TAIL * tail) + self._rounding)

    @cached_property
    def usual_steps(self) -> Numbers:
        """How far each column usually moves when it moves."""
        moved = np.where(np.abs(self._changes) > self._rounding, np.abs(self._changes), np.nan)
        counts = np.isfinite(moved).sum(axis=0)
        middle = [np.nanmedian(moved[:, j]) if counts[j] else 0.0 for j in range(moved.shape[1])]
        return np.asarray(middle + self._rounding)

    @cached_property
    def witnesses(self) -> Flags:
        """The columns that tell a new episode: those that move most often, other than clocks; else all that move."""
        moved = np.abs(self._changes) > self._rounding
        steady = np.abs(self._changes - np.median(self._changes, axis=0)) <= 1e-3 * self.usual_steps + self._rounding
        often = np.where(steady.mean(axis=0) - (~moved).mean(axis=0) < 0.9, moved.mean(axis=0), 0.0)
        return np.asarray(often > 0.5 * often.max() if often.any() else moved.any(axis=0))

    def _change(self, rows: Rows, after: NDArray[np.generic]) -> Numbers:
        return np.asarray(after, dtype=np.float64) - np.asarray(self._observations[rows], dtype=np.float64)

    def unexpected(self, rows: Rows, after: NDArray[np.generic]) -> Flags:
        """Return which columns are far from what is expected after these rows, (rows, columns)."""
        return np.asarray(np.abs(self._model(rows) - self._change(rows, after)) > self.usual_errors)

    def columns(self, rows: Rows, after: NDArray[np.generic]) -> Flags:
        """Return which columns jump: farther than they usually move there, unexpected and unexplained, (rows, columns)."""
        return self._far(rows, after) & self.unexpected(rows, after) & ~self._explained(rows, after)

    def _explained(self, rows: Rows, after: NDArray[np.generic]) -> Flags:
        """Which steps are mostly explained by what is observed and commanded, in either model."""
        change = self._change(rows, after)
        errors = np.minimum(np.abs(self._model(rows) - change), np.abs(self._linear(rows) - change))
        return np.asarray(errors < _LEFT * np.abs(change))

    def _far(self, rows: Rows, after: NDArray[np.generic]) -> Flags:
        """Which columns move much farther than usual, and than just before and after: a transient is no jump."""
        before = self._change(np.maximum(rows - 1, 0), self._observations[rows])
        second = np.minimum(rows + 2, len(self._observations) - 1)
        behind = self._change(np.minimum(rows + 1, len(self._observations) - 1), self._observations[second])
        usual = np.maximum(self.usual_steps, np.maximum(np.abs(before), np.abs(behind)))
        return np.asarray(np.abs(self._change(rows, after)) > _STEPS * usual)

    def at(self, rows: Rows, after: NDArray[np.generic]) -> Flags:
        """Return, for each row, whether at least half of the telling columns jump."""
        found = self._most(self._far, rows, after)  # a cheap test, which few rows pass
        found[found] = self._most(self.columns, rows[found], after[found])
        return found

    def surprising(self, rows: Rows, after: NDArray[np.generic]) -> Flags:
        """Return, for each row, whether at least half of the telling columns are unexpected."""
        return self._most(self.unexpected, rows, after)

    def _most(self, test: Callable[[Rows, NDArray[np.generic]], Flags], rows: Rows, after: NDArray[np.generic]) -> Flags:
        if not len(rows) or len(self._chosen) < 10:
            return np.zeros(len(rows), dtype=bool)
        parts = [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]
        telling = np.concatenate([test(rows[part], after[part])[:, self.witnesses] for part in parts])
        return np.asarray(2 * telling.sum(axis=1) >= telling.shape[1]) & telling.any(axis=1)
