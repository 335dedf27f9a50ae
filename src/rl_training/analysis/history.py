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
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            found.setdefault(tuple(row.get(name) for name in _COUNTERS), {}).update(row)
        merged = dict(sorted(found.items(), key=lambda item: _order(item[1])))
        names = dict.fromkeys(name for row in merged.values() for name in row)
        return cls({name: _column([row.get(name) for row in merged.values()]) for name in names})

    def rows_with(self, name: str, member: int | None = None) -> "History":
        """Return the rows that have a metric, of all members or of one."""
        if name not in self:
            raise ConfigError(f"no metric {name!r} was written.{did_you_mean(name, self)} There are {', '.join(self)}")
        column = self[name]
        chosen = column != "" if column.dtype.kind == "U" else ~np.isnan(column)
        if member is not None:
            chosen &= self["member"] == member
        return History({other: values[chosen] for other, values in self.items()})


def _order(row: Mapping[str, Any]) -> tuple[int, int, int]:
    """Where a row belongs: gradient steps come before environment steps, and evaluations may be written later."""
    return row.get("env_step", -1), row.get("step", 0), row.get("member", 0)


def _column(values: Sequence[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    if all(isinstance(value, int) for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
