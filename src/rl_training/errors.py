"""The errors that users see, each with the exit code that the command line returns for it."""

import shlex
from collections.abc import Iterable
from difflib import get_close_matches


class RLTrainingError(Exception):
    """An error that the user can fix; its text is one line: what is wrong, where, and what to do."""

    exit_code = 1
    told = False  # whether another process of the run tells it to the user


class ConfigError(RLTrainingError, ValueError):
    """A setting, argument or space that cannot work."""

    exit_code = 2


class EnvironmentFailedError(ConfigError):
    """An environment failed while it was learned in; the `taken` steps before that are complete and can be saved."""

    def __init__(self, message: str, taken: int) -> None:
        super().__init__(message)
        self.taken = taken


class DatasetError(RLTrainingError, ValueError):
    """Data that is missing, malformed or not finite."""

    exit_code = 3


class CheckpointError(RLTrainingError):
    """A checkpoint that is missing, damaged or from another run."""

    exit_code = 4


class DivergedError(RLTrainingError):
    """Training produced NaN or inf in every member."""

    exit_code = 5


class StorageError(RLTrainingError):
    """The disk, the file system or the device memory is full or failed."""

    exit_code = 6


class RunBusyError(RLTrainingError):
    """Another process is using the run directory."""

    exit_code = 7


class NotReproducedError(RLTrainingError):
    """New seeds of a config are worse than what was recorded of it, beyond chance."""

    exit_code = 8


class ExportError(RLTrainingError):
    """An exported policy does not compute what the policy computes."""

    exit_code = 1


class StoppedBySignal(RLTrainingError):  # noqa: N818 - it reports a request, not an error
    """The run was asked to stop; it saved its state first."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


class RankEndedError(RLTrainingError):
    """Another process of a run on several ranks has ended, and so this one does."""

    def __init__(self, message: str, exit_code: int = 1, *, told: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.told = exit_code, told


def suggested(*words: object, imports: Iterable[str] = ()) -> str:
    """Return a command of the package that a shell takes as it stands, with the modules to import, for a message."""
    options = [option for module in imports for option in ("--import", module)]
    return shlex.join(["rl-training", *map(str, words), *options])


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return ` Did you mean `x`?` for the closest candidate, or an empty string when none is close."""
    close = get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f" Did you mean `{close[0]}`?" if close else ""
