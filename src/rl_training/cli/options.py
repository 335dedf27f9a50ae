"""Options that several commands share, and the sweeps of some: how they are requested, and how their results are shown."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from rl_training.errors import ConfigError
from rl_training.output import printable, return_text
from rl_training.remote.address import is_remote

if TYPE_CHECKING:
    from rl_training.config.environment import EnvSource
    from rl_training.runtime.population import Combination

DATA = "data"
data_app = typer.Typer(name=DATA, help="Inspect, check, convert and combine logged data.", rich_markup_mode=None)
"""Filled by `cli/data.py`, which is loaded only when needed: its options are derived from the config schema."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")]
EnvOption = Annotated[str | None, typer.Option("--env", help="Gymnasium environment; by default that of the run.")]
EnvKwargsOption = Annotated[str | None, typer.Option(help="Arguments of the environment, such as '{frame_skip: 5}'.")]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Show metrics in tensorboard, wandb, mlflow or trackio too; may be repeated, `none` for nowhere.", metavar="NAME"
    ),
]
MemberOption = Annotated[int | None, typer.Option(help="Member of a population, from 0.")]


def local_runs(runs: list[str]) -> list[str]:
    """Return runs with addresses in a store replaced by their local copies, fetched and verified, before a command begins."""
    return [_local_run(run) for run in runs]


def _local_run(run: str) -> str:
    if not is_remote(run):
        return run
    from rl_training.remote.runs import local_run

    return str(local_run(run))


RunArgument = Annotated[
    str, typer.Argument(help="A run directory or one checkpoint in it.", metavar="RUN", callback=_local_run)
]


def _import_all(modules: list[str] | None) -> list[str] | None:
    """Import the modules that the user named, before the command looks for environments."""
    if modules:
        from rl_training.envs.imports import import_requested

        for module in modules:
            import_requested(module)
    return modules


ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        help="A Python module (or a .py file) that registers the environment; may be repeated.",
        metavar="MODULE",
        callback=_import_all,
    ),
]


def full_path(path: str | Path) -> str:
    """Return where a file was written, from the root and fit to be printed: a mistyped folder is made, and must be seen."""
    return printable(str(Path(path).absolute()))


def block_marks() -> str:
    """Return nine characters from empty to full; in ASCII if the terminal cannot show block characters."""
    return " ▁▂▃▄▅▆▇█" if (sys.stdout.encoding or "").lower().startswith("utf") else " .:-=+*#@"


def log_setting(names: list[str] | None) -> dict[str, Any]:
    """Return the setting that --log asks for; none if the option was not given."""
    if not names:
        return {}
    if "none" in names and len(names) > 1:
        raise ConfigError("--log none: excludes other names")
    return {"log": [] if names == ["none"] else names}


def parse_env_kwargs(text: str | None) -> dict[str, Any]:
    """Return the arguments of an environment, given as a map such as `{frame_skip: 5}`."""
    if text is None:
        return {}
    from rl_training.config.yaml_loader import parse_yaml

    values, _ = parse_yaml(text, "--env-kwargs")
    if not isinstance(values, dict):
        raise ConfigError(f"--env-kwargs {text!r}: must be a map such as '{{frame_skip: 5}}'")
    return values


def named_env(env: str | None, env_kwargs: str | None, own: "EnvSource | None" = None) -> "EnvSource | None":
    """Return the environment that options name, or a run's `own`, which other arguments may be given.

    The id of the run's own means that very environment, with its arguments, limit and wrappers.
    """
    from rl_training.config.environment import EnvSource

    if env is not None and (own is None or env != own.env_id):
        return EnvSource(env, parse_env_kwargs(env_kwargs))
    if env_kwargs is None:
        return own
    if own is None:
        raise ConfigError("--env-kwargs are for the environment that --env names")
    return replace(own, kwargs={**own.kwargs, **parse_env_kwargs(env_kwargs)})


def _read_parameters() -> list[inspect.Parameter]:
    """The read options: one for each field of the config, with its default and its description.

    A field without a default is passed as text and parsed by `ReadChoice`, unless it is a whole number.
    """
    from rl_training.config.blocks import FileConfig, ReadOptions

    found = []
    for name, field in {"format": FileConfig.model_fields["format"], **ReadOptions.model_fields}.items():
        plain = int | None if field.annotation == int | None else str | None
        kind: Any = plain if field.default is None else type(field.default)
        flag = [f"--{name.replace('_', '-')}"] if kind is bool else []
        annotation = Annotated[kind, typer.Option(*flag, help=field.description)]
        found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation))
    return found


def with_read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the read options to a command, which receives them as one `reading: ReadChoice`; its own options come first."""
    own = inspect.signature(command).parameters
    return _with_options(command, [parameter for parameter in _read_parameters() if parameter.name not in own])


def without_read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command as it is listed: its read options, which need the config schema, are added only when it is used."""
    return _with_options(command, [])


