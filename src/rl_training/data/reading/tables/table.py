"""What CSV, Parquet and DataFrames share: columns and a column map become the fields of a log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.notes import Count, Note, Usual
from rl_training.data.reading.reading import NO_LIMITS, Arrays, Reading, reading_of
from rl_training.data.reading.source_rows import SourceRows
from rl_training.data.reading.tables.columns import FLAGS, Selected, Selection, guess_columns, select
from rl_training.data.reading.tables.dates import date_seconds, is_empty
from rl_training.data.reading.tables.row_order import row_order
from rl_training.data.reading.unsupported import refuse_labels
from rl_training.data.spaces import Names
from rl_training.errors import DatasetError

Columns = Mapping[str, NDArray[Any]]
_Float = TypeVar("_Float", np.float32, np.float64)


@dataclass(frozen=True)
class Loaded:
    """Columns of a table: some as numbers where they are numbers, some as written, and the lines they stand in."""

    numbers: Columns
    as_written: Columns
    lines: NDArray[np.int64] | None = None
    notes: Sequence[Note] = ()


Load = Callable[[Sequence[str], Sequence[str]], Loaded]
"""Loads columns by name: the first list as numbers, the second as written."""


def table_reading(header: Sequence[str], load: Load, options: ReadOptions, source: str, title: str) -> Reading:
    """Return the fields of a table, its rows in order, each field computed as the column map says."""
    selection = select(options.columns or guess_columns(header, source), header, source)
    loaded = load(selection.numbers, list(selection.as_written.values()))
    rows = len(next(iter({**loaded.numbers, **loaded.as_written}.values()), ()))
    if not rows:
        raise DatasetError(f"{source}: has no rows")
    table = _Table(selection, loaded, SourceRows.counted(rows, loaded.lines), source, cut_gaps=options.cut_gaps)
    reading = reading_of(table.fields(), list(header), source, title)
    reading.gaps = table.gaps & ~(reading.arrays["terminals"] | reading.arrays.get("timeouts", False))
    reading.arrays["timeouts"] = reading.arrays.get("timeouts", False) | (table.cuts & ~reading.arrays["terminals"])
    reading.divided = bool(selection.as_written)
    reading.notes = [*table.notes, *(note for note in reading.notes if note is not NO_LIMITS or not reading.divided)]
    reading.source_rows, reading.time_skips = table.places, table.skips
    reading.observation_names, reading.action_names = (table.names(role) for role in ("observations", "actions"))
    return reading


class _Table:
    """A loaded table with its rows in order, less those at the start of an episode for which `diff` or `lag` has no value."""

    def __init__(self, selection: Selection, loaded: Loaded, places: SourceRows, source: str, *, cut_gaps: bool) -> None:
        self._selection, self._loaded, self._source, self._as_found = selection, loaded, source, places
        self.notes: list[Note] = [Usual(selection.note), *loaded.notes]
        chosen = selection.as_written
        episode, time = ((chosen[r], loaded.as_written[chosen[r]]) if r in chosen else None for r in ("episode", "time"))
        self._order, episodes, cuts, skips = row_order(places, episode, time, source, self.notes, cut_gaps=cut_gaps)
        self._age = _age(cuts)
        flags = [self._flag(role) for role in FLAGS if role in selection.single]
        self._age = _age(np.logical_or.reduce([cuts, *flags]))
        self._kept = self._age >= max(one.source.reach for one in selection.all)
        if not self._kept.any():
            raise DatasetError(f"{source}: no row is left: every episode is shorter than `diff` and `lag` look back")
        if left_out := int((~self._kept).sum()):
            why = "left out, where `diff` or `lag` has no value"
            self.notes.append(
                Count(left_out, f"first row of an episode is {why}", f"first rows of episodes are {why}", usual=True)
            )
        self.cuts, self.skips, episodes = cuts[self._kept], skips[self._kept], episodes[self._kept]
        self.gaps = self.cuts & np.append(episodes[1:] == episodes[:-1], False)
        self.places = places.take(self._order[self._kept])

    def fields(self) -> Arrays:
        """Return every mapped field, with the rows that have all values."""
        wide = {role: chosen for role, chosen in self._selection.wide.items() if chosen}
        refuse_labels({one.name: self._stored(one) for one in wide["actions"]}, self._source)
        columns = {role: [self._column(one)[self._kept] for one in chosen] for role, chosen in wide.items()}
        targets = {"reward": "rewards", "terminal": "terminals", "done": "dones", "timeout": "timeouts"}
        flat = {targets[role]: self._column(one)[self._kept] for role, one in self._selection.single.items()}
        flat |= {target: np.nan_to_num(flat[target]) for target in ("terminals", "dones", "timeouts") if target in flat}
        return {role: np.column_stack(parts) for role, parts in columns.items()} | flat

    def names(self, role: str) -> Names:
        """Return the names of the columns of a field; those of a column of lists are numbered."""
        widths = {one.name: self._stored(one).shape[1:] for one in self._selection.wide[role]}
        listed = ([name] if not shape else [f"{name}[{k}]" for k in range(shape[0])] for name, shape in widths.items())
        return tuple(name for names in listed for name in names)

    def _stored(self, one: Selected) -> NDArray[Any]:
        """The column as it is stored; of a computed one, only that it is a column of floats matters."""
        return self._loaded.numbers[one.source.text] if one.source.is_column else np.empty(0)

    def _column(self, one: Selected) -> NDArray[np.float32]:
        """The values of a selected column in the order of the rows, in single precision."""
        if one.source.is_column:
            (name,) = one.source.columns
            return self._numbers(name, np.float32)[self._order]
        return one.source.evaluate({name: self._ordered[name] for name in one.source.columns}, self._age).astype(np.float32)

    def _flag(self, role: str) -> NDArray[np.bool_]:
        """A flag of every row; anything but 0 and 1 is refused, except that a condition on NaN marks nothing."""
        one = self._selection.single[role]
        values = self._column(one)
        unknown = np.zeros_like(self._age, dtype=bool) if one.source.is_column else np.isnan(values)
        if count := int((unknown & (self._age >= one.source.reach)).sum()):
            why = f"no end, since `{one.name}` is computed from NaN"
            self.notes.append(Count(count, f"row marks {why}", f"rows mark {why}"))
        bad = ~np.isin(values, (0.0, 1.0)) & ~unknown
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            where = self._as_found.place(int(self._order[row]))
            raise DatasetError(
                f"{self._source}: `{one.name}` marks ends (`{role}`) and is {values[row]:g} in {where}: 0 or 1 is needed, "
                "or a condition such as `x > 5`"
            )
        return np.asarray(values == 1.0)

    @cached_property
    def _ordered(self) -> dict[str, NDArray[np.float64]]:
        """The columns that expressions read, in the order of the rows, in double precision."""
        computed = [one.source for one in self._selection.all if not one.source.is_column]
        columns = {name: self._numbers(name, np.float64)[self._order] for source in computed for name in source.columns}
        for name, values in columns.items():
            if values.ndim != 1:
                raise DatasetError(f"{self._source}: column `{name}` holds lists; an expression takes single numbers")
        return columns

    def _numbers(self, name: str, kind: type[_Float]) -> NDArray[_Float]:
        """A column as numbers in the order of the file, or a DatasetError that shows the first cell that is not one."""
        values = self._loaded.numbers[name]
        if values.dtype.kind in "fiub":
            return values.astype(kind)
        is_time = name == self._selection.as_written.get("time")
        if is_time and kind is np.float64:  # in an expression
            return date_seconds(self._loaded.as_written[name], f"{self._source}: column `{name}`", self._as_found).astype(
                kind
            )
        try:
            return np.array([np.nan if is_empty(value) else value for value in values.tolist()], dtype=kind)
        except (TypeError, ValueError):
            row, cell = next(((i, v) for i, v in enumerate(values.tolist()) if not _is_number(v)), (0, "?"))
            where = self._as_found.place(row)
            raise DatasetError(
                f"{self._source}: column `{name}` holds text ({str(cell)[:30]!r} in {where}); numbers are needed"
                f"{f', such as the hour: `({name} % 86400) / 3600`' * is_time}"
            ) from None


def _age(ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many rows of its episode stand before each row, given a flag on the last rows of episodes."""
    rows = np.arange(len(ends))
    starts = np.append(True, ends[:-1])
    return rows - np.maximum.accumulate(np.where(starts, rows, 0))


