"""The tables at the end of a page: members, data, settings, time, versions."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.sweep import knob_text
from rl_training.output import duration
from rl_training.report import data_facts, facts
from rl_training.report.bands import Group
from rl_training.report.facts import NOTHING, number
from rl_training.report.page.html import Cell, Markup, Row, bar, known, pairs, table, whole
from rl_training.report.timing import Timing

_MOST_ROWS = 500  # of the table of members


def members(groups: Sequence[Group], drawn: Sequence[Group]) -> str:
    """Return how each member ended: final and best, sortable, and whether it is drawn; of very many the best."""
    known = {group.run.path: {one.member: one for one in facts.member_facts(group.run)} for group in groups}
    found = [one for own in known.values() for one in own.values()]
    several, swept = len(known) > 1, any(one.knobs for one in found)
    measured, evaluated = (any(getattr(one, name) is not None for one in found) for name in ("distance", "final"))
    shown = {id(one) for one in sorted(found, key=lambda one: -np.inf if one.final is None else one.final)[-_MOST_ROWS:]}
    rows: list[Row] = []
    for group in groups:
        numbers = list(group.run.seeds)
        for place, column in enumerate(group.members):
            one = known[group.run.path][numbers[column]]
            if id(one) not in shown:
                continue
            key = f"{drawn.index(group)}:{place}" if group in drawn else ""
            name = escape(f"draw member {one.member} of {group.label}")
            box = f'<input type="checkbox" data-member="{key}" checked aria-label="{name}">' if key else ""
            rows.append(
                [
                    Cell(f"{group.run.name} {one.member}" if several else str(one.member)),
                    Cell(str(one.seed), one.seed, number=True),
                    *([knob_text(one.knobs)] if swept else []),
                    *(_returns(one) if evaluated else []),
                    *([_share(one.distance)] if measured else []),
                    Markup(f'<span class="bad">{escape(one.status)}</span>') if one.diverged else one.status,
                    Markup(box),
                ]
            )
    headings = ["member", "seed", *["knobs"] * swept]
    last = facts.as_of_now("final return", [group.run for group in groups])
    headings += [*[last, "best return", "best at"] * evaluated, *["from logged actions"] * measured, "status"]
    left_out = f'<p class="note">The best {_MOST_ROWS} of {len(found):,}; <code>--format csv</code> has all.</p>'
    note = left_out if len(found) > len(rows) else ""
    listed = table([*headings, Markup("drawn")], rows, "Members", sortable=True, tall=len(rows) > 14)
    return f"<section><h2>Members</h2>{note}{listed}</section>"


def _returns(one: facts.MemberFacts) -> list[Cell]:
    shown = ((number(one.final), one.final), (number(one.best), one.best), (whole(one.best_text), one.best_at))
    return [Cell(text, known(value), number=True) for text, value in shown]


def _share(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else f"{value:.1%}", known(value), number=True)


def datasets(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return what the runs learned from, the same data once."""
    by_data: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        known = data_facts.dataset_facts(run)
        if known:
            by_data.setdefault(tuple(known.items()), []).append(name)
    if not by_data:
        return ""
    tables = []
    for found, whose in by_data.items():
        title = f"<h3>{escape(', '.join(whose))}</h3>" if len(runs) > 1 else ""
        caption = f"Dataset of {', '.join(whose)}" if len(by_data) > 1 else "Dataset"
        tables.append(f"<div>{title}{pairs(dict(found), caption)}</div>")
    note = f'<p class="note">{data_facts.DATASET_NOTE}</p>'
    return f'<section><h2>Dataset</h2>{note}<div class="columns">{"".join(tables)}</div></section>'


def settings(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return the settings: the differences between runs first, and every setting of each."""
    shown = ""
    if len(runs) > 1:
        found = facts.differences(runs)
        rows: list[Row] = [[Markup(f"<code>{escape(key).replace('.', '.<wbr>')}</code>"), *row] for key, row in found.items()]
        same = '<p class="note">All settings are the same.</p>'
        shown = table(["setting", *names], rows, "Differences between the runs") if rows else same
    full = "".join(
        f"<details><summary>All settings{f' of {escape(name)}' if len(runs) > 1 else ''}</summary>"
        f"<pre tabindex=0>{escape(run.config.to_yaml())}</pre></details>"
        for run, name in zip(runs, names, strict=True)
    )
    return f"<section><h2>Settings</h2>{shown}{full}</section>"


def times(runs: Sequence[LoggedRun], names: Sequence[str], timings: Mapping[Path, Timing]) -> str:
    """Return where the time went, and what the runs were run on."""
    tables = []
    for run, name in zip(runs, names, strict=True):
        timing = timings[run.path]
        if timing.activities and timing.seconds:
            title = f"{name}: " if len(runs) > 1 else ""
            told = ", ".join(filter(None, (facts.time_text(timing), facts.speed_text(timing))))
            caption = f"Time by activity of {name}" if len(runs) > 1 else "Time by activity"
            tables.append(f"<div><h3>{escape(title)}{told}</h3>{_activities(timing, caption)}</div>")
    setups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        setups.setdefault(tuple(facts.setup_of(run).items()), []).append(name)
    for found, whose in setups.items():
        title = "Versions and hardware" + (f": {', '.join(whose)}" if len(setups) > 1 else "")
        tables.append(f"<div><h3>{escape(title)}</h3>{pairs(dict(found), title)}</div>")
    return f'<section><h2>Time and versions</h2><div class="columns">{"".join(tables)}</div></section>'


def _activities(timing: Timing, caption: str) -> str:
    rows: list[Row] = []
    for activity, seconds in sorted(timing.activities.items(), key=lambda item: -item[1]):
        share = seconds / timing.seconds
        if seconds > 0:
            rows.append(
                [
                    activity.replace("_", " "),
                    Cell(duration(seconds, exact=True), number=True),
                    bar(share, f"{share:.0%}"),
                ]
            )
    return table(["activity", "time", "share"], rows, caption)
