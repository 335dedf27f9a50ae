"""Our own format: a directory with a hashed manifest and one memory-mappable file of records.

`rows.npy` is an ordinary npy file of a structured dtype, one record per transition; `manifest.json` names the fields, the
action bounds, the fingerprint and the hash of the rows. A dataset of it is mapped, not read: training may stream from it.
"""

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rl_training.data.blocks import blocks
from rl_training.data.fingerprints import Fingerprints
from rl_training.data.offline_dataset import OPTIONAL, REQUIRED, TransitionDataset
from rl_training.data.records import RecordFile
from rl_training.errors import DatasetError
from rl_training.storage import MANIFEST, read_manifest, staged_directory, storage_error, sync_directory, write_manifest

KIND = "rl_training dataset"
FORMAT_VERSION = 1
ROWS = "rows.npy"
_FLAGS = ("terminals", "timeouts")
_DTYPES = ("<f4", "<f8", "|b1")


class DatasetWriter:
    """Writes a dataset part by part; nothing appears at `path` unless all of it is on disk."""

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.path = Path(path)
        if self.path.exists() and not (overwrite and is_store(self.path)):
            hint = "choose another name, or --overwrite" if is_store(self.path) else "choose another name"
            raise DatasetError(f"{self.path}: already exists; {hint}")
        self.rows = 0
        self._dtype: np.dtype[Any] | None = None
        self._bounds: dict[str, NDArray[Any]] = {}
        self._origins: list[str] = []
        self._prints = Fingerprints()
        self._rows_digest = hashlib.sha256()

    def __enter__(self) -> Self:
        try:
            self.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(self.path, 0, error) from error
        self._staging = staged_directory(self.path.absolute())
        self._stage = self._staging.__enter__()
        self._stream = (self._stage / ROWS).open("xb")
        return self

    def append(self, dataset: TransitionDataset) -> None:
        """Add the rows of a dataset behind those that are there; the join is an episode boundary."""
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
        timeouts = fields["timeouts"].copy()
        timeouts[-1] |= not fields["terminals"][-1]
        self._write({**fields, "timeouts": timeouts})
        self.rows += len(dataset)
        self._origins += [dataset.origin] if dataset.origin else []

    def _widen_bounds(self, dataset: TransitionDataset) -> None:
        """Keep bounds that hold for every part; none when a part has none."""
        if dataset.action_low is None or dataset.action_high is None:
            self._bounds = {}
        elif self._bounds:
            self._bounds["action_low"] = np.minimum(self._bounds["action_low"], dataset.action_low)
            self._bounds["action_high"] = np.maximum(self._bounds["action_high"], dataset.action_high)

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
            "fingerprint": self._prints.joint(self._bounds),
            "origin": " | ".join(self._origins)[:4000],
            "rows_sha256": self._rows_digest.hexdigest(),
        }
        write_manifest(self._stage, manifest)
        sync_directory(self._stage)


def save_dataset(dataset: TransitionDataset, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a dataset as one directory that `load_dataset` maps, or as an npz file if the name ends so; return its path."""
    target = Path(path)
    if target.suffix == ".npz":
        return _save_npz(dataset, target, overwrite=overwrite)
    with DatasetWriter(target, overwrite=overwrite) as writer:
        writer.append(dataset)
    return target


def _save_npz(dataset: TransitionDataset, path: Path, *, overwrite: bool) -> Path:
    if path.exists() and not overwrite:
        raise DatasetError(f"{path}: already exists; choose another name, or --overwrite")
    stage = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        with stage.open("wb") as stream:
            np.savez(stream, **dataset.fields())  # type: ignore[arg-type]
        stage.replace(path)
    except OSError as error:
        stage.unlink(missing_ok=True)
        raise storage_error(path, 0, error) from error
    return path


def record_dtype(fields: Mapping[str, NDArray[Any]]) -> np.dtype[Any]:
    """Return the record of a transition: numbers first, flags last."""
    named = sorted(fields, key=lambda name: (name in _FLAGS, (*REQUIRED, *OPTIONAL).index(name)))
    return np.dtype([(name, fields[name].dtype.newbyteorder("<"), fields[name].shape[1:]) for name in named])


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """The header of an npy file of records; its length does not depend on the number of rows."""
    stream = io.BytesIO()
    layout = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_2_0(stream, layout)
    return stream.getvalue()


def is_store(path: Path) -> bool:
    """Return whether a directory looks like a dataset of ours."""
    return (path / MANIFEST).is_file() and (path / ROWS).is_file()


def open_store(path: Path, *, verify: bool = True) -> TransitionDataset:
    """Return the mapped dataset of a directory, every byte of it verified in one pass unless told otherwise."""
    manifest = read_manifest(path, KIND, FORMAT_VERSION, DatasetError)
    try:
        dtype, rows = _stored_dtype(manifest["fields"]), int(manifest["rows"])
        low, high = (_stored_bound(manifest[name], dtype["actions"].shape[0]) for name in ("action_low", "action_high"))
        fingerprint, expected, origin = (str(manifest[name]) for name in ("fingerprint", "rows_sha256", "origin"))
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{path / MANIFEST}: does not describe a dataset ({error})") from None
    file, header = path / ROWS, _header(dtype, rows)
    if file.is_symlink() or file.stat().st_size != len(header) + rows * dtype.itemsize or rows < 1:
        raise DatasetError(f"{file}: is damaged (its size is not what the manifest says)")
    with file.open("rb") as stream:
        if stream.read(len(header)) != header:
            raise DatasetError(f"{file}: is damaged (its header is not what the manifest says)")
        if verify and _rest_digest(stream) != expected:
            raise DatasetError(f"{file}: is damaged (its hash does not match the manifest)")
    records = RecordFile.open(file, dtype, len(header), rows, fingerprint)
    fields = {name: records.rows[name] for name in dtype.names or ()}
    return TransitionDataset(**fields, action_low=low, action_high=high, origin=origin, records=records)


def _stored_dtype(fields: Any) -> np.dtype[Any]:
    """The dtype a manifest describes: our fields, in our types, and no others."""
    known = (*REQUIRED, *OPTIONAL)
    for name, kind, shape in fields:
        wide = name in ("observations", "next_observations", "actions", "next_actions")
        legal = name in known and kind in _DTYPES and (kind == "|b1") == (name in _FLAGS)
        if not legal or len(shape) != int(wide) or not all(type(n) is int and 0 < n < 2**31 for n in shape):
            raise ValueError(f"field {name!r} of type {kind!r} and shape {shape!r}")
    if not {*REQUIRED, "timeouts"} <= {name for name, _, _ in fields}:
        raise ValueError("a field is missing")
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields])


def _stored_bound(values: Any, width: int) -> NDArray[np.float32] | None:
    bound = None if values is None else np.asarray(values, dtype=np.float32)
    if bound is not None and (bound.shape != (width,) or not np.isfinite(bound).all()):
        raise ValueError(f"action bounds {values!r}")
    return bound


def _rest_digest(stream: io.BufferedReader) -> str:
    digest = hashlib.sha256()
    while block := stream.read(2**22):
        digest.update(block)
    return digest.hexdigest()
