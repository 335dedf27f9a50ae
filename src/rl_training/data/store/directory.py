"""Our own format: a directory with a hashed manifest and one memory-mappable file of records.

`rows.npy` is an ordinary npy file of a structured dtype, one record per transition; `manifest.json` names the fields, the
action bounds, the fingerprint and the hash of the rows. Such a dataset is mapped, not read, so training may stream from it.
"""

import hashlib
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import OPTIONAL, REQUIRED, TransitionDataset, checked_bounds
from rl_training.data.row_blocks import BLOCK, bad_rows, blocks
from rl_training.data.row_view import RowView
from rl_training.data.spaces import Names, common_names
from rl_training.data.store.fingerprints import Fingerprints
from rl_training.data.store.records import RecordFile
from rl_training.errors import ConfigError, DatasetError
from rl_training.remote.address import refuse_address
from rl_training.storage import (
    MANIFEST,
    read_manifest,
    remove_unfinished,
    staged_directory,
    staged_file,
    storage_error,
    sync_directory,
    write_manifest,
)

KIND = "rl_training dataset"
FORMAT_VERSION = 1
ROWS = "rows.npy"
NAMES = {"observation_names": "observations", "action_names": "actions"}  # of columns, and the field that has them
_FLAGS = ("terminals", "timeouts")
_MOST_READ = 2**26  # bytes at a time, while the rows are verified
_DTYPES = ("<f4", "<f8", "|b1")


class DatasetWriter:
    """Writes a dataset part by part; nothing appears at `path` until all of it is on disk."""

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.path = free_target(path, overwrite=overwrite)
        self.rows = 0
        self._dtype: np.dtype[Any] | None = None
        self._bounds: dict[str, NDArray[Any]] = {}
        self._names: dict[str, Names | None] = {}
        self._origins: list[str] = []
        self._prints = Fingerprints()
        self._rows_digest = hashlib.sha256()

    def __enter__(self) -> Self:
        _prepare_parent(self.path)
        self._staging = staged_directory(self.path.absolute())
        self._stage = self._staging.__enter__()
        self._stream = (self._stage / ROWS).open("xb")
        return self

    def append(self, dataset: TransitionDataset) -> None:
        """Append the rows of a dataset; the join is an episode boundary."""
        fields = dataset.fields()
        if self._dtype is None:
            self._dtype = record_dtype(fields)
            if dataset.action_low is not None and dataset.action_high is not None:
                self._bounds = {"action_low": dataset.action_low, "action_high": dataset.action_high}
            self._stream.write(_header(self._dtype, 0))
        if record_dtype(fields) != self._dtype:
            shown = [f"{name} {self._dtype[name]}" for name in self._dtype.names or ()]
            raise DatasetError(f"{dataset.origin or 'a part'}: its fields differ from those before it ({', '.join(shown)})")
        self._widen_bounds(dataset)
        self._keep_names(dataset)
        timeouts = fields["timeouts"].copy()
        timeouts[-1] |= not fields["terminals"][-1]
        self._write({**fields, "timeouts": timeouts})
        self.rows += len(dataset)
        self.describe(dataset.origin)

    def describe(self, origin: str) -> None:
        """Add to where the rows come from; the same text is kept once, since the parts of one view have one origin."""
        if origin and origin not in self._origins:
            self._origins.append(origin)

    def _widen_bounds(self, dataset: TransitionDataset) -> None:
        """Keep bounds that hold for every part; none if a part has none."""
        if dataset.action_low is None or dataset.action_high is None:
            self._bounds = {}
        elif self._bounds:
            self._bounds["action_low"] = np.minimum(self._bounds["action_low"], dataset.action_low)
            self._bounds["action_high"] = np.maximum(self._bounds["action_high"], dataset.action_high)

    def _keep_names(self, dataset: TransitionDataset) -> None:
        """Keep the names of columns that all parts share."""
        for field, wide in NAMES.items():
            names: Names | None = getattr(dataset, field)
            kept = (self._names.get(field, names), names)
            self._names[field] = common_names(kept, wide, ("the parts before it", dataset.origin or "a part"))

    def _write(self, fields: Mapping[str, NDArray[Any]]) -> None:
        self._prints.add(fields)
        try:
            for part in blocks(len(fields["rewards"])):
                records = np.empty(part.stop - part.start, dtype=self._dtype)
                for name, values in fields.items():
                    records[name] = values[part]
                self._rows_digest.update(records.data)
                self._stream.write(records.data)
        except OSError as error:
            raise storage_error(self.path, records.nbytes, error) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
        except BaseException as fault:
            self._stream.close()
            self._staging.__exit__(type(fault), fault, fault.__traceback__)
            raise
        self._stream.close()
        self._staging.__exit__(kind, error, trace)

    def _finish(self) -> None:
        if self._dtype is None:
            raise DatasetError(f"{self.path}: there is nothing to write")
        self._stream.seek(0)
        self._stream.write(_header(self._dtype, self.rows))
        self._stream.flush()
        os.fsync(self._stream.fileno())
        manifest = {
            "kind": KIND,
            "format": FORMAT_VERSION,
            "rows": self.rows,
            "fields": [[name, self._dtype[name].base.str, list(self._dtype[name].shape)] for name in self._dtype.names or ()],
            **{name: self._bounds[name].tolist() if self._bounds else None for name in ("action_low", "action_high")},
            **{field: list(names) for field, names in self._names.items() if names is not None},
            "content": self._prints.content(),
            "origin": " | ".join(self._origins)[:4000],
            "rows_sha256": self._rows_digest.hexdigest(),
        }
        write_manifest(self._stage, manifest)
        sync_directory(self._stage)