def _with_options(command: Callable[..., None], extra: Sequence[inspect.Parameter]) -> Callable[..., None]:
    hints = get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(command).parameters.values() if p.name != "reading"]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        chosen = {parameter.name: values.pop(parameter.name) for parameter in extra}
        command(**values, reading=ReadChoice(chosen))

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    wrapped.__signature__ = inspect.Signature([*parameters, *extra])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*parameters, *extra)} | {"return": None}
    return wrapped


class ReadChoice:
    """The read options that a command received, checked by the config schema."""

    def __init__(self, values: dict[str, Any]) -> None:
        from rl_training.config.blocks import FileConfig, ReadOptions

        given = {name: value for name, value in values.items() if value is not None}
        if "columns" in given:
            given["columns"] = parse_columns(given["columns"])
        for name in {"action_low", "action_high"} & set(given):
            given[name] = numbers(given[name], name)
        defaults = {name: field.default for name, field in {**ReadOptions.model_fields, **FileConfig.model_fields}.items()}
        self.settings = {name: value for name, value in given.items() if value != defaults[name]}
        """What was asked for, as a config's dataset block has it."""
        self.format = FileConfig.checked({"format": given.pop("format", "auto")}).format
        self.options = ReadOptions.checked(given)

    @property
    def words(self) -> list[str]:
        """What was asked for, as words of a command line; a column map is written out."""
        found = []
        for name, value in self.settings.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value)
            shown = value if isinstance(value, str) else text
            found += [f"--{name.replace('_', '-')}", *([] if value is True else [shown])]
        return found

    def check_used_with(self, data: str | None) -> None:
        """Refuse options that say how to read files where no data is named."""
        if data is None and self.settings:
            option = next(iter(self.settings)).replace("_", "-")
            raise ConfigError(f"--{option} says how to read files: pass --data PATH too")


def parse_columns(text: str) -> Any:
    """Return an inline column map, or that of a file which holds one (alone, or under `columns`)."""
    from rl_training.config.yaml_loader import parse_yaml

    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--columns {text[:60]!r}: is neither a {{...}} map nor a readable file ({error})") from None
    values, _ = parse_yaml(text, "--columns")
    return values["columns"] if isinstance(values, dict) and set(values) == {"columns"} else values


def numbers(text: str, name: str) -> list[float]:
    """Return the numbers of an option such as `-1,-1`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--{name.replace('_', '-')} {text!r}: must be numbers, such as -1,-1") from None


def parse_sweep(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values by knob of options such as `expectile=0.7,0.9`; the config checks which are legal."""
    from rl_training.config.yaml_loader import parse_scalar

    sweep: dict[str, list[Any]] = {}
    for text in texts:
        knob, _, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")]
        if not knob.strip() or not all(parts):
            raise ConfigError(f"--sweep {text!r}: must look like expectile=0.7,0.8,0.9")
        if knob.strip() in sweep:
            raise ConfigError(f"--sweep {text!r}: `{knob.strip()}` was given before; list all its values at once")
        try:
            sweep[knob.strip()] = [parse_scalar(part) for part in parts]
        except ConfigError:
            raise ConfigError(f"--sweep {text!r}: the values must be numbers, such as expectile=0.7,0.8,0.9") from None
    return sweep


def mean_text(report: Mapping[str, Any], count: int) -> str:
    """Return the mean return of a report with the deviation of the `count` episodes behind it, which one alone has not."""
    mean = return_text(report["return_mean"])
    return f"{mean} +- {return_text(report['return_std'])}" if count > 1 else mean


def interval_text(bounds: Sequence[float] | None) -> str:
    """Return an interval such as `1.2 to 3.4`; a dash for none."""
    return " to ".join(map(return_text, bounds)) if bounds else "-"


def combination_table(found: "Sequence[Combination]", columns: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """Return a table with one line per combination of a sweep; `columns` are further ones, with a cell for each."""
    more = columns or {}
    rows = [[*found[0].knobs, "return", "std", *more, "members"]]
    for number, one in enumerate(found):
        lost = f" ({one.diverged} diverged)" if one.diverged else ""
        figures = [return_text(one.return_mean), return_text(one.return_std), *(cells[number] for cells in more.values())]
        rows.append([*(f"{value:g}" for value in one.knobs.values()), *figures, f"{len(one.members)}{lost}"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def best_text(best: "Combination", where: str, seeds: int | None = None) -> str:
    """Return the best combination with what it is the best by: the mean return of its `seeds`, or of those that lasted."""
    from rl_training.config.sweep import knob_text

    count = len(best.members) - best.diverged if seeds is None else seeds
    whose = f"mean of {count} seeds" if count > 1 else "of one seed"
    return f"best: {knob_text(best.knobs)} with return {return_text(best.return_mean)} ({whose}, {where})"
