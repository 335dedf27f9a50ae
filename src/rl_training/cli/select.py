"""`rl-training select`: which policy to take, which to try first, and how sure that is."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.cli.options import DebugOption, DeviceOption, JsonOption, ReadChoice, numbers
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.api.selecting import Candidate, Selection

RunsArgument = Annotated[
    list[str], typer.Argument(help="Run directories or checkpoints; every member of a population counts.", metavar="RUN...")
]


def select(
    runs: RunsArgument,
    reading: ReadChoice,
    data: Annotated[str | None, typer.Option(help="Logged data to judge by; by default that of the runs.")] = None,
    checkpoints: Annotated[str, typer.Option(help="Of each run: latest, best or all that it kept.")] = "latest",
    result: Annotated[
        list[str] | None,
        typer.Option(help="Returns of real episodes: NAME=SCORE or NAME=3.1,2.9; may be repeated.", metavar="NAME=SCORE"),
    ] = None,
    budget: Annotated[int, typer.Option(help="Real episodes that can be run next.")] = 10,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Rank policies by logged data and real results, and say which to try next and what would settle the choice."""
    del debug
    if checkpoints not in ("latest", "best", "all"):
        raise ConfigError(f"--checkpoints {checkpoints!r}: must be latest, best or all")
    results = parse_results(result or ())
    if data is None and reading.settings:
        raise ConfigError(f"--{next(iter(reading.settings)).replace('_', '-')} says how to read files: pass --data PATH too")
    from rl_training.api import selecting

    settings = {"checkpoints": checkpoints, "device": device or "auto", **reading.settings}
    found = selecting.select(runs, data, results=results, budget=budget, **settings)
    if as_json:
        print(json.dumps(found.plain()))
        return
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    _print(found)


def parse_results(texts: Sequence[str]) -> dict[str, list[float]]:
    """Return the results by name of options such as `runs/a=3.1,2.9`; those of one name are joined."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, separator, values = text.rpartition("=")
        if not separator or not name:
            raise ConfigError(f"--result {text!r}: must look like runs/a=3.1 or runs/a=3.1,2.9")
        found.setdefault(name, []).extend(numbers(values, "result"))
    return found


def _print(found: "Selection") -> None:
    print(f"{len(found.candidates)} policies by {found.data}; estimates are discounted, results are returns of real episodes")
    rows: list[tuple[str, ...]] = [("", "policy", "estimate", "verdict", "results", "expected return", "best")]
    rows += [_row(rank, one) for rank, one in enumerate(found.candidates, 1)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    shares = ", ".join(f"{name} x{count}" for name, count in found.shares.items())
    print(f"try first: {shares}")
    print(f"\n{found.conclusion}")  # apart from the table, and last: it is what people look for


def _row(rank: int, one: "Candidate") -> tuple[str, ...]:
    estimate = "-" if one.value is None else f"{one.value:.4g} [{one.interval[0]:.4g}, {one.interval[1]:.4g}]"
    results = f"{len(one.results)}: {sum(one.results) / len(one.results):.4g}" if one.results else "-"
    expected = f"{one.expected_return:.4g} +- {one.expected_std:.2g}"
    return str(rank), one.name, estimate, one.verdict, results, expected, f"{one.chance:.0%}"
