"""The input of the doctor's checks, and what they find."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_blocks import blocks
from rl_training.envs.environments import EnvironmentSpaces

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something wrong or doubtful."""

    code: str
    severity: Severity
    evidence: str  # what was seen, where
    fix: str  # what to do, often a flag to add

    def __str__(self) -> str:
        return f"{self.code}: {self.evidence}; {self.fix}"

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)


@dataclass
class CheckInput:
    """The data to check: valid arrays, the ends as they were marked, and what is known of the environment."""

    data: TransitionDataset
    terminals: NDArray[np.bool_]  # as marked
    timeouts: NDArray[np.bool_]
    both_ends: NDArray[np.intp] | None = None  # rows marked as done and as a time limit
    bad: dict[str, NDArray[np.intp]] = field(default_factory=dict)  # rows with NaN or inf, by field
    env: EnvironmentSpaces | None = None
    limit: int | None = None  # check no more rows than this, where that is enough

    @cached_property
    def windows(self) -> list[slice]:
        """The ranges of rows that are checked."""
        rows = len(self.data)
        if self.limit is None or rows <= self.limit:
            return [slice(0, rows)]
        starts = np.linspace(0, rows - self.limit // 4, 4).astype(int)
        return [slice(int(start), int(start) + self.limit // 4) for start in starts]

    def per_row(self, measure: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
        """Return one number for each row that is checked, measured in blocks."""
        parts = [(window.start, part) for window in self.windows for part in blocks(window.stop - window.start)]
        return np.concatenate([measure(slice(start + part.start, start + part.stop)) for start, part in parts])

    @cached_property
    def marked(self) -> NDArray[np.bool_]:
        """Ends as they were marked, true or not."""
        return self.terminals | self.timeouts

    @cached_property
    def step_scale(self) -> NDArray[np.float64]:
        """The usual change of each observation column in a step."""
        part = self.windows[0]
        rows = slice(part.start, min(part.stop, part.start + 50_000))
        change = np.abs(self.data.next_observations[rows] - self.data.observations[rows]).astype(np.float64)
        return np.asarray(np.median(change, axis=0) + 1e-3 * change.mean(axis=0) + 1e-12)

    @cached_property
    def tolerance(self) -> NDArray[np.float64]:
        """How far apart two observations may be in each column to count as the same."""
        return 1e-3 * self.step_scale + 1e-6

    @cached_property
    def broken(self) -> NDArray[np.intp]:
        """Rows whose next observation is not the observation of the row after, wherever no end is marked."""
        found = []
        for window in self.windows:
            for part in blocks(window.stop - window.start - 1):
                rows = slice(window.start + part.start, window.start + part.stop)
                after = self.data.observations[rows.start + 1 : rows.stop + 1]
                apart = (np.abs(after - self.data.next_observations[rows]) > self.tolerance).any(axis=1)
                found.append(rows.start + np.flatnonzero(apart & ~self.marked[rows]))
        rows_found = np.concatenate(found) if found else np.empty(0, dtype=np.intp)
        unsure = [near for rows in self.bad.values() for near in (rows, rows - 1)]  # NaN has no successor
        return np.setdiff1d(rows_found, np.concatenate(unsure)) if unsure else rows_found

    @cached_property
    def leaks(self) -> NDArray[np.intp]:
        """Cut rows whose next observation is the first of the following episode, a jump away."""
        cuts = np.flatnonzero(self.marked[:-1] & ~self.data.terminals[:-1])[:5000]
        apart = np.abs(self.data.observations[cuts + 1] - self.data.next_observations[cuts])
        same = (apart <= self.tolerance).all(axis=1)
        rows: NDArray[np.intp] = cuts[same]
        real = len(rows) >= 3 and 2 * len(rows) > len(cuts) and np.median(self.jumps(rows)) > 2.0 * self.usual_jump
        return rows if real else rows[:0]

    @cached_property
    def usual_jump(self) -> float:
        """How far the observation usually moves inside episodes."""
        inside = np.flatnonzero(~self.marked[: self.windows[0].stop - 1])[:20_000]
        return float(np.median(self.jumps(inside))) if len(inside) else np.inf

    def jumps(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return how far the observation moves from a row to the next, in usual steps: the median over the columns.

        A clock that wraps around or a changed set-point moves one column; a new episode moves most of them.
        """
        rows = rows[rows < len(self.data) - 1]
        change = np.abs(self.data.observations[rows + 1] - self.data.observations[rows]) / self.step_scale
        return np.asarray(np.sort(change, axis=1)[:, change.shape[1] // 2], dtype=np.float64)
