"""What the user sees during a run: a progress bar on a terminal, plain lines elsewhere, nothing when quiet."""

import time
from collections.abc import Sequence
from typing import IO, Any, Protocol, cast

from rl_training.config.run import RunConfig
from rl_training.config.schedules import CONSTANT
from rl_training.output import ForgivingStream, duration, printable, return_text, say

NOTHING_LEFT = "nothing is left to do: "
_MEASURED = 20.0  # seconds of steps after which it is told how long the rest takes
_LONG = 120.0  # seconds that are worth a line
FIXED_BUDGET = "a schedule spans the whole run, so its budget is fixed; start a new run"


class Reporter(Protocol):
    """Receives the run's progress."""

    def start(self, first: int, last: int, unit: str) -> None:
        """A phase of the run starts or resumes; it counts in `unit`, such as `env step`."""

    def advance(self, count: int, info: dict[str, float]) -> None:
        """A chunk of the phase is done; `info` holds losses and the last return, where known."""

    def note(self, text: str) -> None:
        """Something worth a line happened."""

    def saved(self, label: str) -> None:
        """A checkpoint was written, at a position such as `step 120`."""

    def warn(self, text: str) -> None:
        """Something the user should know about."""

    def close(self) -> None:
        """The run is over."""


class QuietReporter:
    """Prints nothing except warnings, on standard error."""

    def start(self, first: int, last: int, unit: str) -> None:
        """Print nothing."""

    def advance(self, count: int, info: dict[str, float]) -> None:
        """Print nothing."""

    def note(self, text: str) -> None:
        """Print nothing."""

    def saved(self, label: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        """Print a warning."""
        say(f"warning: {text}")

    def close(self) -> None:
        """Do nothing."""


class SilentReporter(QuietReporter):
    """Prints nothing at all: for a process whose run another one reports."""

    def warn(self, text: str) -> None:
        """Print nothing."""


class LineReporter(QuietReporter):
    """Prints notes as plain lines on standard error: for logs and pipes."""

    def __init__(self) -> None:
        self._last, self._unit = 0, "step"  # of the phase
        self._first: tuple[float, int] | None = None  # when its first steps were done, and up to where
        self._told = False  # how long it takes

    def start(self, first: int, last: int, unit: str) -> None:
        """Print where the phase starts and ends."""
        self._last, self._unit, self._first, self._told = last, unit, None, False
        self.note(f"training from {unit} {first:,} to {last:,}")

    def advance(self, count: int, info: dict[str, float]) -> None:
        """Print once how long a long phase takes; its first steps do not count, as they may have waited for a compiler."""
        del info
        now = time.perf_counter()
        if self._first is None:
            self._first = now, count
        spent, done = now - self._first[0], count - self._first[1]
        if self._told or spent < _MEASURED or not done:
            return
        self._told = True
        left = spent * (self._last - count) / done
        if left > _LONG:
            speed = f"{done / spent:,.3g}" if done < 100 * spent else f"{done / spent:,.0f}"
            self.note(f"{self._unit} {count:,} of {self._last:,}: about {duration(left)} left, at {speed} steps per second")

    def saved(self, label: str) -> None:
        """Print the position of a checkpoint."""
        self.note(f"saved {label}")

    def note(self, text: str) -> None:
        """Print a line."""
        say(text)


class BarReporter(QuietReporter):
    """A progress bar with speed, losses, last return and time left, and notes above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._console = Console(file=cast(IO[str], ForgivingStream()))
        self._bar = Progress(
            TextColumn("{task.completed:>9,.0f}/{task.total:,.0f} {task.fields[unit]}s"),
            BarColumn(bar_width=12),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[info]}", table_column=Column(ratio=1, no_wrap=True)),  # is cut where space is short
            expand=True,
            console=self._console,
            refresh_per_second=4,
        )
        self._task: Any = None

    def start(self, first: int, last: int, unit: str) -> None:
        """Show the bar of the phase, in place of an earlier one."""
        self._bar.start()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task("", total=last, completed=first, unit=unit, speed="", info="")

    def advance(self, count: int, info: dict[str, float]) -> None:
        """Move the bar."""
        speed = self._bar.tasks[0].speed
        text = "  ".join(f"{name} {value:.4g}" for name, value in info.items())
        self._bar.update(self._task, completed=count, speed=f"{speed:,.0f} steps/s" if speed else "", info=text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(printable(text), highlight=False, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        self._console.print(printable(f"warning: {text}"), highlight=False, markup=False, style="yellow")

    def close(self) -> None:
        """Stop the bar, leaving it on the screen."""
        self._bar.stop()


def default_reporter() -> Reporter:
    """Return a bar on a terminal and plain lines elsewhere."""
    return BarReporter() if ForgivingStream().isatty() else LineReporter()


def mean_and_range(means: Sequence[float], members: Sequence[int]) -> str:
    """Return the mean return of some members, and their range in brackets unless there is one alone."""
    shown = sorted(means[member] for member in members)
    together = f" (members {return_text(shown[0])} to {return_text(shown[-1])})" if len(shown) > 1 else ""
    return f"mean return {return_text(sum(shown) / len(shown))}{together}"


def larger_budget(config: RunConfig[Any]) -> str:
    """Return how a run that has spent its budget goes on, or why it cannot."""
    if config.finetune is not None and config.finetune.spans_the_phase:
        return "a setting moves over the whole online phase, so its length is fixed; start a new run"
    if config.finetune is not None:
        return f"go on with `rl-training finetune RUN --env-steps N`, N above {config.finetune.env_steps}"
    if set(config.schedules.values()) != {CONSTANT}:
        return FIXED_BUDGET
    return "raise total_timesteps (--total-timesteps) to go on"


def nothing_left(now: str, config: RunConfig[Any], *, budget: bool) -> str:
    """Return why a run that starts has nothing to do: its budget is spent, or all members have stopped."""
    if budget:
        return f"{NOTHING_LEFT}the run is at {now} and has spent its budget; {larger_budget(config)}"
    return f"{NOTHING_LEFT}every member has stopped by {now}, by early stopping or a callback; start a new run to train on"
