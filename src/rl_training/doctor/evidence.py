"""The input of the doctor's checks: valid arrays, how rows and columns are called, and where observations jump."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.source_rows import SourceRows
from rl_training.data.row_blocks import blocks
from rl_training.doctor.jumps import Jumps
from rl_training.envs.environments import EnvironmentSpaces

Rows = NDArray[np.intp]
_SHOWN = 3  # row numbers
_FEWEST = 20  # rows below which nothing is usual
_LOOK = 50_000  # rows that tell what is usual in a column


@dataclass
class CheckInput:
    """The data to check: valid arrays, the ends as they were marked, and what is known of the environment."""

    data: TransitionDataset
    terminals: NDArray[np.bool_]  # as marked
    timeouts: NDArray[np.bool_]
    both_ends: Rows | None = None  # rows marked as an end and as a time limit
    bad: dict[str, Rows] = field(default_factory=dict)  # rows with NaN or inf, by field
    bad_columns: dict[str, Rows] = field(default_factory=dict)  # the same for columns of observations and actions
    env: EnvironmentSpaces | None = None
    divided: bool = False  # whether the source says where episodes begin, even if there is only one
    source_rows: SourceRows | None = None  # None: row k of the data is row k of its source
    limit: int | None = None  # check no more rows than this, where that is enough

    def some(self, rows: Rows | Sequence[int]) -> str:
        """Return how many rows these are, and where the first of them are in their source."""
        found = np.asarray(rows)
        first = [int(row) for row in found[:_SHOWN]]
        shown = ", ".join(map(str, first)) if self.source_rows is None else self.source_rows.labels(first)
        shown += " of the rows read" if self.limit is not None else ""  # a dataset no longer knows its source
        return f"{len(found)} row{'s' * (len(found) != 1)} ({'first: ' * (len(found) > 1)}{shown})"

    def episode(self, number: int) -> str:
        """Return `episode 3`, with the file and the row or line in which it begins where the source is known."""
        if self.source_rows is None:
            return f"episode {number}"
        return f"episode {number} ({self.source_rows.place(int(self.data.episode_spans[0][number]))})"

    def named(self, role: str, columns: Iterable[Any]) -> str:
        """Return the names of columns of `observations` or `actions`, such as "`T1` (column 3), `T2` (column 4)"."""
        names = getattr(self.data, f"{role.removesuffix('s')}_names")
        numbers = [int(column) for column in columns]
        if names is None:
            return f"{role.removesuffix('s')} column{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
        return ", ".join(f"`{names[column]}` ({role.removesuffix('s')} column {column})" for column in numbers)

    @property
    def mapped(self) -> bool:
        """Whether columns have names, so that a column map can change them; arrays are changed where they are stored."""
        return self.data.observation_names is not None

    @property
    def leave_out(self) -> str:
        """Where columns are left out: "of the column map", or "of the data"."""
        return "of the column map" if self.mapped else "of the data"

    @cached_property
    def windows(self) -> list[slice]:
        """The ranges of rows that are checked."""
        rows = len(self.data)
        if self.limit is None or rows <= self.limit:
            return [slice(0, rows)]
        starts = np.linspace(0, rows - self.limit // 4, 4).astype(int)
        return [slice(int(start), int(start) + self.limit // 4) for start in starts]

    def sample(self, name: str) -> NDArray[Any]:
        """Return the rows of a field that are checked, (rows, columns)."""
        values = getattr(self.data, name).reshape(len(self.data), -1)
        return values[self.windows[0]] if len(self.windows) == 1 else np.concatenate([values[part] for part in self.windows])

    @cached_property
    def sample_rows(self) -> Rows:
        """The numbers of the rows that are checked."""
        return np.concatenate([np.arange(part.start, part.stop) for part in self.windows])

    @property
    def every_row(self) -> str:
        """What "every row" means: all of them, or those that were checked."""
        checked = len(self.sample_rows)
        return "every row" if checked == len(self.data) else f"all of {checked:,} rows that were checked"

    @cached_property
    def marked(self) -> NDArray[np.bool_]:
        """Ends as they were marked, true or not."""
        return self.terminals | self.timeouts

    @cached_property
    def unsure(self) -> Rows:
        """Rows with NaN or inf, and the rows before them."""
        found = [near for rows in self.bad.values() for near in (rows, rows - 1)]
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.intp)

    @cached_property
    def jumps(self) -> Jumps:
        """How observations usually move, and where they jump."""
        inside = self.sample_rows[~self.marked[self.sample_rows]]
        inside = inside[inside < len(self.data) - 1]
        return Jumps(self.data.observations, self.data.actions, np.setdiff1d(inside, self.unsure), self.tolerance)

    @cached_property
    def tolerance(self) -> NDArray[np.float64]:
        """How far apart two observations may be in each column to count as the same."""
        part = self.windows[0]
        rows = slice(part.start, min(part.stop, part.start + _LOOK))
        here, after = self.data.observations[rows], self.data.next_observations[rows]
        change = np.abs(after - here).astype(np.float64)
        largest = np.abs(here).max(axis=0).astype(np.float64)
        return np.asarray(1e-3 * np.median(change, axis=0) + 1e-6 * change.mean(axis=0) + 1e-6 * largest + 1e-12)

    @cached_property
    def read_again(self) -> Rows:
        """The few columns whose next observations are not those of the row after in most rows, while others go on."""
        part = self.windows[0]
        rows = np.arange(part.start, min(part.stop - 1, part.start + _LOOK))
        rows = np.setdiff1d(rows[~self.marked[rows]], self.unsure)
        if len(rows) < _FEWEST:
            return np.empty(0, dtype=np.intp)
        here, after = self.data.observations[rows], self.data.observations[rows + 1]
        moves = (np.abs(after - here) > self.tolerance).mean(axis=0)
        breaks = (np.abs(after - self.data.next_observations[rows]) > self.tolerance).mean(axis=0)
        again = np.flatnonzero(breaks > 0.5)
        going_on = (moves > 0.1) & (breaks < 0.1 * moves)  # one that hardly moves goes on in shuffled rows too
        return again if going_on.sum() > len(again) else again[:0]

    @cached_property
    def _compared(self) -> NDArray[np.float64]:
        """The tolerance, without a limit for columns that were read again and so say nothing."""
        limits = self.tolerance.copy()
        limits[self.read_again] = np.inf
        return limits

    @cached_property
    def broken(self) -> Rows:
        """Rows whose next observation is not the observation of the row after, wherever no end is marked."""
        found = []
        for window in self.windows:
            for part in blocks(window.stop - window.start - 1):
                rows = slice(window.start + part.start, window.start + part.stop)
                after = self.data.observations[rows.start + 1 : rows.stop + 1]
                apart = (np.abs(after - self.data.next_observations[rows]) > self._compared).any(axis=1)
                found.append(rows.start + np.flatnonzero(apart & ~self.marked[rows]))
        rows_found = np.concatenate(found) if found else np.empty(0, dtype=np.intp)
        return np.setdiff1d(rows_found, self.unsure)

    @cached_property
    def seams(self) -> Rows:
        """Unmarked rows after which most observations jump, as at the beginning of an episode."""
        rows = self.jumps.rows
        found = rows[self.jumps.at(rows, self.data.observations[rows + 1])] if len(rows) >= 10 else rows[:0]
        return found if len(found) < 0.1 * len(rows) else rows[:0]

    @cached_property
    def leaks(self) -> Rows:
        """Cut rows whose next observation is the first of the following episode, a jump away."""
        cuts = np.flatnonzero(self.marked[:-1] & ~self.data.terminals[:-1])[:5000]
        apart = np.abs(self.data.observations[cuts + 1] - self.data.next_observations[cuts])
        rows: Rows = np.setdiff1d(cuts[(apart <= self._compared).all(axis=1)], self.unsure)
        found = rows[self.jumps.surprising(rows, self.data.observations[rows + 1])]
        return rows if len(found) and 2 * len(found) >= len(rows) and 2 * len(rows) > len(cuts) else rows[:0]
