"""`rl-training watch`: parsing and printing only."""

import os
import sys
from typing import Annotated

import typer

from rl_training.cli.options import DebugOption
from rl_training.remote.address import refuse_address


def watch(
    runs: Annotated[list[str], typer.Argument(help="Run directories.", metavar="RUN...")],
    once: Annotated[bool, typer.Option("--once", help="Print the present state and leave.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks at the files.")] = 1.0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for a run that is not there yet.")] = False,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters alone.")] = False,
    debug: DebugOption = False,
) -> None:
    """Show runs in the terminal while they train: curve, members, losses, speed, time left; Ctrl-C leaves them alone.

    Ends with the runs: exit code 0 if they finished. Without a terminal it prints a line for each evaluation.
    """
    del debug
    from rl_training.report.live.watching import watch_runs

    for run in runs:
        refuse_address(run, "a run to watch")
    try:
        code = watch_runs(runs, interval=interval, once=once, wait=wait, ascii_only=ascii_only)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `| head` has seen enough; the parser would make a failure of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    raise typer.Exit(code)
