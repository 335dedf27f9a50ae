"""Where the rows of a reading come from: file, row and line, for messages that a user can look up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SourceRows:
    """For every row of a reading its number in its file, and in a text file its line."""

    rows: NDArray[np.int64]  # (rows,), counted from 0
    lines: NDArray[np.int64] | None = None  # (rows,), counted from 1; None for anything but text
    files: NDArray[np.int32] | None = None  # (rows,): which of `names`; None for a single file
    names: tuple[str, ...] = ()

    @classmethod
    def counted(cls, rows: int, lines: NDArray[np.int64] | None = None) -> "SourceRows":
        """Return the entries of all rows of one file, in order."""
        return cls(np.arange(rows), lines)

    def take(self, chosen: NDArray[Any]) -> "SourceRows":
        """Return the entries of some rows, by number or by flag."""
        lines = None if self.lines is None else self.lines[chosen]
        files = None if self.files is None else self.files[chosen]
        return SourceRows(self.rows[chosen], lines, files, self.names)

    def label(self, row: int) -> str:
        """Return `12`, `line 14` or `b.csv line 14` for a row of the reading."""
        place = f"{self.rows[row]}" if self.lines is None else f"line {self.lines[row]}"
        if self.files is None or len(self.names) < 2:
            return place
        return f"{self.names[int(self.files[row])]} {'row ' * (self.lines is None)}{place}"

    def place(self, row: int) -> str:
        """Return `row 12`, `line 14` or `b.csv line 14` for a row of the reading."""
        alone = self.lines is None and (self.files is None or len(self.names) < 2)
        return f"{'row ' * alone}{self.label(row)}"

    def labels(self, rows: Sequence[int] | NDArray[Any]) -> str:
        """Return the labels of some rows in one text, such as `line 3, line 9`."""
        return ", ".join(self.label(int(row)) for row in rows)
