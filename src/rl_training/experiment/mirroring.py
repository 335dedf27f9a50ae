"""A run whose directory is the local copy of one in a store: every checkpoint is copied there, and so is the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rl_training.errors import RunBusyError, StorageError
from rl_training.remote.mirror import Mirror
from rl_training.runtime.callbacks import Callback


class MirroredRun(Callback):
    """Copies a run to its store at every checkpoint; what fails is told and sent with the next, and the run goes on."""

    def __init__(self, address: str, warn: Callable[[str], None]) -> None:
        self._mirror, self._address, self._warn, self.claimed = Mirror(address, warn), address, warn, False

    def claim(self) -> None:
        """Become the one that writes the run."""
        self._mirror.claim()
        self.claimed = True

    def on_checkpoint(self, step: int, path: str) -> None:
        """Copy what is new."""
        del step, path
        try:
            self._mirror.save()
        except StorageError as error:
            self._warn(f"{error}; the run goes on, and the next checkpoint is copied with this one")

    def end(self, *, finished: bool) -> None:
        """Copy the rest; after an interruption a failure is only told, since another error is on its way."""
        try:
            self._mirror.save(writing=False)
        except (StorageError, RunBusyError) as error:
            kept = f"{error}; nothing is lost: `rl-training resume {self._address}` on this machine copies the rest"
            if finished:
                raise type(error)(kept) from error
            self._warn(kept)


@contextmanager
def mirroring(address: str | None, warn: Callable[[str], None]) -> Iterator[MirroredRun | None]:
    """Yield the callback that copies a run to its address, which has to `claim` it; None for a run without one."""
    if address is None:
        yield None
        return
    mirrored = MirroredRun(address, warn)
    try:
        yield mirrored
    except RunBusyError:  # it is another's now
        raise
    except BaseException:
        if mirrored.claimed:
            mirrored.end(finished=False)
        raise
    if mirrored.claimed:
        mirrored.end(finished=True)
