"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.data.reading import ReadOptions

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")]
MemberOption = Annotated[int | None, typer.Option(help="Member of a population, from 0.")]

_READ: dict[str, tuple[Any, Any]] = {
    "format": (Annotated[str, typer.Option(help="auto, or the layout of the file.")], "auto"),
    "columns": (
        Annotated[
            str | None, typer.Option(help="Columns of a table: a YAML file, or {observations: 'obs_*', actions: [u], ...}.")
        ],
        None,
    ),
    "ends": (Annotated[str, typer.Option(help="`timeouts`: every marked end is a time limit.")], "auto"),
    "next_observations": (Annotated[str, typer.Option(help="`following`: make them from the following row.")], "auto"),
    "reward_lag": (
        Annotated[int, typer.Option(help="The reward of a row is stored this many rows later in its episode.")],
        0,
    ),
    "reward_lag_across": (
        Annotated[bool, typer.Option("--reward-lag-across", help="The whole column is shifted, across episodes too.")],
        False,
    ),
    "on_bad_rows": (Annotated[str, typer.Option(help="`drop`: leave out rows with NaN or inf.")], "error"),
    "action_scale": (Annotated[float, typer.Option(help="Factor from the stored unit of the actions to the real one.")], 1.0),
    "action_low": (Annotated[str | None, typer.Option(help="Real lower bounds of the actions, such as -1,-1.")], None),
    "action_high": (Annotated[str | None, typer.Option(help="Real upper bounds of the actions.")], None),
    "max_bytes": (Annotated[str | None, typer.Option(help="Most memory for arrays, such as 2GiB.")], None),
}


def with_read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading data; it receives them as one `reading: ReadChoice`."""
    hints = get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(command).parameters.values() if p.name != "reading"]
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _READ.items()
    ]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in _READ}
        command(**values, reading=ReadChoice(chosen))

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    wrapped.__signature__ = inspect.Signature([*parameters, *extra])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*parameters, *extra)} | {"return": None}
    return wrapped


class ReadChoice:
    """The options of reading data as a command received them, checked by the schema of the config."""

    def __init__(self, values: dict[str, Any]) -> None:
        from rl_training.experiment.kwargs import FileConfig, parse_bytes

        given = {name: value for name, value in values.items() if value is not None}
        try:
            self._max_bytes: int | None = parse_bytes(given.pop("max_bytes", None))
        except ValueError as error:
            raise ConfigError(f"--max-bytes: {error}") from None
        if "columns" in given:
            given["columns"] = _columns(given["columns"])
        for name in ("action_low", "action_high"):
            if name in given:
                given[name] = _numbers(given[name], name)
        self._file = FileConfig.checked(given)

    @property
    def format(self) -> str:
        """Layout of the files."""
        return self._file.format

    def options(self) -> "ReadOptions":
        """Return the options for the readers."""
        from rl_training.data.reading import ReadOptions

        values = {name: getattr(self._file, name) for name in type(self._file).model_fields if name not in ("path", "format")}
        return ReadOptions(**values, max_bytes=self._max_bytes)


def _columns(text: str) -> Any:
    """A column map written in place, or a file that holds one (alone, or under `columns`)."""
    from rl_training.experiment.yaml_loader import parse_yaml

    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"--columns {text[:60]!r}: is neither a {{...}} map nor a file that can be read ({error})"
            ) from None
    values, _ = parse_yaml(text, "--columns")
    return values["columns"] if isinstance(values, dict) and set(values) == {"columns"} else values


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--{name.replace('_', '-')} {text!r}: must be numbers, such as -1,-1") from None
