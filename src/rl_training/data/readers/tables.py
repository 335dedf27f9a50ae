"""Tables with a column map: CSV with numpy, Parquet with pyarrow, DataFrames as they come."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.columns import ColumnMap, guess_columns, matching
from rl_training.data.file_guards import check_size
from rl_training.data.offline_dataset import as_flags
from rl_training.data.readers.base import Candidate, Reader
from rl_training.data.reading import Arrays, Reading, ReadOptions, following_observations
from rl_training.errors import DatasetError

GAP = 5.0  # a time step this many times the usual one cuts the episode
_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0}
Columns = Mapping[str, NDArray[Any]]


class CSVReader(Reader):
    """Text with one header line, separated by comma, semicolon or tab."""

    name = "csv"
    title = "CSV"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file begins with a line of several words."""
        try:
            first = candidate.head.decode("utf-8-sig").splitlines()[0]
        except (UnicodeDecodeError, IndexError):
            return False
        return first.isprintable() or "\t" in first if any(mark in first for mark in ",;\t") else False

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the mapped columns."""
        check_size(str(path), 4 * path.stat().st_size, options.max_bytes)
        with path.open(encoding="utf-8-sig", newline="") as stream:
            line = stream.readline()
            delimiter = max(",;\t", key=line.count)
            header = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
        if len(set(header)) != len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise DatasetError(f"{path}: has two columns named `{twice}`")

        def load(names: Sequence[str]) -> Columns:
            return _csv_columns(path, [header.index(name) for name in names], names, delimiter)

        return table_reading(header, load, options.columns, str(path), self.title)


class ParquetReader(Reader):
    """Parquet; a column of lists counts as several columns."""

    name = "parquet"
    title = "Parquet"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file begins as Parquet does."""
        return candidate.head.startswith(b"PAR1")

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the mapped columns."""
        try:
            from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            raise DatasetError(f'{path}: Parquet needs pyarrow: pip install "rl-training[parquet]"') from None
        with parquet.ParquetFile(path) as file:
            stored = file.metadata
            claimed = sum(stored.row_group(i).total_byte_size for i in range(stored.num_row_groups))
            header = list(file.schema_arrow.names)

            def load(names: Sequence[str]) -> Columns:
                needed = max(claimed, 8 * stored.num_rows * len(names))
                check_size(str(path), needed, options.max_bytes, path.stat().st_size)
                table = file.read(columns=list(names))
                return {name: _arrow_column(table.column(name), f"{path}: `{name}`") for name in names}

            return table_reading(header, load, options.columns, str(path), self.title)


def frame_reading(frame: Any, columns: ColumnMap | None, source: str = "DataFrame") -> Reading:
    """Return the mapped columns of a pandas DataFrame, or of anything with `columns` and `frame[name].to_numpy()`."""

    def load(names: Sequence[str]) -> Columns:
        return {name: _stacked(np.asarray(frame[name].to_numpy()), f"{source}: `{name}`") for name in names}

    return table_reading([str(name) for name in frame.columns], load, columns, source, "DataFrame")


def table_reading(
    header: Sequence[str],
    load: Callable[[Sequence[str]], Columns],
    columns: ColumnMap | None,
    source: str,
    title: str,
) -> Reading:
    """Return the fields of a table; `load` gives columns by name, numbers or text."""
    notes: list[str] = []
    roles = columns or guess_columns(header, source)
    wide = {role: matching(getattr(roles, role), header, source) for role in _WIDE}
    single = {role: matching([name], header, source)[0] for role in _SINGLE if (name := getattr(roles, role)) is not None}
    notes.append(
        f"observations {_listed(wide['observations'])}, actions {_listed(wide['actions'])}, reward `{single['reward']}`"
    )
    loaded = load(list(dict.fromkeys([*(name for names in wide.values() for name in names), *single.values()])))
    if not len(loaded[single["reward"]]):
        raise DatasetError(f"{source}: has no rows")
    values: Arrays = {
        role: _matrix([(name, loaded[name]) for name in names], source) for role, names in wide.items() if names
    }
    values["rewards"] = _numbers(loaded[single["reward"]], single["reward"], source)
    flags = {
        target: as_flags(_numbers(loaded[single[role]], single[role], source), single[role], source)
        for role, target in (("terminal", "terminals"), ("done", "dones"), ("timeout", "timeouts"))
        if role in single
    }
    order, cuts = _order(loaded, single, source, notes)
    values = {name: array[order] for name, array in {**values, **flags}.items()}
    both = np.flatnonzero(values["dones"] & values["timeouts"]) if {"dones", "timeouts"} <= set(values) else None
    return Reading(source, title, _with_ends(values, cuts, source, notes), notes, both_ends=both)


_WIDE = ("observations", "actions", "next_observations", "next_actions")
_SINGLE = ("reward", "episode", "time", "terminal", "done", "timeout")


def _with_ends(values: Arrays, cuts: NDArray[np.bool_], source: str, notes: list[str]) -> Arrays:
    """Ends from the flags and from where episode or time breaks."""
    timeouts, dones = values.pop("timeouts", np.zeros_like(cuts)), values.pop("dones", None)
    if "terminals" in values:
        notes.append("ends: the terminal column marks true ends")
    elif dones is not None:
        values["terminals"] = dones & ~timeouts
        notes.append("ends: `done` rows are true ends, unless a timeout")
    else:
        values["terminals"] = np.zeros_like(cuts)
        notes.append("ends: no true ends are marked, so none are assumed")
    values["timeouts"] = timeouts | (cuts & ~values["terminals"])
    if "next_observations" in values:
        return values
    return following_observations(values, source, notes)


def _order(
    loaded: Columns, single: Mapping[str, str], source: str, notes: list[str]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Rows in the order of episode and time, and a flag on the last row before each break in either."""
    rows = len(loaded[single["reward"]])
    episode = np.zeros(rows, dtype=np.int64)
    if "episode" in single:
        _, first, inverse = np.unique(loaded[single["episode"]], return_index=True, return_inverse=True)
        episode = np.argsort(np.argsort(first))[inverse.reshape(-1)]  # numbered as they first appear
    time = _moments(loaded[single["time"]], single["time"], source) if "time" in single else np.arange(rows, dtype=np.float64)
    order = np.lexsort((time, episode))
    if (order != np.arange(rows)).any():
        notes.append(
            "rows are put in the order of " + " and ".join(f"`{single[r]}`" for r in ("episode", "time") if r in single)
        )
    episode, time = episode[order], time[order]
    cuts = np.append(episode[1:] != episode[:-1], True)
    if "time" in single:
        steps = np.diff(time, append=time[-1])
        usual = float(np.median(steps[~cuts])) if (~cuts).any() else 0.0
        if (repeated := np.flatnonzero((steps <= 0) & ~cuts)).size:
            raise DatasetError(
                f"{source}: `{single['time']}` repeats inside an episode in {repeated.size} rows (first: row "
                f"{int(order[repeated[0]])}); is an `episode` column missing from the column map?"
            )
        gaps = (steps > GAP * usual) & ~cuts
        if gaps.any():
            notes.append(f"{int(gaps.sum())} gaps of more than {GAP:g} usual time steps cut the episode")
        cuts = cuts | gaps
    return order, cuts


