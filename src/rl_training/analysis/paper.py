"""A comparison as a table for a paper: Markdown, LaTeX with booktabs, or CSV."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from rl_training.analysis.bootstrap import Interval
from rl_training.analysis.logged_run import RETURN
from rl_training.analysis.scales import SCALES
from rl_training.analysis.scores.directions import measures_quality
from rl_training.analysis.verdict import Wording, digits, shown
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.analysis.comparison import Cell, Comparison, Pair

Kind: TypeAlias = Literal["md", "latex", "csv"]
KINDS: Final = get_args(Kind)
MARKS: Final[Mapping[str, str]] = {
    "md": "<!-- rl-training compare -->",
    "latex": "% rl-training compare",
    "csv": "measure,task,group,against,seeds,estimate,low,high,verdict",
}
"""What each kind of table begins with."""
_TEX: Final = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
        '"': r"\char34{}",  # \textquotedbl does not exist in the encoding that LaTeX begins with
    }
)
_MARKDOWN: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#$~"})
_FORMULA: Final = ("=", "+", "-", "@")  # how formulas begin in spreadsheets


def table(found: "Comparison", kind: Kind) -> str:
    """Return a table of tasks and groups, IQM with interval and number of seeds, and one of the pairs that were compared."""
    if kind not in KINDS:
        raise ConfigError(f"--format {kind}: must be one of {', '.join(KINDS)}")
    if kind == "csv":
        return _csv(found)
    tables = [_cells(found), _pairs(found)]
    return _markdown(found, tables) if kind == "md" else _latex(found, tables)


def overall_title(found: "Comparison") -> str | None:
    """Return what the values over all tasks are called; None where they are those of the only task."""
    if len(found.tasks) > 1:
        return f"all {len(found.tasks)} tasks"
    return "normalised" if found.normalization and not found.normalization_by_task else None


def _sections(found: "Comparison") -> dict[str, dict[str, "Cell"]]:
    """The cells of each group by task, and over all of them where that differs."""
    sections = {task: {name: cells[task] for name, cells in found.cells.items()} for task in found.tasks}
    title = overall_title(found)
    return {**sections, title: found.overall} if title else sections


def _cells(found: "Comparison") -> list[list[str]]:
    rows = [["", *found.cells]]
    for title, cells in _sections(found).items():
        places = max(digits(cell.iqm) for cell in cells.values())
        rows.append([title, *(f"{shown(cell.iqm, places)} ({seeds_text(cell)})" for cell in cells.values())])
    return rows


def seeds_text(cell: "Cell") -> str:
    """Return the number of runs of a cell, over tasks that have unequal ones the fewest and the most."""
    return str(cell.runs) if cell.runs == cell.most_runs else f"{cell.runs} to {cell.most_runs}"


def _pairs(found: "Comparison") -> list[list[str]]:
    differs = any(pair.difference is not None for pair in found.pairs)
    rows = [["", wording_of(found).chance, *(["difference of IQM"] if differs else []), "verdict"]]
    for pair in found.pairs:
        difference = [] if pair.difference is None else [shown(pair.difference, null=0.0)]
        label = f"{pair.first} against {pair.second}"
        rows.append([label, shown(pair.improvement, 2, null=0.5), *difference, pair.verdict])
    return rows


def wording_of(found: "Comparison") -> Wording:
    """Return what is said of the scores of a comparison."""
    return Wording(found.metric or RETURN, found.direction)


def compared_text(found: "Comparison") -> str:
    """Return which scores are compared: one of each run, or those that were given, or some of either; and which are good."""
    if found.metric is None:
        return f"scores as given{_direction(found)}"
    given = f", scores as given of {', '.join(found.from_files)}" if found.from_files else ""
    return f"{found.by} {found.metric} of each run{given}{_direction(found)}"


def _direction(found: "Comparison") -> str:
    """Which values are good; nothing of returns, and of scores as given whose order nobody turned."""
    if found.metric is not None and found.direction == "lower" and not measures_quality(found.metric):
        return ", which does not tell how good a policy is"
    if found.direction == "higher" and found.metric in (None, RETURN):
        return ""
    return ", which is no score" if found.direction == "none" else f", {found.direction} is better"


def _notes(found: "Comparison") -> list[str]:
    scale = "" if found.normalization is None else f"; {SCALES[found.normalization]}"
    if scale and not found.normalization_by_task:
        scale += f" ({overall_title(found)})"
    first = (
        f"Interquartile mean of the {compared_text(found)}; {100 * found.confidence:g}% interval (number of seeds){scale}."
    )
    pairs = f"Intervals of pairs are at {100 * found.pair_confidence:.4g}%, corrected for {len(found.pairs)} comparisons."
    return [first, *([pairs] if len(found.pairs) > 1 else []), *found.cautions, *found.conclusion.splitlines()]


def _markdown(found: "Comparison", tables: Sequence[Sequence[Sequence[str]]]) -> str:
    parts = [MARKS["md"]]
    for rows in tables:
        lines = ["| " + " | ".join(text.translate(_MARKDOWN) for text in row) + " |" for row in rows]
        rule = "|" + "|".join(["---"] * len(rows[0])) + "|"
        parts.append("\n".join([lines[0], rule, *lines[1:]]))
    return "\n\n".join([*parts, *(note.translate(_MARKDOWN) for note in _notes(found))]) + "\n"


def _latex(found: "Comparison", tables: Sequence[Sequence[Sequence[str]]]) -> str:
    lines = [MARKS["latex"], "% needs \\usepackage{booktabs}", *(f"% {note}" for note in _notes(found))]
    for rows in tables:
        body = [_tex_row(row) for row in rows[1:]]
        if rows is tables[0] and overall_title(found):
            body.insert(len(body) - 1, "\\midrule")  # before what is of all tasks
        lines += ["", f"\\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", "\\toprule", _tex_row(rows[0], head=True)]
        lines += ["\\midrule", *body, "\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _tex_row(row: Sequence[str], *, head: bool = False) -> str:
    """A row, whose first cell is a name and whose others, but those of a head, are figures with a minus."""
    cells = [text.translate(_TEX) for text in row]
    cells[0] = (
        f"{{}}{cells[0]}" if cells[0].startswith(("[", "*")) else cells[0]
    )  # which the end of a row would take as its own
    return " & ".join([cells[0], *(cells[1:] if head else (text.replace("-", "$-$") for text in cells[1:]))]) + " \\\\"


def _csv(found: "Comparison") -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(MARKS["csv"].split(","))
    for row in _csv_rows(found):
        writer.writerow([f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA) else text for text in row])
    return out.getvalue()


def _csv_rows(found: "Comparison") -> Iterator[list[str | float | int]]:
    """A row for each IQM, each probability and difference of a pair, by task and then overall, and each paired gain."""
    for title, cells in _sections(found).items():
        yield from (["iqm", title, name, "", seeds_text(cell), *_ends(cell.iqm), ""] for name, cell in cells.items())
    pairs = dict(found.pairs_by_task)
    if over := overall_title(found):
        pairs[over] = found.pairs
    for title, own in pairs.items():
        for pair in own:
            yield from _pair_rows(title, pair, wording_of(found).chance)
    for one in found.seed_by_seed:
        yield ["gain seed by seed", one.task, one.first, one.second, one.seeds, *_ends(one.gain), ""]


def _pair_rows(title: str, pair: "Pair", chance: str) -> Iterator[list[str | float | int]]:
    for measure, found in ((chance, pair.improvement), ("difference of IQM", pair.difference)):
        if found is not None:
            yield [measure, title, pair.first, pair.second, "", *_ends(found), pair.verdict]


def _ends(found: Interval) -> list[str | float]:
    return ["" if math.isnan(value) else value for value in found]
