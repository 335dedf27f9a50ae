"""The command line: parsing and printing only. `--help` loads no schema, and config errors load no torch.

Commands import their dependencies in the function body, since every module-level import slows down `--help`.
"""

import errno
import importlib.metadata
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import rl_training
from rl_training.cli import policies, training
from rl_training.cli.bench import bench
from rl_training.cli.choosing import ope, select
from rl_training.cli.collect import collect
from rl_training.cli.environments import env
from rl_training.cli.evaluate import evaluate
from rl_training.cli.listing import list_names
from rl_training.cli.options import DATA, data_app, with_read_options, without_read_options
from rl_training.cli.render import render
from rl_training.cli.results.compare import compare
from rl_training.cli.results.report import report
from rl_training.cli.results.reproduce import reproduce
from rl_training.cli.results.verify import verify
from rl_training.cli.results.watch import watch
from rl_training.cli.tune import tune, tune_app
from rl_training.errors import RLTrainingError
from rl_training.output import NobodyReadsError, forgiving_output, say

app = typer.Typer(
    name="rl-training",
    help="Turn logged data into control policies.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        torch = importlib.metadata.version("torch")  # importing it would take seconds
        others = f"Python {platform.python_version()}, torch {torch}, {platform.platform()}"
        typer.echo(f"rl-training {rl_training.__version__} ({others})")
        raise typer.Exit


@app.callback(help=app.info.help)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the versions of what is installed.")
    ] = False,
) -> None:
    del version


READING = (
    training.train,
    evaluate,
    ope,
    select,
    tune,
)  # commands that take the read options, which are built only when used
for command in (
    *(training.train, training.resume, training.finetune, evaluate, policies.predict, policies.export),
    *(ope, select, render, report, watch, reproduce, verify, collect, compare, env, bench),
):
    app.command()(without_read_options(command) if command in READING else command)
app.command("export-member")(policies.export_member)
app.command("list")(list_names)
app.add_typer(data_app)
app.add_typer(tune_app)


def _load_commands(arguments: Sequence[str]) -> None:
    """Register the commands of `rl-training data`, and the read options of other commands, only when they are used."""
    if arguments[:1] == [DATA]:
        import rl_training.cli.data  # noqa: F401 - it fills `data_app`
    entries = (*app.registered_commands, *tune_app.registered_commands)
    for command, entry in [(command, entry) for command in READING for entry in entries]:
        if arguments[:1] == [command.__name__] and entry.callback and entry.callback.__name__ == command.__name__:
            entry.callback = with_read_options(command)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; a user error is one clear line on standard error."""

    def command() -> object:
        _load_commands(list(arguments))
        return app(list(arguments) or ["--help"], prog_name="rl-training", standalone_mode=False)

    return exit_code_of(command, arguments)


def exit_code_of(command: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; a user error is one clear line on standard error."""
    with forgiving_output():
        try:
            return _run(command, arguments)
        except NobodyReadsError:  # `| head`: not our fault, and what had to be saved is
            return 0


def _run(command: Callable[[], object], arguments: Sequence[str]) -> int:
    debug = "--debug" in arguments
    try:
        code = command()
        if sys.stdout is not None:  # None if it was closed before we started
            sys.stdout.flush()
        return code if isinstance(code, int) else 0  # 130 when the parser caught Ctrl-C
    except RLTrainingError as error:
        if debug:
            traceback.print_exc()
        for line in [] if error.told else str(error).splitlines():
            say(f"error: {line}" if error.exit_code < 128 else line)
        return error.exit_code
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        say("error: not enough memory; lower batch_size, hidden_sizes, buffer_capacity or the seeds")
        return 6
    except KeyboardInterrupt:  # before a run has anything to save
        say("stopped before training began")
        return 130
    except OSError as error:
        code = _output_error(error)
        if code is None:
            raise
        return code
    except typer.Exit as leave:
        return leave.exit_code
    except Exception as error:
        usage = _usage_error(error, arguments)
        if usage is None:
            raise
        return usage


def _output_error(error: OSError) -> int | None:
    """Return the exit code when standard output is full; None for another error."""
    if error.errno != errno.ENOSPC:
        return None
    say(f"error: output cannot be written: {error.strerror}")
    return 6


def _usage_error(error: Exception, arguments: Sequence[str]) -> int | None:
    """Print an error of the argument parser and return exit code 2; None for any other error."""
    if not hasattr(error, "format_message"):
        return None
    context = getattr(error, "ctx", None)  # none where an option lacks its value
    command = _named_command(arguments) if context is None else context.command_path
    say(f"error: {error.format_message().rstrip('.')}; try `{command} --help`")
    return 2


def _named_command(arguments: Sequence[str]) -> str:
    """Return the command that the first arguments name, such as `rl-training data inspect`."""
    command: Any = typer.main.get_command(app)
    path = ["rl-training"]
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path.append(word)
    return " ".join(path)
