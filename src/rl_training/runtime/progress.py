"""What the user sees during a run: a progress bar on a terminal, plain lines elsewhere, nothing when quiet."""

import sys
from typing import Any, Protocol


class Reporter(Protocol):
    """Receives the run's progress."""

    def start(self, first_step: int, total_steps: int) -> None:
        """A run starts or resumes."""

    def advance(self, step: int, info: dict[str, float]) -> None:
        """A chunk is done; `info` holds losses and the last return, where known."""

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

    def start(self, first_step: int, total_steps: int) -> None:
        """Print nothing."""

    def advance(self, step: int, info: dict[str, float]) -> None:
        """Print nothing."""

    def note(self, text: str) -> None:
        """Print nothing."""

    def saved(self, label: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        """Print a warning."""
        print(f"warning: {text}", file=sys.stderr)

    def close(self) -> None:
        """Do nothing."""


class LineReporter(QuietReporter):
    """Prints notes as plain lines on standard error: for logs and pipes."""

    def start(self, first_step: int, total_steps: int) -> None:
        """Print where the run starts and ends."""
        self.note(f"training from step {first_step:,} to {total_steps:,}")

    def saved(self, label: str) -> None:
        """Print the position of a checkpoint."""
        self.note(f"saved {label}")

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)


class BarReporter(QuietReporter):
    """A progress bar with speed, losses, last return and time left, and notes above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.completed:>9,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[info]}"),
            console=self._console,
            refresh_per_second=4,
        )
        self._task: Any = None

    def start(self, first_step: int, total_steps: int) -> None:
        """Show the bar."""
        self._bar.start()
        self._task = self._bar.add_task("", total=total_steps, completed=first_step, speed="", info="")

    def advance(self, step: int, info: dict[str, float]) -> None:
        """Move the bar."""
        speed = self._bar.tasks[0].speed
        text = "  ".join(f"{name} {value:.4g}" for name, value in info.items())
        self._bar.update(self._task, completed=step, speed=f"{speed:,.0f} steps/s" if speed else "", info=text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        self._console.print(f"warning: {text}", highlight=False, markup=False, style="yellow")

    def close(self) -> None:
        """Stop the bar, leaving it on the screen."""
        self._bar.stop()


def default_reporter() -> Reporter:
    """Return a bar on a terminal and plain lines elsewhere."""
    return BarReporter() if sys.stderr.isatty() else LineReporter()


def nothing_left(now: str, *, budget: bool) -> str:
    """Return why a run that starts has nothing to do: its budget is spent, or all members have stopped."""
    if budget:
        return f"the run is at {now} and has spent its budget; raise total_timesteps (--total-timesteps) to go on"
    return f"every member has stopped by {now}, by early stopping or a callback; start a new run to train on"