def stacked(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Return a column of lists as a matrix; others unchanged."""
    if values.dtype == object and len(values) and isinstance(values[0], list | tuple | np.ndarray):
        try:
            return np.stack([np.asarray(value, dtype=np.float64) for value in values])
        except (TypeError, ValueError):
            raise DatasetError(f"{where} holds lists of different lengths") from None
    return values


def frame_reading(frame: Any, options: ReadOptions, source: str = "DataFrame") -> Reading:
    """Return the mapped columns of a pandas DataFrame, or of anything with `columns` and `frame[name].to_numpy()`."""
    own = {str(name): name for name in frame.columns}

    def values(name: str) -> NDArray[Any]:
        return np.asarray(frame[own[name]].to_numpy())

    return table_reading(list(own), _loader(values, source), options, source, "DataFrame")


def mapping_reading(arrays: Mapping[str, Any], options: ReadOptions, source: str = "dataset") -> Reading:
    """Return the mapped columns of a table given as arrays by column name."""
    own = {str(name): np.asarray(values) for name, values in arrays.items()}
    lengths = {name: len(values) if values.ndim else 0 for name, values in own.items()}
    if len(set(lengths.values())) > 1:
        raise DatasetError(f"{source}: the columns of a table must share one length, got {lengths}")
    return table_reading(list(own), _loader(own.__getitem__, source), options, source, "a mapping of columns")


def _loader(values: Callable[[str], NDArray[Any]], source: str) -> Load:
    """Loads columns that are in memory."""

    def load(numbers: Sequence[str], as_written: Sequence[str]) -> Loaded:
        columns = {name: stacked(values(name), f"{source}: `{name}`") for name in (*numbers, *as_written)}
        return Loaded({name: columns[name] for name in numbers}, {name: columns[name] for name in as_written})

    return load


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
