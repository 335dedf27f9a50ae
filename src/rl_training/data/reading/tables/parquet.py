"""Parquet; a column of lists counts as several columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import Allowance
from rl_training.data.reading.reading import Reading
from rl_training.data.reading.tables.table import Loaded, table_reading
from rl_training.errors import DatasetError

_COPIES = 3  # of a number as it is stored, that are in memory at once


class ParquetReader(Reader):
    """A Parquet file."""

    name = "parquet"
    title = "Parquet"
    takes_columns = True

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file begins as Parquet does."""
        return candidate.head.startswith(b"PAR1")

    def column_names(self, path: Path) -> Sequence[str]:
        """Return the names in the schema."""
        from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]

        with parquet.ParquetFile(path) as file:
            return list(file.schema_arrow.names)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the mapped columns."""
        try:
            from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            raise DatasetError(f'{path}: Parquet needs pyarrow: pip install "rl-training[parquet]"') from None
        with parquet.ParquetFile(path) as file:
            types = {field.name: field.type for field in file.schema_arrow}
            header = list(file.schema_arrow.names)

        def load(numbers: Sequence[str], as_written: Sequence[str]) -> Loaded:
            names = list(dict.fromkeys((*numbers, *as_written)))
            for name in names:
                _check_type(types[name], f"{path}: `{name}`")
            texts = [name for name in names if _is_text(types[name])]
            with parquet.ParquetFile(path, read_dictionary=texts) as file:  # a text that repeats is stored once
                allowance = Allowance(str(path), options.max_bytes)
                allowance.check(_COPIES * _parquet_bytes(file.metadata, names, texts), path.stat().st_size)
                columns = {name: _column(file, name, f"{path}: `{name}`") for name in names}
            return Loaded({name: columns[name] for name in numbers}, {name: columns[name] for name in as_written})

        return table_reading(header, load, options, str(path), self.title)


def _check_type(kind: Any, where: str) -> None:
    """Refuse a column that holds anything but numbers, text, times, or lists of numbers."""
    import pyarrow as arrow

    inner = kind.value_type if _is_list(kind) else kind
    if not (_is_number(inner) or (inner is kind and (_is_text(kind) or arrow.types.is_temporal(kind)))):
        raise DatasetError(f"{where} holds {kind}; numbers, text, times or lists of numbers are needed")


def _is_list(kind: Any) -> bool:
    import pyarrow as arrow

    return bool(arrow.types.is_list(kind) or arrow.types.is_fixed_size_list(kind) or arrow.types.is_large_list(kind))


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    return any(
        test(inner) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    )


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(inner) or types.is_large_string(inner))


def _parquet_bytes(metadata: Any, names: Sequence[str], texts: Sequence[str]) -> int:
    """Bytes of columns as numbers, counted by values, since a dictionary-encoded column may hold any number of them.

    Of columns of text also the bytes of the texts, as often as these are stored.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(j) for group in groups for j in range(group.num_columns)]
    inside = tuple(f"{name}." for name in names)
    values: int = sum(c.num_values for c in columns if c.path_in_schema in names or c.path_in_schema.startswith(inside))
    stored: int = sum(c.total_uncompressed_size for c in columns if c.path_in_schema in texts)
    return 8 * values + stored


def _column(file: Any, name: str, where: str) -> NDArray[Any]:
    """A column of numbers or text, (rows,), or of equally long lists, (rows, length)."""
    import pyarrow as arrow

    whole = file.read(columns=[name], use_threads=False).column(name).unify_dictionaries().combine_chunks()
    if _is_list(whole.type):
        flat = _decimals_as_floats(whole.flatten())
        if whole.null_count or len(flat) % max(len(whole), 1):
            raise DatasetError(f"{where} holds lists of different lengths")
        lengths = set(whole.value_lengths().unique().to_pylist())
        if len(lengths) != 1:
            raise DatasetError(f"{where} holds lists of different lengths")
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(whole), -1)
    if arrow.types.is_dictionary(whole.type):  # equal values are one object
        known = np.array([*_decimals_as_floats(whole.dictionary).to_pylist(), None], dtype=object)
        values: NDArray[Any] = known[whole.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
        return values if _is_text(whole.type) else values.astype(np.float64)
    return np.asarray(_decimals_as_floats(whole).to_numpy(zero_copy_only=False))


def _decimals_as_floats(values: Any) -> Any:
    import pyarrow as arrow

    return values.cast(arrow.float64()) if arrow.types.is_decimal(values.type) else values
