"""Datasets from anywhere: files and directories of many formats, dictionaries of arrays, DataFrames."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_training.config.blocks import ReadOptions
from rl_training.config.columns import ColumnMap
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.base import Candidate
from rl_training.data.reading.formats import READERS
from rl_training.data.reading.minari import minari_path
from rl_training.data.reading.reading import Reading, reading_of, settle
from rl_training.data.reading.tables import frame_reading
from rl_training.errors import ConfigError, DatasetError, RLTrainingError, did_you_mean

Source = str | os.PathLike[str] | Mapping[str, Any] | Any
"""A path, `minari:ID`, a mapping of arrays, or a DataFrame."""

_MINARI = "minari:"


def load_dataset(
    source: Source, format: str = "auto", columns: ColumnMap | Mapping[str, Any] | None = None, **options: Any
) -> TransitionDataset:
    """Return the checked dataset of a source, its format recognised by content unless named.

    `columns` is the column map of a table. `options` are those of `ReadOptions`: ends, reward_lag, on_bad_rows,
    action_scale, action_low, action_high, max_bytes. `origin` of the result says what was recognised and how ends were read.
    """
    return read_dataset(source, format, ReadOptions.checked({"columns": columns, **options}, "load_dataset: ")).dataset()


def read_dataset(source: Source, format: str = "auto", options: ReadOptions | None = None) -> Reading:
    """Return the transitions of a source under our names, with the requested fixes applied, not yet checked."""
    options = options or ReadOptions.checked({})
    if isinstance(source, str | os.PathLike):
        return _read_path(source, format, options)
    if not isinstance(source, Mapping) and not hasattr(source, "columns"):
        raise DatasetError(f"a dataset is a path, a mapping of arrays or a DataFrame, not {type(source).__name__}")
    with _one_line_errors("dataset"):
        if isinstance(source, Mapping):
            return settle(reading_of(source, list(source), "dataset", "a mapping of arrays"), options)
        return settle(frame_reading(source, options.columns), options)


def _read_path(source: str | os.PathLike[str], format: str, options: ReadOptions) -> Reading:
    text = os.fspath(source)
    path = minari_path(text.removeprefix(_MINARI)) if text.startswith(_MINARI) else Path(text)
    if format != "auto" and format not in READERS:
        raise DatasetError(f"unknown format {format!r}.{did_you_mean(format, READERS)} There are: auto, {', '.join(READERS)}")
    with _one_line_errors(str(path)):
        if not path.is_file() and not path.is_dir():
            exists = path.exists() or path.is_symlink()
            raise DatasetError(f"{path}: is not a regular file" if exists else f"{path}: there is no such file or directory")
        reader = READERS[_recognised(path) if format == "auto" else format]
        if options.columns is not None and not reader.takes_columns:
            raise ConfigError(f"{path}: is read as {reader.title}, which has no columns to name; leave out `columns`")
        return reader.read(path, options).settled(options)


@contextlib.contextmanager
def _one_line_errors(source: str) -> Iterator[None]:
    """Turn any error into a one-line DatasetError: the libraries that parse foreign files raise errors of every kind."""
    try:
        yield
    except RLTrainingError:
        raise
    except MemoryError:
        raise DatasetError(f"{source}: does not fit in memory; set max_dataset_bytes, or convert it in parts") from None
    except Exception as error:
        cause = (str(error) or type(error).__name__).splitlines()[0]
        raise DatasetError(f"{source}: cannot be read: {cause[:200]}") from error


def _recognised(path: Path) -> str:
    """Return the format of a path, recognised by content."""
    candidate = Candidate(path)
    for reader in READERS.values():
        if reader.recognises(candidate):
            return reader.name
    if candidate.head.startswith(b"\x1f\x8b"):
        raise DatasetError(f"{path}: is a gzip file; unpack it first")
    found = "holds no dataset in a known format" if path.is_dir() else "is not in a known format"
    raise DatasetError(f"{path}: {found}; name its format if it is one of {', '.join(READERS)}")
