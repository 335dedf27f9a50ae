"""Atomic files and directories: written to a sibling, synced, hashed, then renamed to their final path."""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rl_training.errors import CheckpointError, RLTrainingError, StorageError
from rl_training.faults import fault_point

MAX_JSON_BYTES = 16 * 2**20
MAX_DEPTH = 64  # of values inside one another
MANIFEST = "manifest.json"
CHECKPOINT = "rl_training checkpoint"
CHECKPOINT_FORMAT = 1
TRACKING_FILES = ("tensorboard", "tracking.jsonl")
_OPE = OPE_FILE, OPE_FOLDER = ("ope.json", "ope")  # what `rl-training ope` or `select` last said of a run, and all they found
RUN_FILES = ("config.yaml", "run.json", "metrics.jsonl", "timings.jsonl", "checkpoints", "replay", *_OPE, *TRACKING_FILES)
"""What a run directory holds, apart from its lock."""
_BLOCK = 4096
_UNFINISHED = ".unfinished"  # marks a directory that is being written


def sync_directory(path: Path) -> None:
    """Flush the entries of a directory to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class NotPlainError(OSError):
    """A link, a pipe or a device is where a plain file was expected."""


def open_plain(path: Path, flags: int) -> int:
    """Return a descriptor of a plain file; a link, a pipe or a device of that name is refused, and never waited for."""
    try:
        handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe that nobody reads
            raise NotPlainError(errno.EINVAL, "not a plain file") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotPlainError(errno.EINVAL, "not a plain file")
    return handle


def write_file(path: Path, data: bytes) -> None:
    """Write and sync a new file, with fault points at its start, middle and end."""
    with path.open("xb") as stream:
        fault_point(f"save:{path.name}:start")
        half = len(data) // 2
        stream.write(data[:half])
        stream.flush()
        fault_point(f"save:{path.name}:half")
        stream.write(data[half:])
        stream.flush()
        os.fsync(stream.fileno())
    fault_point(f"save:{path.name}:end")


def replace_file(path: Path, data: bytes) -> None:
    """Replace a small file atomically: readers see the old content or the new, never a mix."""
    stage = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        stage.unlink(missing_ok=True)  # a link of that name must not be followed
        with stage.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        stage.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        stage.unlink(missing_ok=True)
        raise storage_error(path, on_disk(len(data)), error) from error


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a JSON object; NaN and inf are refused."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def parse_json(data: bytes, where: str, error_type: type[RLTrainingError] = CheckpointError) -> dict[str, Any]:
    """Return a JSON object, refusing duplicate keys, NaN, deep nesting and anything that is not an object."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("duplicate keys")
        return result

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def finite(text: str) -> float:
        if math.isinf(number := float(text)):
            raise ValueError(f"{text[:20]} is too large a number")
        return number

    try:
        value = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
        check_depth(value)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{where}: is not valid JSON ({str(error)[:80]})") from None
    if not isinstance(value, dict):
        raise error_type(f"{where}: is not a JSON object")
    return value


def check_depth(value: Any) -> None:
    """Raise a ValueError for a value nested so deeply that code which follows it down might not come back."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [deeper for one in inner for deeper in one]
    if level:
        raise ValueError(f"more than {MAX_DEPTH} levels")


def read_regular_file(path: Path, limit: int | None = None, error_type: type[RLTrainingError] = CheckpointError) -> bytes:
    """Return the bytes of a plain file; links, pipes, devices and files over the limit are refused unread."""
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if limit is not None and size > limit:
                raise error_type(f"{path}: has {size:,} bytes, at most {limit:,} are allowed")
            return stream.read() if limit is None else stream.read(min(limit, size))
    except FileNotFoundError:
        raise error_type(f"{path}: is missing") from None
    except NotPlainError:
        raise error_type(f"{path}: is not a plain file") from None
    except OSError as error:
        raise error_type(f"{path}: cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def staged_directory(path: Path, needed: int = 0) -> Iterator[Path]:
    """Yield a sibling directory to fill; rename it to `path` when the block ends, remove it when the block fails.

    `needed` bytes will be written, if it is known; an error of a full disk then says so.
    What was at `path` is removed last, and put back on a failure; a kill between two renames leaves it beside, as `.old-`.
    """
    stage, aside = path.with_name(f"{path.name}.tmp-{os.getpid()}"), path.with_name(f"{path.name}.old-{os.getpid()}")
    try:
        stage.mkdir()
        (stage / _UNFINISHED).touch()
        fault_point("save:after-mkdir")
        yield stage
        (stage / _UNFINISHED).unlink()
        sync_directory(stage)
        fault_point("save:before-rename")
        if path.exists():  # an earlier save of the same step: keep it until the new one is in place
            path.rename(aside)
            fault_point("save:between-renames")
        stage.rename(path)
        fault_point("save:after-rename")
        sync_directory(path.parent)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        written = sum(file.stat().st_size for file in stage.glob("*")) if stage.is_dir() else 0
        needed = max(needed, written)
        _put_back(stage, aside, path)
        raise storage_error(path, needed, error) from error
    except BaseException:
        _put_back(stage, aside, path)
        raise


@contextlib.contextmanager
def staged_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to fill; it appears at `path` when the block ends, synced, and nothing does when the block fails."""
    stage = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        stage.mkdir()
        (stage / _UNFINISHED).touch()
        with (stage / path.name).open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        (stage / path.name).replace(path)
        sync_directory(path.absolute().parent)
    except OSError as error:
        raise storage_error(path, 0, error) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left of `path` while they wrote it; anything that is not provably ours stays."""
    for entry in path.absolute().parent.iterdir():
        name, _, process = entry.name.rpartition(".tmp-")
        ours = name == path.name and entry.is_dir() and not entry.is_symlink() and (entry / _UNFINISHED).is_file()
        if ours and process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(entry)


def _put_back(stage: Path, aside: Path, path: Path) -> None:
    """Undo the part of a replacement that was done."""
    shutil.rmtree(stage, ignore_errors=True)
    if aside.exists() and not path.exists():
        aside.rename(path)


def storage_error(path: Path, needed: int, error: OSError) -> StorageError:
    """Return an error with the path and the cause; of a full disk also with the bytes needed and free."""
    with contextlib.suppress(OSError):
        if not needed or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return StorageError(f"{path}: cannot be written: {error.strerror}")
        free = shutil.disk_usage(next(p for p in path.parents if p.exists())).free
        why = "" if needed > free else "; a quota may be used up, or all inodes"
        return StorageError(f"{path}: cannot be written: {error.strerror} ({needed:,} bytes needed, {free:,} free{why})")
    return StorageError(f"{path}: cannot be written: {error.strerror}")


def on_disk(size: int) -> int:
    """Return the bytes that a file of some size takes from a disk, whose blocks are usually this long."""
    return -(-size // _BLOCK) * _BLOCK


def write_files(stage: Path, files: Mapping[str, bytes], format_version: int, kind: str = CHECKPOINT) -> None:
    """Write the files of a directory and, last, the manifest that lists and hashes them and itself."""
    for name, data in files.items():
        write_file(stage / name, data)
    listed = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in files.items()}
    fault_point("save:before-manifest")
    write_manifest(stage, {"files": listed, "format": format_version, "kind": kind})


def write_manifest(stage: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest that hashes itself."""
    write_file(stage / MANIFEST, sealed_json(manifest))


