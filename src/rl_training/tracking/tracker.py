"""Mirrors metrics.jsonl in the backends that a config names; whatever happens to them, the run is the same."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.config.run import RunConfig
from rl_training.errors import suggested
from rl_training.runtime.callbacks import Callback, Rows
from rl_training.runtime.progress import QuietReporter, Reporter
from rl_training.tracking.backends import backend
from rl_training.tracking.follower import Follower
from rl_training.tracking.sender import Sender
from rl_training.tracking.subject import subject_of

WAIT_SECONDS, STOP_SECONDS = 30.0, 10.0
"""How long the end of a run waits, at most, for backends to take the last rows; how long one that was asked to stop."""


class Tracker(Callback):
    """Sends every row of a run to its backends, each once, also when the run is killed and resumed.

    What a backend already holds is asked of the backend itself. One that fails is reported once and left alone; it gets what
    it lacks at the next resume.
    """

    def __init__(self, config: RunConfig[Any], run_dir: Path, reporter: Reporter) -> None:
        self._opens = {name: backend(name) for name in config.log}  # first: a missing library ends the command here
        self._config, self._run_dir, self._reporter = config, run_dir, reporter
        self._follower = Follower(run_dir, (config.finetune and config.finetune.from_step) or 0)
        self._senders: list[Sender] = []
        self._shown: set[str] = set()

    def on_start(self, learner: Any) -> None:
        """Open the backends, once metrics.jsonl holds what the run goes on from."""
        del learner
        self._safely(self._begin)

    def on_metrics(self, step: int, rows: Rows) -> None:
        """Send what was added to metrics.jsonl."""
        del step, rows
        self._safely(self._follow)

    def on_checkpoint(self, step: int, path: str) -> None:
        """Send what was added to metrics.jsonl: events are written without a hook of their own."""
        del step, path
        self._safely(self._follow)

    def close(self, *, finished: bool) -> None:
        """Send the rest and close the backends, waiting for a limited time."""
        if self._senders:
            self._safely(lambda: self._end(finished=finished))

    def _begin(self) -> None:
        self._follower.begin()
        self._open()
        self._follow()

    def _open(self) -> None:
        subject = subject_of(self._config, self._run_dir, self._follower.id)
        self._senders = [Sender(name, lambda opened=opened: opened(subject)) for name, opened in self._opens.items()]  # type: ignore[misc]

    def _follow(self) -> None:
        if not self._senders:
            return
        known, rows = self._follower.id, self._follower.rows()
        if self._follower.id != known:
            self._reopen()
        for sender in self._senders:
            sender.send(rows)
        self._report()

    def _reopen(self) -> None:
        """Let go of the runs that backends know, and begin new ones."""
        self._reporter.note(
            f"{self._names}: other rows than were logged before this resume, so the run is logged as a new one"
        )
        self._finish(finished=False)
        self._open()

    def _end(self, *, finished: bool) -> None:
        self._follow()
        if finished and self._follower.behind:  # the run ended earlier than the one that was logged
            self._follower.start_over()
            self._reopen()
            self._follow()
        self._finish(finished=finished)

    def _finish(self, *, finished: bool) -> None:
        for sender in self._senders:
            sender.finish(finished=finished)
        seconds = WAIT_SECONDS if finished else STOP_SECONDS
        until = time.monotonic() + seconds
        late = [sender for sender in self._senders if not sender.wait(until - time.monotonic())]
        self._report()
        for sender in late:
            self._lose(sender.name, f"did not take the last rows within {seconds:.0f} seconds")
        self._senders = []

    def _report(self) -> None:
        """Tell once where a backend can be looked at, and once if it failed; one that failed gets no more rows."""
        for sender in self._senders:
            if sender.where is not None and sender.name not in self._shown:
                self._shown.add(sender.name)
                self._reporter.note(f"{sender.name}: {sender.where}")
            if sender.error is not None:
                self._lose(sender.name, _one_line(sender.error))
        self._senders = [sender for sender in self._senders if sender.error is None]

    def _lose(self, name: str, why: str) -> None:
        later = suggested("resume", self._run_dir, "--log", name)
        self._reporter.warn(f"{name}: {why}; the run goes on without it, and `{later}` sends what is missing")

    @property
    def _names(self) -> str:
        return ", ".join(sender.name for sender in self._senders)

    def _safely(self, act: Callable[[], None]) -> None:
        """Act; an error of the files in between is reported, and ends all logging to backends."""
        try:
            act()
        except Exception as error:
            for sender in self._senders:
                sender.finish(finished=False)
            for name in [sender.name for sender in self._senders] or list(self._opens):
                self._lose(name, _one_line(error))
            self._senders = []


@contextmanager
def tracking(config: RunConfig[Any], run_dir: Path, reporter: Reporter | None) -> Iterator[list[Callback]]:
    """Yield the callback that logs to the backends of a config, if it has any; they are closed when the block ends."""
    tracker = Tracker(config, run_dir, reporter or QuietReporter())
    finished = False
    try:
        yield [tracker] if config.log else []
        finished = True
    finally:
        tracker.close(finished=finished)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