def _csv_columns(path: Path, positions: Sequence[int], names: Sequence[str], delimiter: str) -> Columns:
    """Columns of a CSV file: numbers where all cells are, text otherwise; an empty cell in a column of numbers is NaN."""
    options: dict[str, Any] = {"delimiter": delimiter, "skiprows": 1, "quotechar": '"', "encoding": "utf-8-sig"}
    try:
        table = np.loadtxt(path, usecols=positions, ndmin=2, comments=None, **options)
        return {name: table[:, i] for i, name in enumerate(names)}
    except (ValueError, IndexError):
        text = np.loadtxt(path, usecols=positions, ndmin=2, comments=None, dtype=str, **options)
    return {name: _parsed(text[:, i]) for i, name in enumerate(names)}


def _parsed(cells: NDArray[np.str_]) -> NDArray[Any]:
    """Numbers if every cell is a number, a truth value or empty; the text itself otherwise."""
    words, inverse = np.unique(np.char.strip(cells), return_inverse=True)
    try:
        values = [np.nan if not word else _WORDS.get(word.lower()) for word in words.tolist()]
        numbers = [float(word) if value is None else value for word, value in zip(words.tolist(), values, strict=True)]
    except ValueError:
        return cells
    return np.asarray(numbers)[inverse.reshape(-1)]


