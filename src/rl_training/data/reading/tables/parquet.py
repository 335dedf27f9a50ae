"""Parquet; a column of lists counts as several columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.reading import Reading
from rl_training.data.reading.tables.table import Loaded, table_reading
from rl_training.errors import DatasetError


class ParquetReader(Reader):
    """A Parquet file."""

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

            def load(numbers: Sequence[str], as_written: Sequence[str]) -> Loaded:
                names = list(dict.fromkeys((*numbers, *as_written)))
                check_size(str(path), 2 * _parquet_bytes(file.metadata, names), options.max_bytes, path.stat().st_size)
                table = file.read(columns=names)
                columns = {name: _arrow_column(table.column(name), f"{path}: `{name}`") for name in names}
                return Loaded({name: columns[name] for name in numbers}, {name: columns[name] for name in as_written})

            return table_reading(header, load, options, str(path), self.title)


def _parquet_bytes(metadata: Any, names: Sequence[str]) -> int:
    """Bytes of columns as numbers, counted by values, since a dictionary-encoded column may hold any number of them."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(j) for group in groups for j in range(group.num_columns)]
    inside = tuple(f"{name}." for name in names)
    values: int = sum(c.num_values for c in columns if c.path_in_schema in names or c.path_in_schema.startswith(inside))
    return 8 * values


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
