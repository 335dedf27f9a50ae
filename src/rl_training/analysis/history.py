"""The metrics of a run as columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, did_you_mean

_COUNTERS = ("env_step", "step", "member")  # what is written at equal counters for a member is one row


class History(dict[str, NDArray[Any]]):
    """The metrics of a run: for each name a column, all of equal length, with one row per logged step and member.

    A column is NaN where a row has no such metric: evaluations are rarer than log rows. `rows_with` leaves those rows out.
    Works as it is in `pandas.DataFrame(history)`.
    """

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> "History":
        """Return the columns of metric rows, in the order of their steps."""
        return cls().extended(rows)

    def extended(self, rows: Sequence[Mapping[str, Any]]) -> "History":
        """Return the columns with further rows in them; only these cost time in Python."""
        names = dict.fromkeys([*self, *(name for row in rows for name in row)])
        columns = {name: _joined(self.get(name), self.rows, [row.get(name) for row in rows]) for name in names}
        return History(_merged(columns, self.rows + len(rows)))

    @property
    def rows(self) -> int:
        """The length of every column."""
        return len(next(iter(self.values()), ()))

    def rows_with(self, name: str, member: int | None = None) -> "History":
        """Return the rows that have a metric, of all members or of one."""
        if name not in self:
            raise ConfigError(f"no metric {name!r} was written.{did_you_mean(name, self)} There are {', '.join(self)}")
        column = self[name]
        chosen = column != "" if column.dtype.kind == "U" else ~np.isnan(column)
        if member is not None:
            chosen &= self["member"] == member
        return History({other: values[chosen] for other, values in self.items()})


_Column = tuple[NDArray[Any], NDArray[np.bool_]]  # values, and where there is one


def _joined(known: NDArray[Any] | None, count: int, further: Sequence[Any]) -> _Column:
    """A column of `count` rows and some values after them, None for a row without one."""
    present = np.array([value is not None for value in further], dtype=np.bool_)
    fresh = _column(further)
    if known is None:
        return np.concatenate((np.zeros(count, fresh.dtype), fresh)), np.concatenate((np.zeros(count, np.bool_), present))
    there = known != "" if known.dtype.kind == "U" else ~np.isnan(known)
    if not present.any():  # fits to any kind of column
        fresh = np.zeros(len(fresh), known.dtype)
    return np.concatenate((known, fresh)), np.concatenate((there, present))


def _merged(columns: Mapping[str, _Column], count: int) -> dict[str, NDArray[Any]]:
    """The columns in order, with one row for what was written at equal counters; later values replace earlier ones.

    Gradient steps come before environment steps. The order is found anew each time, since evaluations may be written later.
    """
    missing = np.full(count, -1)
    keys = [np.where(*columns[name][::-1], -1) if name in columns else missing for name in _COUNTERS]
    order = np.lexsort(keys[::-1])
    differs = [np.diff(key[order]) != 0 for key in keys]
    starts = np.flatnonzero(np.concatenate((np.ones(min(count, 1), np.bool_), np.logical_or.reduce(differs))))
    found = {}
    for name, (values, present) in columns.items():
        places = np.where(present[order], np.arange(count), -1)
        last = np.maximum.reduceat(places, starts) if count else places
        column = values[order][last]
        if (last < 0).any():
            column = np.where(last < 0, "", column) if column.dtype.kind == "U" else np.where(last < 0, np.nan, column)
        found[name] = column
    return found


def _column(values: Sequence[Any]) -> NDArray[Any]:
    """Values as an array: text, or whole numbers if all are, or numbers; a value that is None as zero."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        return np.array(["" if value is None else str(value) for value in values])
    whole = all(isinstance(value, int) for value in known)
    return np.array([0 if value is None else value for value in values], dtype=np.int64 if whole else np.float64)
