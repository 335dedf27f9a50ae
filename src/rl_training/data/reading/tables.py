"""Tables with a column map: what CSV, Parquet and DataFrames share, and the readers of the latter two."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.config.columns import ColumnMap
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.columns import guess_columns, matching
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.reading import Arrays, Reading, reading_of
from rl_training.data.reading.row_order import row_order
from rl_training.errors import DatasetError

Columns = Mapping[str, NDArray[Any]]


class ParquetReader(Reader):
    """Parquet; a column of lists counts as several columns."""

    name = "parquet"
    title = "Parquet"
    takes_columns = True

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
            header = list(file.schema_arrow.names)

            def load(numbers: Sequence[str], text: Sequence[str]) -> Columns:
                names = [*numbers, *text]
                check_size(str(path), 2 * _parquet_bytes(file.metadata, names), options.max_bytes, path.stat().st_size)
                table = file.read(columns=list(names))
                return {name: _arrow_column(table.column(name), f"{path}: `{name}`") for name in names}

            return table_reading(header, load, options.columns, str(path), self.title)


def _parquet_bytes(metadata: Any, names: Sequence[str]) -> int:
    """Bytes of columns as numbers, counted by values, since a dictionary-encoded column may hold any number of them."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(j) for group in groups for j in range(group.num_columns)]
    inside = tuple(f"{name}." for name in names)
    values: int = sum(c.num_values for c in columns if c.path_in_schema in names or c.path_in_schema.startswith(inside))
    return 8 * values


def frame_reading(frame: Any, columns: ColumnMap | None, source: str = "DataFrame") -> Reading:
    """Return the mapped columns of a pandas DataFrame, or of anything with `columns` and `frame[name].to_numpy()`."""
    own = {str(name): name for name in frame.columns}

    def load(numbers: Sequence[str], text: Sequence[str]) -> Columns:
        return {n: _stacked(np.asarray(frame[own[n]].to_numpy()), f"{source}: `{n}`") for n in (*numbers, *text)}

    return table_reading(list(own), load, columns, source, "DataFrame")


def table_reading(
    header: Sequence[str],
    load: Callable[[Sequence[str], Sequence[str]], Columns],
    columns: ColumnMap | None,
    source: str,
    title: str,
) -> Reading:
    """Return the fields of a table; `load` returns columns by name, the first list as numbers, the second as written."""
    notes: list[str] = []
    roles = columns or guess_columns(header, source)
    single = {role: matching([name], header, source)[0] for role in _SINGLE if (name := getattr(roles, role)) is not None}
    named = {role: [name for name in getattr(roles, role) if name in header] for role in _WIDE}
    wide = {
        role: matching(getattr(roles, role), header, source, _others(named, role) | set(single.values())) for role in _WIDE
    }
    notes.append(
        f"observations {_listed(wide['observations'])}, actions {_listed(wide['actions'])}, reward `{single['reward']}`"
    )
    numbers = [*(name for names in wide.values() for name in names), *(n for r, n in single.items() if r not in _AS_WRITTEN)]
    loaded = load(list(dict.fromkeys(numbers)), [single[role] for role in _AS_WRITTEN if role in single])
    if not len(loaded[single["reward"]]):
        raise DatasetError(f"{source}: has no rows")
    values: Arrays = {
        role: _matrix([(name, loaded[name]) for name in names], source) for role, names in wide.items() if names
    }
    values["rewards"] = _numbers(loaded[single["reward"]], single["reward"], source)
    for role, target in (("terminal", "terminals"), ("done", "dones"), ("timeout", "timeouts")):
        if role in single:
            values[target] = _numbers(loaded[single[role]], single[role], source)
    episode, time = ((single[role], loaded[single[role]]) if role in single else None for role in _AS_WRITTEN)
    order, cuts = row_order(len(values["rewards"]), episode, time, source, notes)
    reading = reading_of({name: array[order] for name, array in values.items()}, list(header), source, title)
    marked = reading.arrays.get("timeouts", np.zeros_like(cuts))
    reading.arrays["timeouts"] = marked | (cuts & ~reading.arrays["terminals"])
    reading.notes = notes + [note for note in reading.notes if "no time limits" not in note or not cuts[:-1].any()]
    return reading


def _others(named: Mapping[str, Sequence[str]], role: str) -> set[str]:
    """The columns that other roles name explicitly, which patterns skip."""
    return {name for other, names in named.items() if other != role for name in names}


_AS_WRITTEN = ("episode", "time")  # identifiers and dates, which are not used as numbers


_WIDE = ("observations", "actions", "next_observations", "next_actions")
_SINGLE = ("reward", "episode", "time", "terminal", "done", "timeout")


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
    """A column of lists as a matrix; others unchanged."""
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
    """A column as numbers, or a DatasetError that shows the first cell that is not a number."""
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


def _listed(names: Sequence[str]) -> str:
    return f"`{names[0]}`" + (f" to `{names[-1]}` ({len(names)})" if len(names) > 1 else "")
