"""Watches runs until they have ended: in place on a terminal, line by line elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rl_training.analysis.logged_run import LoggedRun
from rl_training.errors import CheckpointError, ConfigError, suggested
from rl_training.experiment.manager import locate
from rl_training.experiment.run_record import run_status
from rl_training.report.live.follow import RunFollower, check_distinct, last_written
from rl_training.report.live.plot import Glyphs
from rl_training.report.live.progress import State, as_ended, state_of
from rl_training.report.live.screen import Size, run_lines, speed_texts
from rl_training.report.live.view import RunView, view_of
from rl_training.runtime.checkpoints.lock import is_in_use

_SHORTEST_INTERVAL = 0.1  # seconds between two looks
_NARROWEST, _LOWEST = 10, 4  # a screen is never taken to be smaller

Clock = Callable[[], float]
Wait = Callable[[float], object]


class Watched:
    """One run that is watched: what its directory says, and what is shown of it."""

    def __init__(self, run: str | Path, clock: Clock, *, wait: bool = False) -> None:
        self.follower, self._clock = RunFollower(run, wait=wait), clock
        self._viewed: tuple[LoggedRun | None, bool] = None, False
        self.view: RunView | None = None

    def poll(self) -> bool:
        """Look for news; return whether there are any."""
        news = self.follower.poll()
        run, ended = self.follower.run, self.state.ended
        if run is not None and (run is not self._viewed[0] or ended is not self._viewed[1]):
            self._viewed, self.view = (run, ended), view_of(as_ended(run, self.state))
        return news

    @property
    def run(self) -> LoggedRun | None:
        """The run by now, with how it ended; None before it has begun."""
        return self.follower.run and as_ended(self.follower.run, self.state)

    @property
    def waited(self) -> float:
        """Seconds since the last news."""
        return max(0.0, self._clock() - self.follower.written)

    @property
    def state(self) -> State:
        """Whether the run goes on."""
        usual = self.view.progress.usual_wait if self.view else None
        return state_of(self.follower.run, self.follower.alive, self.waited, usual)

    def lines(self, size: Size) -> list[Text]:
        """Return the run as it is shown on a screen."""
        return run_lines(self.follower.name, self.view, self.state, self.waited, size)

    def line(self) -> str:
        """Return the run in one line: where it is, its latest result, and how long it still takes."""
        state, view = self.state, self.view
        parts = [] if state.text == "running" and view is not None else [state.text]
        if view is not None:
            parts += [view.progress.text(), *filter(None, [view.result()]), *speed_texts(view, state, self.waited)]
            parts += [f"warning: {text}" for text in view.missing]
        return f"{self.follower.name}: {', '.join(parts)}"


def present_run(run: str | Path, clock: Clock = time.time) -> LoggedRun:
    """Return a run as it is now, with how it ended, also if its process was killed; a CheckpointError before it has begun."""
    path = locate(run)[0]
    alive = path is not None and is_in_use(path)  # asked first: a run that has ended by then has written how
    if path is not None and run_status(path) is None and alive:
        raise CheckpointError(f"{run}: is only starting; try again once it trains (`{suggested('watch', run)}` waits for it)")
    found = LoggedRun.load(run)
    waited = max(0.0, clock() - last_written(found.path))
    return as_ended(found, state_of(found, alive, waited, None))


def watch_runs(
    paths: Sequence[str | Path],
    *,
    interval: float = 1.0,
    once: bool = False,
    wait: bool = False,
    ascii_only: bool = False,
    clock: Clock = time.time,
    sleep: Wait = time.sleep,
) -> int:
    """Show runs until all have ended; return 0 if they finished, or the exit code of the first that did not.

    Nothing in their directories is changed. `once` shows them as they are now; `wait` waits for runs that are not there yet.
    """
    if not interval >= _SHORTEST_INTERVAL:
        raise ConfigError(f"--interval {interval:g}: must be at least {_SHORTEST_INTERVAL:g} seconds")
    runs = [Watched(path, clock, wait=wait) for path in paths]
    check_distinct([run.follower.path for run in runs])
    for run in runs:
        run.poll()
    console = Console(highlight=False)
    glyphs = Glyphs(unicode=not ascii_only and _shows_unicode(console))
    if once:
        _print(console, _screen(runs, console, glyphs))
    elif console.is_terminal and not console.is_dumb_terminal:
        _in_place(runs, console, glyphs, lambda: sleep(interval))
    else:
        _line_by_line(runs, glyphs, lambda: sleep(interval))
    return next((run.state.code for run in runs if run.state.code), 0)


def _in_place(runs: Sequence[Watched], console: Console, glyphs: Glyphs, pause: Callable[[], object]) -> None:
    """Draw the runs whenever that changes what is seen; leave the last picture on the screen."""
    drawn: list[Text] = []
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                seen = _screen(runs, console, glyphs)
                if seen != drawn:
                    drawn = seen  # first: Ctrl-C may come while it is drawn
                    live.update(Group(*seen), refresh=True)
                if all(run.state.ended for run in runs):
                    break
                pause()
                for run in runs:
                    run.poll()
    finally:
        _print(console, drawn)


def _line_by_line(runs: Sequence[Watched], glyphs: Glyphs, pause: Callable[[], object]) -> None:
    """Print a line for each evaluation, and for each change of state."""
    told: dict[Path, tuple[str, int | None]] = {}
    while True:
        for run in runs:
            now = run.state.kind, run.view.evaluated_at if run.view else None
            if told.get(run.follower.path) != now:
                told[run.follower.path] = now
                print(glyphs.shown(run.line()), flush=True)
        if all(run.state.ended for run in runs):
            return
        pause()
        for run in runs:
            run.poll()


def _screen(runs: Sequence[Watched], console: Console, glyphs: Glyphs) -> list[Text]:
    """The runs one below another; each gets its share of the lines."""
    width, height = max(_NARROWEST, console.width), max(_LOWEST, console.height - 1)
    size = Size(width, max(_LOWEST, height // len(runs)), glyphs)
    return [line for run in runs for line in run.lines(size)][:height]


def _print(console: Console, lines: Sequence[Text]) -> None:
    if console.is_terminal:
        console.print(*lines, sep="\n", soft_wrap=True)
        return
    for line in lines:
        print(line.plain.rstrip())


def _shows_unicode(console: Console) -> bool:
    """Whether braille and block characters can be shown; a C locale says that they cannot, though Python writes UTF-8."""
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    plain = locale in ("C", "POSIX") or os.environ.get("TERM") in ("dumb", "linux")
    return not plain and (sys.stdout.encoding or "").lower().startswith("utf") and not console.legacy_windows
