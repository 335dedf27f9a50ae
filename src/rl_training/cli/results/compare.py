"""`rl-training compare`: whether one group of runs is better than another, and how sure that is."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_training.cli.options import DebugOption, JsonOption, block_marks, full_path
from rl_training.errors import ConfigError
from rl_training.output import say

if TYPE_CHECKING:
    from rl_training.analysis.comparison import Cell, Comparison
    from rl_training.analysis.paper import Kind

_SUFFIXES = {".md": "md", ".tex": "latex", ".csv": "csv"}
_HEAD = 80  # bytes in which a table shows that it is one
_LOWER_HELP = "For scores and metrics whose direction is not known; that of returns, losses and distances is."
GroupsArgument = Annotated[
    list[str],
    typer.Argument(
        help="A run, a folder or 'glob' of runs, runs that belong together (NAME=PATH,PATH), or a .json or .csv of scores.",
        metavar="GROUP...",
    ),
]


def compare(
    groups: GroupsArgument,
    by: Annotated[str, typer.Option(help="The `last` evaluation of each run, or its `best`, which is optimistic.")] = "last",
    metric: Annotated[str | None, typer.Option(help="Another metric of the runs; by default eval/return_mean.")] = None,
    lower_is_better: Annotated[bool, typer.Option("--lower-is-better", help=_LOWER_HELP)] = False,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    normalize: Annotated[
        str, typer.Option(help="How tasks are put on one scale: auto, reference, min-max or none.")
    ] = "auto",
    scores: Annotated[
        str | None, typer.Option(help="What scores from files are: returns, or normalized already; by default unknown.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="The group that others are compared with, or `all` for every pair; by default the first."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="text, or a table for a paper: md, latex or csv; by default as --out ends.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="The file for the table: .md, .tex or .csv; by default it is printed.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print how often intervals hold, by number of runs.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say which group of runs is better, with intervals over seeds, and what cannot be concluded."""
    del debug
    from rl_training.analysis import comparison
    from rl_training.analysis.logged_run import RETURN

    chosen = _format(kind, out, as_json=as_json)
    found = comparison.compare(
        groups,
        metric=metric or RETURN,
        by=by,  # type: ignore[arg-type]  # checked there
        lower_is_better=lower_is_better,
        confidence=confidence,
        normalize=normalize,  # type: ignore[arg-type]
        scores=scores,  # type: ignore[arg-type]
        against=against,
    )
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    for caution in found.cautions:
        say(caution)
    if chosen == "text":
        _print(found, verbose=verbose)
    elif out is None:
        print(found.table(chosen), end="")
    else:
        _write(Path(out), chosen, found.table(chosen))


def _format(kind: str | None, out: str | None, *, as_json: bool) -> "Kind | Literal['text']":
    """What is printed or written; a ConfigError where options contradict each other."""
    from rl_training.analysis.paper import KINDS

    if as_json and (kind, out) != (None, None):
        raise ConfigError("--json prints everything as one object; leave out --format and --out, or --json")
    named = None if out is None else _SUFFIXES.get(Path(out).suffix.lower())
    if kind not in (None, "text", *KINDS):
        raise ConfigError(f"--format {kind}: must be one of text, {', '.join(KINDS)}")
    if out is not None and (kind == "text" or (kind is None and named is None)):
        raise ConfigError(f"{out}: does not say what to write; end the name in {', '.join(_SUFFIXES)}, or pass --format")
    if named is not None and kind not in (None, named):
        raise ConfigError(f"{out}: ends like {named}, but --format is {kind}; choose another name, or leave --format out")
    return kind or named or "text"  # type: ignore[return-value]


def _write(path: Path, kind: str, text: str) -> None:
    """Write a table: a new file, or in place of an earlier one of this command."""
    from rl_training.analysis.paper import MARKS
    from rl_training.storage import replace_file, storage_error

    try:
        if path.exists() and not (path.is_file() and path.read_bytes()[:_HEAD].startswith(MARKS[kind].encode())):
            raise ConfigError(f"{path}: was not written by this command; choose another name with --out")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, 0, error) from error
    replace_file(path, text.encode())
    print(f"table: {full_path(path)}")


