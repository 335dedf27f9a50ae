"""Datasets from anywhere: files and directories of many formats, dictionaries of arrays, DataFrames."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.config.blocks import ReadOptions
from rl_training.config.columns import ColumnMap
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.base import Candidate
from rl_training.data.reading.episode_files import Found, find_files, joined, shortened
from rl_training.data.reading.formats import READERS, recognised
from rl_training.data.reading.guards import bounded_memory
from rl_training.data.reading.hdf5.minari import minari_path
from rl_training.data.reading.reading import Reading, reading_of, settle
from rl_training.data.reading.refused_files import file_fault
from rl_training.data.reading.tables.columns import MissingColumnError
from rl_training.data.reading.tables.table import frame_reading, mapping_reading
from rl_training.errors import ConfigError, DatasetError, RLTrainingError, did_you_mean
from rl_training.remote.runs import local_data

Source = str | os.PathLike[str] | Mapping[str, Any] | Any
"""A file, a folder of episode files, a glob, a run, an address such as `s3://bucket/logs`, a list of these, `minari:ID`, a
mapping of arrays, or a DataFrame."""

_MINARI = "minari:"
_DIRECTORIES = ("rl_training", "run", "minari")  # formats in which a directory is one dataset


def load_dataset(
    source: Source, format: str = "auto", columns: ColumnMap | Mapping[str, Any] | None = None, **options: Any
) -> TransitionDataset:
    """Return the checked dataset of a source, its format recognised by content unless named.

    The files of a folder, a glob or a list are read in natural order, and each begins a new episode. `columns` is the column
    map of a table: CSV, Parquet, a DataFrame, or a mapping of columns by name. Without next observations the following row
    is the next observation, and the last row of an episode that was cut is left out. Of a run directory the replay is read.
    `options` are those of `ReadOptions`: ends, cut_gaps, reward_lag, action_lag, on_bad_rows, action_scale, action_low,
    action_high, member, max_bytes. `origin` of the result says what was recognised and how ends were read.
    """
    return read_dataset(source, format, ReadOptions.checked({"columns": columns, **options}, "load_dataset: ")).dataset()


def read_dataset(source: Source, format: str = "auto", options: ReadOptions | None = None) -> Reading:
    """Return the transitions of a source under our names, with the requested fixes applied, not yet checked."""
    options = options or ReadOptions.checked({})
    if isinstance(source, str | os.PathLike):
        return _read_files([source], format, options)
    if isinstance(source, Sequence) and source and all(isinstance(one, str | os.PathLike) for one in source):
        return _read_files(source, format, options)
    if not isinstance(source, Mapping) and not hasattr(source, "columns"):
        known = "a path, a list of paths, a mapping of arrays or a DataFrame"
        raise DatasetError(f"a dataset is {known}, not {'an empty ' * (source == [])}{type(source).__name__}")
    with _one_line_errors("dataset"):
        if not isinstance(source, Mapping):
            return settle(frame_reading(source, options), options)
        if options.columns is not None:
            return settle(mapping_reading(source, options), options)
        return settle(reading_of(source, list(source), "dataset", "a mapping of arrays"), options)


def _read_files(sources: Sequence[str | os.PathLike[str]], format: str, options: ReadOptions) -> Reading:
    """One file as it is; the files of a folder, a glob or a list one after the other."""
    if format != "auto" and format not in READERS:
        raise DatasetError(f"unknown format {format!r}.{did_you_mean(format, READERS)} There are: auto, {', '.join(READERS)}")
    texts = [os.path.expanduser(source) for source in sources]
    with _one_line_errors(shortened(texts)), bounded_memory(options.max_bytes):
        texts = [local_data(text) for text in texts]
        found = [_files(text, format) for text in texts]
        paths = [path for one in found for path in one.paths]
        if len(paths) == 1:
            reading = _read_path(paths[0], format, options)
        else:
            title = shortened(texts)
            try:
                reading = joined(paths, lambda path: _read_path(path, format, options), title, options.max_bytes)
            except MissingColumnError as error:
                raise _beside_others(error, paths, format) from None
        reading.notes += [note for one in found for note in one.notes]
        return reading


def _beside_others(error: MissingColumnError, paths: Sequence[Path], format: str) -> DatasetError:
    """The error of a file that lacks a column, with how many of the other files have it."""
    others = [path for path in paths if str(path) != error.source]
    headers = [READERS[_recognised(path) if format == "auto" else format].column_names(path) for path in others]
    return error.beside({name: sum(name in header for header in headers) for name in error.names}, len(others))


def _files(text: str, format: str) -> Found:
    """The files that a path, a folder, a glob or a Minari id means."""
    if text.startswith(_MINARI):
        return Found((minari_path(text.removeprefix(_MINARI)),))
    if format in _DIRECTORIES and os.path.isdir(text):
        return Found((Path(text),))

    def recognise(candidate: Candidate) -> str | None:
        if format == "auto":
            return recognised(candidate)
        return format if READERS[format].recognises(candidate) else None

    return find_files(text, recognise)


def _read_path(path: Path, format: str, options: ReadOptions) -> Reading:
    with _one_line_errors(str(path)):
        if not path.is_file() and not path.is_dir():
            exists = path.exists() or path.is_symlink()
            raise DatasetError(f"{path}: is not a regular file" if exists else f"{path}: there is no such file or directory")
        reader = READERS[_recognised(path) if format == "auto" else format]
        if options.columns is not None and not reader.takes_columns:
            raise ConfigError(f"{path}: is read as {reader.title}, which has no columns to name; leave out `columns`")
        if options.member is not None and not reader.takes_member:
            raise ConfigError(f"{path}: is read as {reader.title}, which has no members; leave out `member`")
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
    if fault := file_fault(candidate):
        raise DatasetError(f"{path}: {fault}")
    found = recognised(candidate)
    if found is None:
        raise DatasetError(f"{path}: is not in a known format; name its format if it is one of {', '.join(READERS)}")
    return found
