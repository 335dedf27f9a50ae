"""Local copies of data in a store, verified by hash at every use.

A copy is known by the address and by what the store says of every file (length and version), so that data that has changed
is another copy. It is written beside and renamed, with a manifest of the SHA-256 of each file as it was read.
"""

import fcntl
import glob
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rl_training.errors import CheckpointError, DatasetError, StorageError
from rl_training.remote.store import Store, Stored
from rl_training.storage import (
    canonical_json,
    listed_files,
    open_plain,
    read_manifest,
    sha256,
    staged_directory,
    write_manifest,
)

VARIABLE = "RL_TRAINING_CACHE"
_KIND, _FORMAT = "rl_training cached data", 1
_MOST_FILES = 100_000
_SPARE = 2**26  # bytes that stay free beside what is fetched


def cache_place(name: str) -> Path:
    """Return where a folder of the cache is, whether it is there or not: in RL_TRAINING_CACHE, by default below ~/.cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "rl_training" / "remote"
    return Path(os.environ.get(VARIABLE) or usual).absolute() / name


def cache_folder(name: str) -> Path:
    """Return a folder of the cache, which is made if need be and is the user's alone."""
    folder = cache_place(name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error}); name another folder in {VARIABLE}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(f"{folder}: others may write there; name a folder of your own in {VARIABLE}")
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file inside the block; waits for other processes of this machine."""
    handle = open_plain(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def fetched_data(address: str) -> str:
    """Return the local path, or glob, of what an address means: a file, a folder, or the files that match a glob."""
    root, pattern = _without_glob(address)
    store = Store(root)
    name = store.address.rpartition("/")[2]
    found = store.matches(pattern) if pattern else store.files() if store.kind() else {}
    if not found:
        raise DatasetError(f"{address}: {'matches no file' if pattern else 'there is nothing here'}; check the address")
    _check(found, address)
    key = sha256(canonical_json({"address": address, "files": {n: [s.bytes, s.version] for n, s in found.items()}}))[:32]
    folder = cache_folder("data")
    with locked(folder / f"{key}.lock"):
        if not _is_whole(folder / key):
            _fetch(store, found, folder / key, name)
    return str(folder / key / "data" / name / pattern) if pattern else str(folder / key / "data" / name)


def _without_glob(address: str) -> tuple[str, str]:
    """The folder of an address before its first wildcard, and the pattern in it."""
    parts = address.split("/")
    first = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:first]), "/".join(parts[first:])


def safe_name(name: str) -> bool:
    """Return whether a name from a store is a relative path that stays below its folder, on any system."""
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and not {"..", "."} & set(name.split("/")) and "\\" not in name and "//" not in name
    return plain and not name.startswith("/") and len(name) < 1024 and all(len(part) < 255 for part in parts)


def check_room(needed: int, folder: Path, what: str) -> None:
    """Refuse what does not fit on the disk of a folder."""
    free = shutil.disk_usage(folder).free
    if needed + _SPARE > free:
        raise StorageError(f"{what}: has {needed:,} bytes, and {free:,} are free in {folder}; name another in {VARIABLE}")


def _check(found: Mapping[str, Stored], address: str) -> None:
    if bad := next((name for name in found if not safe_name(name) and name), None):
        raise DatasetError(f"{address}: holds {bad!r}, which is no name for a file here")
    if len(found) > _MOST_FILES:
        raise DatasetError(f"{address}: holds {len(found):,} files, more than {_MOST_FILES:,}; convert them to one dataset")


def _is_whole(copy: Path) -> bool:
    """Whether a copy is there with every byte as it was read."""
    try:
        listed = listed_files(read_manifest(copy, _KIND, _FORMAT), str(copy))
        return all(file_hash(copy / "data" / name) == entry["sha256"] for name, entry in listed.items())
    except (CheckpointError, OSError):
        return False


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a plain file."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(store: Store, found: Mapping[str, Stored], copy: Path, title: str) -> None:
    """Fetch all files of a copy, or none; what changes meanwhile is refused."""
    shutil.rmtree(copy, ignore_errors=True)  # a damaged one
    check_room(sum(one.bytes for one in found.values()), copy.parent, store.address)
    with staged_directory(copy) as stage:
        listed = {}
        for name, one in found.items():
            own = f"{title}/{name}" if name else title
            target = stage / "data" / own
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                listed[own] = {"bytes": one.bytes, "sha256": store.download(name, target, one.bytes)}
            except FileNotFoundError:
                raise DatasetError(f"{store.address}/{name}: was removed while it was read; try again") from None
        now = store.files()
        if any(now.get(name) != one for name, one in found.items()):
            raise DatasetError(f"{store.address}: changed while it was read; try again")
        write_manifest(stage, {"files": listed, "format": _FORMAT, "kind": _KIND})
