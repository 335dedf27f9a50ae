"""A folder in an object store: few operations, each retried, with errors of one line."""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rl_training.errors import RLTrainingError, StorageError
from rl_training.remote.address import checked_address, open_filesystem
from rl_training.storage import MAX_JSON_BYTES

_PAUSES = (1.0, 4.0)  # seconds before a second and a third attempt
_PATIENT = "gs://"  # where the library itself makes six attempts in half a minute
_CONDITION_FAILED = "412"  # the status of HTTP
_BLOCK = 2**22  # bytes that are read at once
_NO_USE = (FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError, IsADirectoryError)  # again is no better
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Stored:
    """What a store says of a file: how long it is, and a mark that changes with its content."""

    bytes: int
    version: str


class Store:
    """A folder in an object store, or one file in it; names are relative to it, and `""` is the thing itself."""

    def __init__(self, address: str) -> None:
        self.address = checked_address(address)
        self._files = open_filesystem(self.address)
        self._root: str = self._files._strip_protocol(self.address)

    def kind(self) -> str | None:
        """Return `file` or `directory`, or None if there is nothing here."""
        try:
            return str(self._tried(lambda: self._files.info(self._root))["type"])
        except FileNotFoundError:
            return None

    def matches(self, pattern: str) -> dict[str, Stored]:
        """Return the files here that match a glob, by name."""
        return self._by_name(self._listed(lambda: self._files.glob(f"{self._root}/{pattern}", detail=True)))

    def files(self) -> dict[str, Stored]:
        """Return all files below this folder by name, or of a file itself under its empty name."""
        return self._by_name(self._listed(lambda: self._files.find(self._root, detail=True)))

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if there is no such folder."""
        return sorted(name.rpartition("/")[2] for name in Store(f"{self.address}/{folder}").files())

    def _listed(self, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was found; nothing where there is no such bucket."""
        try:
            return self._tried(find)
        except FileNotFoundError:
            return {}

    def _by_name(self, found: dict[str, Any]) -> dict[str, Stored]:
        entries = {path: info for path, info in found.items() if info.get("type") == "file"}
        return {path.removeprefix(self._root).lstrip("/"): _stored(info) for path, info in entries.items()}

    def read(self, name: str, limit: int) -> bytes:
        """Return a small file; one over the limit is refused unread, and a missing one is a FileNotFoundError."""
        where = self._path(name)

        def read() -> bytes:
            with self._files.open(where, "rb", cache_type="none") as stream:
                return bytes(stream.read(limit + 1))

        data = self._tried(read)
        if len(data) > limit:
            raise StorageError(f"{self.address}/{name}: has more than the {limit:,} bytes that are allowed")
        return data

    def download(self, name: str, target: Path, size: int) -> str:
        """Write a file of so many bytes to a new local path, and return its SHA-256; one that is longer is not read on."""

        def fetch() -> str:
            digest, read = hashlib.sha256(), 0
            with self._files.open(self._path(name), "rb", block_size=_BLOCK) as stream, target.open("wb") as copy:
                while read <= size and (block := stream.read(_BLOCK)):
                    digest.update(block)
                    copy.write(block)
                    read += len(block)
            if read != size:
                raise OSError(f"{name or self.address} has not the {size:,} bytes that it should have")
            return digest.hexdigest()

        return self._tried(fetch)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, or replace it."""
        self._tried(lambda: self._files.pipe_file(self._path(name), data), missing=StorageError)

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file that is not there yet; return False, without a change, if it is.

        Of two processes that create the same file one succeeds, if the store has conditional writes.
        """
        path = self._path(name)

        def create() -> None:
            if "file" in self._files.protocol:  # `pipe_file` would look first and write then
                with self._files.open(path, "xb") as stream:
                    stream.write(data)
            else:
                with _existing_named():
                    self._files.pipe_file(path, data, mode="create")

        try:
            self._tried(create, missing=StorageError)
        except FileExistsError:
            return self.read(name, MAX_JSON_BYTES) == data  # of an attempt whose answer was lost
        return True

    def remove(self, names: Collection[str]) -> None:
        """Remove files; those that are gone already are no error."""
        for name in names:
            with suppress(FileNotFoundError):
                self._tried(lambda name=name: self._files.rm_file(self._path(name)))  # type: ignore[misc]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _tried(self, act: Callable[[], ValueT], missing: type[Exception] = FileNotFoundError) -> ValueT:
        """Act, again after a pause if it fails, and in the end raise a StorageError; that a file is missing is an answer."""
        for pause in (*(() if self.address.startswith(_PATIENT) else _PAUSES), None):
            try:
                return act()
            except FileNotFoundError as error:
                raise missing(f"{self.address}: there is no such place in the store ({error})") from None
            except (FileExistsError, RLTrainingError):
                raise
            except Exception as error:
                if pause is None or isinstance(error, _NO_USE):
                    text = " ".join(str(error).split())[:200] or type(error).__name__
                    raise StorageError(f"{self.address}: the store does not answer as it should: {text}") from error
            time.sleep(pause)
        raise AssertionError("unreachable")


@contextmanager
def _existing_named() -> Iterator[None]:
    """Raise a FileExistsError where Google's store says that the condition of a write does not hold."""
    try:
        yield
    except Exception as error:
        if str(getattr(error, "code", "")) == _CONDITION_FAILED:
            raise FileExistsError(str(error)) from None
        raise


def _stored(info: dict[str, Any]) -> Stored:
    marks = ("ETag", "etag", "md5Hash", "mtime", "created")
    return Stored(int(info["size"]), next((str(info[mark]) for mark in marks if info.get(mark)), ""))