def _print(found: "Comparison", *, verbose: bool) -> None:
    from rl_training.analysis.paper import compared_text

    print(f"{compared_text(found)}; {100 * found.confidence:g}% intervals")
    _print_table(found)
    _print_profiles(found)
    print(f"\n{found.conclusion}")  # apart from the tables: it is what people look for
    if any(cell.iqm.known for cell in found.overall.values()):
        _print_coverage(found.coverage, verbose=verbose)


def _print_table(found: "Comparison") -> None:
    """Rows of groups under each task, and under all tasks together."""
    from rl_training.analysis.paper import overall_title
    from rl_training.analysis.scales import SCALES

    note = f" ({SCALES[found.normalization]})" if found.normalization else ""
    over = overall_title(found)
    by_task = "" if found.normalization_by_task is None else ", normalised" if over else note
    sections = {f"{task}{by_task}": {name: cells[task] for name, cells in found.cells.items()} for task in found.tasks}
    if over:
        unequal = any(cell.runs < cell.most_runs for cell in found.overall.values())
        alike = ", each with the same weight whatever its number of runs" if unequal and len(found.tasks) > 1 else ""
        sections[f"{over}{alike}{note}"] = found.overall
    rows: list[tuple[str, ...]] = [("", "runs", "IQM", "", "mean", "median")]
    for title, cells in sections.items():
        rows += [(title,), *_rows(cells)]
    widths = [max(len(row[place]) for row in rows if len(row) > 1) for place in range(6)]
    for row in rows:
        padded = [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=False))]
        print("  ".join(padded).rstrip())
    for name, gap in found.optimality_gap.items():
        print(f"optimality gap of {name}: {gap:.1f} below 100 on average")


def _rows(cells: "Mapping[str, Cell]") -> list[tuple[str, ...]]:
    from rl_training.analysis.paper import seeds_text
    from rl_training.analysis.verdict import bounds, digits, number

    places = max(digits(cell.iqm) for cell in cells.values())
    return [
        (
            f"  {name}",
            seeds_text(cell),
            number(cell.iqm.estimate, places),
            bounds(cell.iqm, places),
            *(number(value, places) for value in (cell.mean, cell.median)),
        )
        for name, cell in cells.items()
    ]


def _print_profiles(found: "Comparison") -> None:
    """The share of runs that are better than each threshold: a bar as high as that share, from the lowest score on."""
    from rl_training.analysis.bootstrap import Interval
    from rl_training.analysis.verdict import digits, number

    marks = block_marks()
    width = max(map(len, found.profiles))
    direction = "below" if found.lower_is_better else "above"
    low, high = found.thresholds[0], found.thresholds[-1]
    places = digits(Interval(low, low, high))
    print(f"share of runs {direction} a score, from {number(low, places)} to {number(high, places)}")
    for name, shares in found.profiles.items():
        bars = "".join(marks[math.ceil(share * (len(marks) - 1))] for share in shares)
        print(f"  {name.ljust(width)}  |{bars}|")


def _print_coverage(table: "Mapping[str, Any]", *, verbose: bool) -> None:
    """How often intervals of these kinds cover the truth: the mean over shapes of scores, if asked with its range."""
    kinds = {"iqm": "IQM", "difference": "difference of IQM", "improvement": "probability of improvement"}
    shares = {kind: {runs: list(shapes.values()) for runs, shapes in table["coverage"][kind].items()} for kind in kinds}
    if not verbose:
        means = {label: ", ".join(f"{_mean(row):.0%}" for row in shares[kind].values()) for kind, label in kinds.items()}
        told = "; ".join(f"{label} {shown}" for label, shown in means.items())
        print(f"Measured coverage of 95% intervals with {', '.join(shares['iqm'])} runs: {told} (--verbose: with its range).")
        return
    print(f"how often 95% intervals hold in {table['experiments']:,} simulated experiments, over shapes of scores")
    print(" " * 29 + "".join(f"{runs + ' runs':<18}" for runs in shares["iqm"]).rstrip())
    for kind, label in kinds.items():
        shown = [f"{_mean(row):.0%} ({min(row):.0%} to {max(row):.0%})" for row in shares[kind].values()]
        print(f"  {label:<27}" + "".join(f"{text:<18}" for text in shown).rstrip())


def _mean(row: "Sequence[float]") -> float:
    return sum(row) / len(row)
