"""The local copy of a run that lives in a store: runs work here, and nothing here is lost for something in the store."""

import fcntl
import glob
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.remote.address import checked_address, is_remote
from rl_training.remote.cache import cache_folder, cache_place, check_room, fetched_data, file_hash, locked
from rl_training.remote.index import INDEXES, Files, Index, newest_index, object_name
from rl_training.remote.store import Store
from rl_training.storage import (
    MAX_JSON_BYTES,
    RUN_FILES,
    canonical_json,
    open_plain,
    parse_json,
    read_regular_file,
    replace_file,
    sha256,
    staged_directory,
)

_WORK = ("config.yaml", "metrics.jsonl", "checkpoints/", "replay/")  # what cannot be had again
_ATTEMPTS = 3


class LocalCopy:
    """The directory of a run on this machine, and the index of the store that it was last equal to, or newer than."""

    def __init__(self, address: str) -> None:
        self.address = checked_address(address)
        home = cache_folder("runs") / sha256(self.address.encode())[:32]
        home.mkdir(mode=0o700, exist_ok=True)
        self._state, self.lock = home / "state.json", home / "lock"
        self.path = home / self.address.rpartition("/")[2]
        if not self._state.exists():
            self.remember(0, {})

    @property
    def seen(self) -> tuple[int, Files]:
        """The number of the last index that this copy had, 0 for none, and its files."""
        state = parse_json(read_regular_file(self._state, MAX_JSON_BYTES), str(self._state))
        return int(state["number"]), state["files"]

    def remember(self, number: int, files: Files) -> None:
        """Note the index that this copy now has."""
        replace_file(self._state, canonical_json({"address": self.address, "number": number, "files": files}))

    def files(self, known: "Known | None" = None) -> dict[str, dict[str, Any]]:
        """Return the files of the run that are here, with lengths and hashes."""
        return {name: (known or Known()).entry(self.path / name) for name in _run_files(self.path)}

    def bring_up_to(self, store: Store, index: Index) -> None:
        """Make this copy equal to an index, unless it has it already or is being trained; what the store lacks is kept."""
        with _unused(self.path) as unused:
            if unused and (index.number != self.seen[0] or not self.path.is_dir()):
                self._keep_unsaved_work(index)
                self._fetch(store, index)

    def _keep_unsaved_work(self, index: Index) -> None:
        """Move a copy that holds work which the store lacks out of the way, and say where it is."""
        if not self.path.is_dir() or _work(self.files()) in (_work(self.seen[1]), _work(index.files)):
            return
        number = next(n for n in range(1, 10_000) if not self.path.with_name(f"{self.path.name}.kept-{n}").exists())
        kept = self.path.rename(self.path.with_name(f"{self.path.name}.kept-{number}"))
        print(
            f"warning: {self.address}: was continued elsewhere; what this machine had beside that is kept in {kept}",
            file=sys.stderr,
        )

    def _fetch(self, store: Store, index: Index) -> None:
        """Make this copy equal to an index of the store, all of it or nothing; files that are here are not fetched again."""
        check_room(sum(entry["bytes"] for entry in index.files.values()), self.path.parent, self.address)
        here = {entry["sha256"]: self.path / name for name, entry in self.files().items()} if self.path.is_dir() else {}
        with staged_directory(self.path) as stage:
            for name, entry in index.files.items():
                target = stage / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if entry["sha256"] in here:
                    shutil.copyfile(here[entry["sha256"]], target)
                    found = file_hash(target)
                else:
                    found = _downloaded(store, name, entry, target)
                if found != entry["sha256"]:
                    raise CheckpointError(f"{self.address}: its {name} is damaged (its hash does not match the index)")
        self.remember(index.number, index.files)


class _GoneError(Exception):
    """A file of an index is not in the store."""


def _downloaded(store: Store, name: str, entry: Mapping[str, Any], target: Path) -> str:
    """The hash of a file of a run, once it is here."""
    try:
        return store.download(object_name(name, entry), target, entry["bytes"])
    except FileNotFoundError:
        raise _GoneError(name) from None


class Known:
    """Hashes of files that have not changed since they were computed."""

    def __init__(self) -> None:
        self._entries: dict[Path, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def entry(self, path: Path) -> dict[str, Any]:
        """Return the length and the hash of a file."""
        found = os.stat(path, follow_symlinks=False)
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if path not in self._entries or self._entries[path][0] != mark:
            self._entries[path] = mark, {"bytes": found.st_size, "sha256": file_hash(path)}
        return self._entries[path][1]


def local_run(run: str | Path, *, new: bool = False) -> Path:
    """Return the path of a run or checkpoint; of an address, that of its local copy, fetched and verified.

    One that this machine is training, or that the store has nothing newer of, is left as it is. With `new` there may be none.
    """
    if not is_remote(run):
        return Path(run)
    address, checkpoint = _parted(str(run))
    copy, store = LocalCopy(address), Store(address)
    with locked(copy.lock):
        for attempt in range(_ATTEMPTS):
            index = newest_index(store)
            if index is None or not index.files:
                if not new and not copy.path.is_dir():
                    raise CheckpointError(f"{address}: there is no run here; check the address")
                break
            try:
                copy.bring_up_to(store, index)
                break
            except _GoneError as error:  # the run went on, and removed what this index has
                if attempt == _ATTEMPTS - 1:
                    raise CheckpointError(f"{address}: a file of the run is missing ({error}); use another copy") from None
    return copy.path.joinpath(*checkpoint)


def local_data(source: str) -> str:
    """Return the path of data, or a glob; of an address, that of a local copy, which may be one of a run."""
    if not is_remote(source):
        return source
    if not glob.has_magic(source) and Store(source).names(INDEXES):
        return str(local_run(source))
    return fetched_data(source)


def address_of(run_dir: Path) -> str | None:
    """Return the address whose local copy a directory is; None for any other directory."""
    home = run_dir.absolute().parent
    if home.parent != cache_place("runs") or not (home / "state.json").is_file():
        return None
    state = parse_json(read_regular_file(home / "state.json", MAX_JSON_BYTES), str(home / "state.json"))
    address = str(state.get("address"))
    return address if LocalCopy(address).path == run_dir.absolute() else None


def _parted(address: str) -> tuple[str, Sequence[str]]:
    """The address of a run, and the parts of a path inside it if a checkpoint is named."""
    run, found, name = address.rstrip("/").rpartition("/checkpoints/")
    return (run, ("checkpoints", name)) if found and "/" not in name and name not in ("", ".", "..") else (address, ())


@contextmanager
def _unused(run_dir: Path) -> Iterator[bool]:
    """Keep a run from being trained here inside the block; yields False, without waiting, if it is."""
    if not run_dir.is_dir():
        yield True
        return
    handle = open_plain(run_dir / "run.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def _run_files(path: Path) -> list[str]:
    """The names of the files of a run, without those that are being written."""
    found = []
    for top in RUN_FILES:
        place = path / top
        inside = sorted(place.rglob("*")) if place.is_dir() and not place.is_symlink() else [place]
        found += [one.relative_to(path) for one in inside if one.is_file() and not one.is_symlink()]
    return [one.as_posix() for one in found if not any(".tmp-" in part or ".old-" in part for part in one.parts)]


def _work(files: Files) -> Mapping[str, Any]:
    return {name: entry["sha256"] for name, entry in files.items() if name.startswith(_WORK)}
