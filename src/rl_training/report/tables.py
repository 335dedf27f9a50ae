"""Runs as text: Markdown for people, CSV for other programs."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from rl_training.analysis.endings import missing_rows
from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.sweep import knob_text
from rl_training.output import duration, printable
from rl_training.report import data_facts, facts, switch
from rl_training.report.bands import distinct_names, groups_of, title_of
from rl_training.report.cautions import cautions
from rl_training.report.charts import HELD_OUT_HEADINGS, HELD_OUT_NOTE, held_out_figures
from rl_training.report.facts import NOTHING, number
from rl_training.report.live.progress import progress_text
from rl_training.report.off_policy import facts as off_policy
from rl_training.report.off_policy.kept import Evaluation, evaluations
from rl_training.report.timing import timing_of

CSV_START = ("run", "member", "seed", "position")
# an underscore within a word is plain, and so is a backslash before a letter: both are common, and stay readable
_MARKUP = re.compile(r"[`*~$\[\]]|(?<![^\W_])_|_(?![^\W_])|\\(?=[!-/:-@\[-`{-~]|$)")
_FORMULA = ("=", "+", "-", "@")  # how formulas begin in spreadsheets


def markdown(
    runs: Sequence[LoggedRun],
    mark: str,
    title: str | None = None,
    first: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> str:
    """Return the results of some runs as Markdown, without curves.

    `first` are lines of plain text that come before them; `left_out` says which runs are missing, and why.
    """
    plain = distinct_names(runs)
    names = [_name(name) for name in plain]
    groups = [replace(group, label=_name(group.label)) for group in groups_of(runs)]
    timings = [timing_of(run) for run in runs]
    rows = [
        facts.overview_cells(run, name, timing, progress_text(run))
        for run, name, timing in zip(runs, names, timings, strict=True)
    ]
    kept = facts.filled_columns(rows)
    parts = [f"{mark}\n# {_text(_name(title or title_of(runs)))}"]
    parts += ["\n".join(f"    {line}" for line in first)] if first else []
    parts += [_table([facts.as_of_now(facts.OVERVIEW[i], runs) for i in kept], [[row[i] for i in kept] for row in rows])]
    parts += [_text(note) for note in (facts.returns_note(runs, names), *map(_name, data_facts.notes(runs, plain))) if note]
    judged, damaged = evaluations(runs, names)
    if warned := [*map(_name, left_out), *damaged, *(one.text for one in cautions(runs, names))]:
        parts += ["## Warnings", "\n".join(f"* {_text(text)}" for text in warned)]
    missing = [f"{name}: {text}" for run, name in zip(runs, names, strict=True) for text in missing_rows(run)]
    parts += ["\n".join(f"* {_text(line)}" for line in missing)] if missing else []
    online = [switch.dip_cells(group, runs) for group in groups if group.run.switch is not None]
    if online:
        parts += [f"## The switch to online\n\n{switch.DIP_NOTE}", _table(switch.DIP_HEADINGS, online)]
    swept = [facts.combination_cells(*pair) for pair in facts.combinations(groups)]
    if swept:
        note, *headings = (facts.as_of_now(text, runs) for text in (facts.COMBINATIONS_NOTE, *facts.COMBINATIONS))
        parts += [f"## Combinations\n\n{note}", _table(headings, swept)]
    scored = held_out_figures(groups)
    if scored:
        figures = [[one.label, one.name, one.policy_text, *one.others] for one in scored]
        parts += [f"## The policy on held-out rows\n\n{HELD_OUT_NOTE}", _table(("run", *HELD_OUT_HEADINGS), figures)]
    parts += [text for one in judged for text in _off_policy(one)]
    parts += ["## Members", _members(runs, names)]
    data = {name: data_facts.dataset_facts(run) for run, name in zip(runs, names, strict=True)}
    if any(data.values()):
        parts += [f"## Dataset\n\n{data_facts.DATASET_NOTE}", _beside(data)]
    if len(runs) > 1:
        found = facts.differences(runs)
        table = _table(("setting", *names), [[f"`{key}`", *row] for key, row in found.items()])
        parts += ["## Settings that differ", table if found else "None."]
    spent = {
        name: {
            what.replace("_", " "): duration(seconds, exact=True)
            for what, seconds in timing.activities.items()
            if seconds > 0
        }
        for name, timing in zip(names, timings, strict=True)
    }
    if any(spent.values()):
        parts += ["## Time", _beside(spent)]
    parts += ["## Versions and hardware", _beside({name: facts.setup_of(run) for run, name in zip(runs, names, strict=True)})]
    return "\n\n".join(parts) + "\n"


def _off_policy(one: Evaluation) -> list[str]:
    """What policies would earn by one log, and where they leave it."""
    parts = ["## Off-policy evaluation", _text(off_policy.source_text(one))]
    parts += ["\n".join(f"* {_text(text)}" for text in one.warnings)] if one.warnings else []
    parts += [_table(off_policy.HEADINGS, [off_policy.logged_cells(one), *map(off_policy.cells, one.policies)])]
    if leaving := [off_policy.support_cells(policy, one.policies) for policy in off_policy.leaving(one)]:
        parts += [f"### Where it leaves the data\n\n{off_policy.SUPPORT_NOTE}", _table(off_policy.SUPPORT_HEADINGS, leaving)]
    return parts


def _members(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    rows = []
    for run, name in zip(runs, names, strict=True):
        for one in facts.member_facts(run):
            away = NOTHING if one.distance is None else f"{one.distance:.1%}"
            own = [name, str(one.member), str(one.seed), knob_text(one.knobs) or NOTHING]
            rows.append([*own, number(one.final), number(one.best), one.best_text, away, one.status])
    headings = [
        "run",
        "member",
        "seed",
        "knobs",
        "final return",
        "best return",
        "best at",
        "from logged actions",
        "status",
    ]
    kept = facts.filled_columns(rows)
    return _table([facts.as_of_now(headings[i], runs) for i in kept], [[row[i] for i in kept] for row in rows])


def _beside(columns: dict[str, dict[str, str]]) -> str:
    """Names and values of several runs, a column for each run."""
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    rows = [[key, *(column.get(key, NOTHING) for column in columns.values())] for key in keys]
    return _table(("", *columns), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(_text(cell) for cell in line)} |" for line in lines)


def _text(value: str) -> str:
    """A text that is itself in Markdown, and stays inside its cell."""
    return escape(printable(" ".join(value.split())), quote=False).replace("|", "\\|")


def _name(text: str) -> str:
    """A name that Markdown shows as it is: what would be code, a link or emphasis has a backslash before it."""
    return _MARKUP.sub(r"\\\g<0>", text)


def comma_separated(runs: Sequence[LoggedRun]) -> str:
    """Return every logged number of some runs as CSV: a row for each run, member and step, a column for each metric."""
    knobs = list(dict.fromkeys(name for run in runs for name in run.history if name.startswith("knob/")))
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics()))
    counters = ["step", *(["env_step"] if any("env_step" in run.history for run in runs) else [])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_text_cell, [*CSV_START, *knobs, *counters, *metrics]))
    for run, name in zip(runs, distinct_names(runs), strict=True):
        count = len(run.positions)
        empty = np.full(count, np.nan)
        columns = [run.history.get(column, empty) for column in ("member", "seed")]
        columns += [run.positions, *(run.history.get(column, empty) for column in (*knobs, *counters, *metrics))]
        filled = ~np.all([np.isnan(run.history.get(metric, empty)) for metric in metrics] or [[True] * count], axis=0)
        cells = [_cells(column[filled], whole=i < 3 or 3 + len(knobs) <= i < 3 + len(knobs) + len(counters))
                 for i, column in enumerate(columns)]  # fmt: skip
        writer.writerows([_text_cell(name), *row] for row in zip(*cells, strict=True))
    return text.getvalue()


def _text_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: an apostrophe before it says that it is text."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _cells(values: Any, *, whole: bool) -> list[Any]:
    """The values of a column, empty where there is none; counters without a fraction."""
    return ["" if np.isnan(value) else int(value) if whole else value for value in values.tolist()]