def free_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the path of a dataset to write; an existing one is refused unless it may be replaced."""
    refuse_address(path, "a new dataset")
    target = Path(path)
    if target.suffix in (".h5", ".hdf5", ".csv", ".parquet"):
        raise ConfigError(f"{target}: data is written as a directory or as .npz; choose another name")
    try:
        exists, ours = target.exists(), target.is_file() if target.suffix == ".npz" else is_store(target)
    except OSError as error:
        raise storage_error(target, 0, error) from error
    if exists and not (overwrite and ours):
        raise ConfigError(f"{target}: already exists; choose another name{', or --overwrite' if ours else ''}")
    return target


def _prepare_parent(path: Path) -> None:
    """Create the parent directory of a dataset, and remove what a killed process left there."""
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path)
    except OSError as error:
        raise storage_error(path, 0, error) from error


def save_dataset(
    data: TransitionDataset | RowView | Sequence[RowView], path: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Write data as one directory that `load_dataset` maps, or as an npz file if the name ends in .npz; return its path.

    Views are written part by part, so they may be larger than memory; several are concatenated.
    """
    refuse_address(path, "a new dataset")
    target = Path(path)
    views = [RowView(data)] if isinstance(data, TransitionDataset) else [data] if isinstance(data, RowView) else list(data)
    if target.suffix == ".npz":
        whole = data if isinstance(data, TransitionDataset) else views[0].copy()
        if len(views) > 1:
            raise DatasetError(f"{target}: several sources are written as a directory; choose a name without .npz")
        return _save_npz(whole, target, overwrite=overwrite)
    with DatasetWriter(target, overwrite=overwrite) as writer:
        for view in views:
            for part in view.parts():
                writer.append(part.copy())
    return target


def _save_npz(dataset: TransitionDataset, path: Path, *, overwrite: bool) -> Path:
    free_target(path, overwrite=overwrite)
    _prepare_parent(path)
    bounds = {"action_low": dataset.action_low, "action_high": dataset.action_high}
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    named = {field: np.array(names) for field in NAMES if (names := getattr(dataset, field)) is not None}
    with staged_file(path) as stream:
        np.savez(stream, **dataset.fields(), **known, **named)  # type: ignore[arg-type]
    return path


def record_dtype(fields: Mapping[str, NDArray[Any]]) -> np.dtype[Any]:
    """Return the record dtype of a transition: numbers first, flags last."""
    named = sorted(fields, key=lambda name: (name in _FLAGS, (*REQUIRED, *OPTIONAL).index(name)))
    return np.dtype([(name, fields[name].dtype.newbyteorder("<"), fields[name].shape[1:]) for name in named])


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """The header of an npy file of records; its length does not depend on the number of rows."""
    stream = io.BytesIO()
    layout = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_2_0(stream, layout)
    return stream.getvalue()