def sealed_json(record: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a JSON object together with their hash, so that any change of it shows."""
    return canonical_json({**record, "sha256": sha256(canonical_json(record))})


def check_seal(
    data: bytes, record: Mapping[str, Any], where: str, error_type: type[RLTrainingError] = CheckpointError
) -> None:
    """Raise unless `data`, which was parsed as `record`, is byte for byte what `sealed_json` wrote."""
    if data != sealed_json({name: value for name, value in record.items() if name != "sha256"}):
        raise error_type(f"{where}: is damaged (its hash does not match)")


def read_manifest(
    path: Path, kind: str, format_version: int, error_type: type[RLTrainingError] = CheckpointError
) -> dict[str, Any]:
    """Return the verified manifest of a directory, without its own hash."""
    data = read_regular_file(path / MANIFEST, MAX_JSON_BYTES, error_type)
    return unsealed(data, str(path / MANIFEST), kind, format_version, error_type)


def unsealed(
    data: bytes, where: str, kind: str, format_version: int, error_type: type[RLTrainingError] = CheckpointError
) -> dict[str, Any]:
    """Return the manifest that these bytes are, without its hash, or raise an error that says what is wrong with them."""
    manifest = parse_json(data, where, error_type)
    check_seal(data, manifest, where, error_type)
    del manifest["sha256"]
    if manifest.get("kind") != kind or manifest.get("format") != format_version:
        found = f"{str(manifest.get('kind'))[:40]!r}, format {str(manifest.get('format'))[:40]}"
        newer = manifest.get("kind") == kind and type(manifest.get("format")) is int and manifest["format"] > format_version
        way = "a newer rl_training wrote it: upgrade to read it" if newer else "use the version that wrote it"
        raise error_type(f"{where}: is {found}, not {kind!r}, format {format_version}; {way}")
    return manifest


def read_files(path: Path, format_version: int, kind: str = CHECKPOINT, limit: int | None = None) -> dict[str, bytes]:
    """Return the verified files of a directory; a missing, added, truncated or corrupted file is refused by name.

    With a `limit` files of more bytes together are refused unread.
    """
    if not path.is_dir() or path.is_symlink():
        raise CheckpointError(f"{path}: there is no {kind} here")
    manifest = read_manifest(path, kind, format_version)
    listed = listed_files(manifest, str(path / MANIFEST))
    total = sum(entry["bytes"] for entry in listed.values())
    if limit is not None and total > limit:
        raise CheckpointError(f"{path}: has {total:,} bytes, at most {limit:,} are allowed")
    found = {entry.name for entry in path.iterdir()} - {MANIFEST}
    if found != set(listed):
        raise CheckpointError(f"{path}: holds {sorted(found)}, but its manifest lists {sorted(listed)}")
    files = {}
    for name, entry in listed.items():
        files[name] = read_regular_file(path / name, entry["bytes"])
        if len(files[name]) != entry["bytes"] or sha256(files[name]) != entry["sha256"]:
            raise CheckpointError(f"{path / name}: is damaged (its hash does not match the manifest)")
    return files


def listed_files(
    manifest: Mapping[str, Any], where: str, error_type: type[RLTrainingError] = CheckpointError
) -> dict[str, dict[str, Any]]:
    """Return the files of a manifest, each with its `bytes` and `sha256`."""
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not all(_is_entry(entry) for entry in listed.values()):
        raise error_type(f"{where}: does not list files with their sizes and hashes")
    return listed


def _is_entry(entry: Any) -> bool:
    """Whether an entry of a manifest says how long a file is."""
    return isinstance(entry, dict) and type(entry.get("bytes")) is int and entry["bytes"] >= 0 and "sha256" in entry


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def natural_order(path: Path | str) -> list[Any]:
    """Return a sort key by which `run2` comes before `run10`."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), part) if number % 2 else part.lower() for number, part in enumerate(parts)]
