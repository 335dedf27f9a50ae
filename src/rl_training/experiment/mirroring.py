"""A run whose directory is the local copy of one in a store: every checkpoint is copied there, and so is the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rl_training.errors import RunBusyError, StorageError, suggested
from rl_training.remote.mirror import Mirror
from rl_training.runtime.callbacks import Callback


class MirroredRun(Callback):
    """Copies a run to its address at every checkpoint, if it has one and `claim` was called.

    What cannot be copied is told and sent with the next checkpoint, and the run goes on; unless it is another's by now.
    """

    def __init__(self, address: str | None, warn: Callable[[str], None]) -> None:
        self._address, self._warn = address, warn
        self._mirror: Mirror | None = None

    def claim(self) -> None:
        """Become the one that writes the run."""
        if self._address is not None:
            mirror = Mirror(self._address, self._warn)
            mirror.claim()
            self._mirror = mirror

    def on_checkpoint(self, step: int, path: str) -> None:
        """Copy what is new."""
        del step, path
        if self._mirror is None:
            return
        try:
            self._mirror.save()
        except StorageError as error:
            self._warn(f"{error}; the run goes on, and the next checkpoint is copied with this one")

    def end(self, *, finished: bool) -> None:
        """Copy the rest; after an interruption a failure is only told, since another error is on its way."""
        if self._mirror is None:
            return
        try:
            self._mirror.save(writing=False)
        except (StorageError, RunBusyError) as error:
            kept = f"{error}; nothing is lost: `{suggested('resume', self._address)}` on this machine copies the rest"
            if finished:
                raise type(error)(kept) from error
            self._warn(kept)


@contextmanager
def mirroring(address: str | None, warn: Callable[[str], None]) -> Iterator[MirroredRun]:
    """Yield the callback that copies a run to its address, which has to `claim` it; without an address it does nothing."""
    mirrored = MirroredRun(address, warn)
    try:
        yield mirrored
    except RunBusyError:  # it is another's now
        raise
    except BaseException:
        mirrored.end(finished=False)
        raise
    mirrored.end(finished=True)