def is_store(path: Path) -> bool:
    """Return whether a directory looks like an rl_training dataset."""
    return (path / MANIFEST).is_file() and (path / ROWS).is_file()


def open_store(path: Path) -> TransitionDataset:
    """Return the mapped dataset of a directory, after verifying in one pass every byte, and that every number is finite."""
    manifest = read_manifest(path, KIND, FORMAT_VERSION, DatasetError)
    try:
        dtype, rows = _stored_dtype(manifest["fields"]), int(manifest["rows"])
        low, high = checked_bounds(manifest["action_low"], manifest["action_high"], dtype["actions"].shape[0], str(path))
        names = {field: _stored_names(manifest.get(field), dtype[wide].shape[0]) for field, wide in NAMES.items()}
        content, expected, origin = (str(manifest[name]) for name in ("content", "rows_sha256", "origin"))
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{path / MANIFEST}: does not describe a dataset ({error})") from None
    file, header = path / ROWS, _header(dtype, rows)
    if file.is_symlink() or file.stat().st_size != len(header) + rows * dtype.itemsize or rows < 1:
        raise DatasetError(f"{file}: is damaged (its size does not match the manifest)")
    with file.open("rb") as stream:
        if stream.read(len(header)) != header:
            raise DatasetError(f"{file}: is damaged (its header does not match the manifest)")
        _verify(stream, dtype, expected, file)
    records = RecordFile(file, dtype, len(header), rows, content)
    fields: dict[str, Any] = {name: records.field(name) for name in dtype.names or ()}
    known = {"action_low": low, "action_high": high, **names, "origin": origin, "records": records}
    return TransitionDataset(**fields, **known)  # type: ignore[arg-type]


def _stored_names(names: Any, columns: int) -> Names | None:
    """The names of columns in a manifest; earlier versions wrote none."""
    if names is None:
        return None
    if not isinstance(names, list) or len(set(names)) != columns or not all(isinstance(name, str) for name in names):
        raise ValueError(f"names of {columns} columns: {str(names)[:60]}")
    return tuple(names)


def _stored_dtype(fields: Any) -> np.dtype[Any]:
    """The dtype a manifest describes: known fields of known types, and no others."""
    known = (*REQUIRED, *OPTIONAL)
    for name, kind, shape in fields:
        wide = name in ("observations", "next_observations", "actions", "next_actions")
        legal = name in known and kind in _DTYPES and (kind == "|b1") == (name in _FLAGS)
        if not legal or len(shape) != int(wide) or not all(type(n) is int and 0 < n < 2**31 for n in shape):
            raise ValueError(f"field {name!r} of type {kind!r} and shape {shape!r}")
    shapes = {name: tuple(shape) for name, _, shape in fields}
    if not {*REQUIRED, "timeouts"} <= set(shapes) or len(shapes) != len(fields):
        raise ValueError("a field is missing or duplicated")
    if (
        shapes["observations"] != shapes["next_observations"]
        or shapes.get("next_actions", shapes["actions"]) != shapes["actions"]
    ):
        raise ValueError("fields differ in shape")
    if sum(math.prod(shape) for shape in shapes.values()) > _MOST_READ // 8:
        raise ValueError("a row is too wide")
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields])


def _verify(stream: io.BufferedReader, dtype: np.dtype[Any], expected: str, file: Path) -> None:
    """Refuse records whose hash is not the expected one, or that hold NaN or inf."""
    digest = hashlib.sha256()
    numbers = [name for name in dtype.names or () if name not in (*_FLAGS, "returns_to_go")]
    first, fault = 0, ""
    rows = max(1, min(BLOCK, _MOST_READ // dtype.itemsize))
    while block := stream.read(rows * dtype.itemsize):
        digest.update(block)
        records = np.frombuffer(block[: len(block) // dtype.itemsize * dtype.itemsize], dtype=dtype)
        for name in numbers:
            if not fault and len(bad := bad_rows(records[name])):
                fault = f"{file}: `{name}` is NaN or inf in row {first + int(bad[0])}; write it again from good data"
        first += len(records)
    if digest.hexdigest() != expected:
        raise DatasetError(f"{file}: is damaged (its hash does not match the manifest)")
    if fault:
        raise DatasetError(fault)
