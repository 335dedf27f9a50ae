"""Runs in processes of their own, which are cut: killed at a moment, inside a save, or asked to stop."""

import contextlib
import os
import signal
import subprocess  # used only here, to start our own Python
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rl_training
from rl_training.errors import RLTrainingError
from rl_training.faults import VARIABLE

_SAVED, _LATEST_LINES = "saved ", 30


@dataclass(frozen=True)
class Cut:
    """How a process is ended: by a signal so long after one of its saves, or by a kill at a fault point inside that save."""

    saves: int
    """Checkpoints that the process writes first; of a fault point, the one that is not finished."""
    delay: float = 0.0
    """Seconds between the save and the signal."""
    number: int = signal.SIGKILL
    point: str | None = None

    def __str__(self) -> str:
        if self.point is not None:
            return f"kill -9 inside save {self.saves} ({self.point})"
        sent = "kill -9" if self.number == signal.SIGKILL else signal.Signals(self.number).name
        return f"{sent} {1000 * self.delay:.0f} ms after save {self.saves}"

    @property
    def exit_code(self) -> int:
        """What the process returns if the cut hit it."""
        return -self.number if self.number == signal.SIGKILL else 128 + self.number


@dataclass
class Ended:
    """How a process ended, and what it said."""

    exit_code: int
    saved: list[str] = field(default_factory=list)
    """Where its checkpoints are, such as `step 120`."""
    seconds: list[float] = field(default_factory=list)
    """Between one save and the next."""
    lines: list[str] = field(default_factory=list)

    def check(self, expected: Sequence[int]) -> None:
        """Raise what the process said of its failure unless it ended as expected."""
        if self.exit_code not in expected:
            errors = [line.removeprefix("error: ") for line in self.lines if line.startswith("error: ")]
            said = "\n".join(errors or self.lines[-3:]) or "it said nothing"
            raise RunFailedError(said, self.exit_code if self.exit_code > 0 else 1)


class RunFailedError(RLTrainingError):
    """A run that was started to be cut has failed by itself; the exit code is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def train_process(config: Path, run_dir: Path, imports: Sequence[str] = (), cut: Cut | None = None) -> Ended:
    """Train or resume a run in a process of its own until it ends or is cut; what it prints is returned."""
    words = [sys.executable, "-m", "rl_training", "train", str(config), "--run-dir", str(run_dir), "--resume", "auto"]
    words += [word for module in imports for word in ("--import", module)]
    with _started(words, cut) as process:
        ended, last = Ended(0), time.monotonic()
        for line in process.stderr or ():
            ended.lines = [*ended.lines, line.rstrip()][-_LATEST_LINES:]
            if not line.startswith(_SAVED):
                continue
            now = time.monotonic()
            ended.saved.append(line.removeprefix(_SAVED).strip())
            ended.seconds.append(now - last)
            last = now
            if cut is not None and cut.point is None and len(ended.saved) == cut.saves:
                _send(process, cut)
                if cut.number == signal.SIGKILL:  # what it started may hold the pipe open for a while
                    break
        ended.exit_code = process.wait()
    return ended


def _send(process: "subprocess.Popen[str]", cut: Cut) -> None:
    """Send the signal of a cut after its delay, or not at all if the process has ended by then."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(cut.delay)
    if process.poll() is None:
        process.send_signal(cut.number)


@contextlib.contextmanager
def _started(words: Sequence[str], cut: Cut | None) -> "Iterator[subprocess.Popen[str]]":
    """Start a process with our package; it is killed when the block ends."""
    paths = [str(Path(rl_training.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    variables.pop(VARIABLE, None)
    if cut is not None and cut.point is not None:
        variables[VARIABLE] = f"{cut.point}@{cut.saves}"
    process = subprocess.Popen(  # noqa: S603 - our own Python, and no shell
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", env=variables
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