def _arrow_column(column: Any, where: str) -> NDArray[Any]:
    """A column of numbers or text, (rows,), or of equally long lists, (rows, length)."""
    import pyarrow as arrow  # type: ignore[import-untyped,import-not-found,unused-ignore]

    whole = column.combine_chunks()
    if arrow.types.is_list(whole.type) or arrow.types.is_fixed_size_list(whole.type) or arrow.types.is_large_list(whole.type):
        flat = whole.flatten()
        if whole.null_count or len(flat) % max(len(whole), 1):
            raise DatasetError(f"{where} holds lists of different lengths")
        lengths = set(whole.value_lengths().unique().to_pylist())
        if len(lengths) != 1:
            raise DatasetError(f"{where} holds lists of different lengths")
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(whole), -1)
    return np.asarray(whole.to_numpy(zero_copy_only=False))


def _stacked(values: NDArray[Any], where: str) -> NDArray[Any]:
    """A column of lists as a matrix; others as they are."""
    if values.dtype == object and len(values) and isinstance(values[0], list | tuple | np.ndarray):
        try:
            return np.stack([np.asarray(value, dtype=np.float64) for value in values])
        except (TypeError, ValueError):
            raise DatasetError(f"{where} holds lists of different lengths") from None
    return values


def _matrix(columns: Sequence[tuple[str, NDArray[Any]]], source: str) -> NDArray[Any]:
    parts = [_numbers(values, name, source) for name, values in columns]
    return np.concatenate([part if part.ndim == 2 else part[:, None] for part in parts], axis=1)


def _numbers(values: NDArray[Any], name: str, source: str) -> NDArray[np.float32]:
    """A column as numbers, or a DatasetError that shows the first cell that is none."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float32)
    try:
        return np.array([np.nan if value is None else value for value in values.tolist()], dtype=np.float32)
    except (TypeError, ValueError):
        row, cell = next(((i, v) for i, v in enumerate(values.tolist()) if not _is_number(v)), (0, "?"))
        raise DatasetError(
            f"{source}: column `{name}` holds text ({str(cell)[:30]!r} in row {row}); numbers are needed"
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _moments(values: NDArray[Any], name: str, source: str) -> NDArray[np.float64]:
    """Times as numbers: numbers themselves, dates in seconds."""
    if values.dtype.kind in "fiub":
        moments = values.astype(np.float64)
    else:
        try:
            dates = values if values.dtype.kind == "M" else np.char.rstrip(values.astype(str), "Z").astype("datetime64[ns]")
            moments = dates.astype("datetime64[ns]").astype(np.int64) / 1e9
        except ValueError as error:
            raise DatasetError(f"{source}: column `{name}` holds neither numbers nor ISO dates ({error})") from None
    if not np.isfinite(moments).all():
        raise DatasetError(f"{source}: column `{name}` has empty cells, so its rows have no order")
    return moments


def _listed(names: Sequence[str]) -> str:
    return f"`{names[0]}`" + (f" to `{names[-1]}` ({len(names)})" if len(names) > 1 else "")
