"""What a run in a store consists of: an index that lists its files by hash, and the files under names that hold the hash.

Files are written first and never changed, and an index is created under the next number: whoever reads at any moment finds a
whole run, the newest whose index is there. Of two writers that create the same number one fails, and so learns of the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.remote.cache import safe_name
from rl_training.remote.store import Store
from rl_training.storage import MAX_JSON_BYTES, RUN_FILES, listed_files, sealed_json, unsealed

INDEXES = "index"
_KIND, _FORMAT = "rl_training run in a store", 1
Files = Mapping[str, Mapping[str, Any]]
"""The `bytes` and `sha256` of each file of a run by its name."""


@dataclass(frozen=True)
class Index:
    """One state of a run: its files, and who wrote it."""

    number: int
    files: Files
    writer: Mapping[str, Any]  # host, pid, since, and whether it may still write

    def encoded(self) -> bytes:
        """Return the bytes of the index, with their hash."""
        listed = {"files": self.files, "format": _FORMAT, "kind": _KIND, "number": self.number, "writer": self.writer}
        return sealed_json(listed)

    @property
    def objects(self) -> set[str]:
        """The names of the files in the store."""
        return {object_name(name, entry) for name, entry in self.files.items()}


def object_name(name: str, entry: Mapping[str, Any]) -> str:
    """Return the name in the store of a file of a run: its own, with a part of its hash."""
    path = PurePosixPath(name)
    return str(path.with_name(f"{path.stem}-{entry['sha256'][:16]}{path.suffix}"))


def index_name(number: int) -> str:
    """Return the name of an index in the store."""
    return f"{INDEXES}/{number:09d}.json"


def newest_index(store: Store) -> Index | None:
    """Return the newest whole index of a run; None if there is none, so no run. A damaged one is passed over."""
    fault: CheckpointError | None = None
    for number in _numbers(store):
        try:
            return _read(store, number)
        except FileNotFoundError:  # removed since it was listed: a newer one is there
            return newest_index(store)
        except CheckpointError as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return None


def newest_number(store: Store) -> int:
    """Return the highest number of an index, 0 for none."""
    return max(_numbers(store), default=0)


def _numbers(store: Store) -> list[int]:
    """The numbers of all indexes, the newest first."""
    stems = [name.removesuffix(".json") for name in store.names(INDEXES)]
    return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)


def read_index(store: Store, number: int) -> Index | None:
    """Return the index of a number; None if it is not there, or damaged."""
    try:
        return _read(store, number)
    except (FileNotFoundError, CheckpointError):
        return None


def _read(store: Store, number: int) -> Index:
    where = f"{store.address}/{index_name(number)}"
    manifest = unsealed(store.read(index_name(number), MAX_JSON_BYTES), where, _KIND, _FORMAT)
    files, writer = listed_files(manifest, where), manifest.get("writer")
    if bad := next((name for name in files if not safe_name(name) or name.split("/")[0] not in RUN_FILES), None):
        raise CheckpointError(f"{where}: lists {bad!r}, which is no name for a file of a run")
    hashes = [str(entry["sha256"]) for entry in files.values()]
    if manifest.get("number") != number or not isinstance(writer, dict) or not all(map(_is_hash, hashes)):
        raise CheckpointError(f"{where}: is not an index of a run")
    return Index(number, files, writer)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")
