"""The section of a page on what policies would earn by the log."""

from collections.abc import Mapping, Sequence
from html import escape

from rl_training.output import prose
from rl_training.report.facts import NOTHING
from rl_training.report.off_policy import facts
from rl_training.report.off_policy.drawing import Scale
from rl_training.report.off_policy.kept import Evaluation, Judged
from rl_training.report.page.html import Cell, Markup, Row, bar, in_brackets, table

_MOST_ROWS, _MOST_DRAWN, _MOST_LEAVING = 100, 24, 12
_KINDS = {"trust": "good", "doubt": "warn", "cannot tell": "bad"}


def section(found: Sequence[Evaluation]) -> str:
    """Return the kept evaluations of some runs, each log for itself; nothing if there are none."""
    if not found:
        return ""
    return f"<section><h2>Off-policy evaluation</h2>{''.join(map(_evaluation, found))}</section>"


def _evaluation(one: Evaluation) -> str:
    warned = "".join(f"<li>{prose(text)}</li>" for text in one.warnings)
    listed = f'<ul class="warnings">{warned}</ul>' if warned else ""
    shown = "".join(part(one) for part in (_picture, _values, _reasons, _support))
    return f'<p class="note">{escape(facts.source_text(one))}</p>{listed}{shown}'


def _picture(one: Evaluation) -> str:
    """Values and intervals on one scale, beside that of the log."""
    drawn = one.policies[:_MOST_DRAWN]
    scale = Scale.of(one.logged, [policy.joint for policy in drawn])
    if scale is None:
        return ""
    rows: list[Row] = [[_named("the log", "logged behaviour"), scale.drawn(one.logged, "the log")]]
    for policy in drawn:
        name = facts.label(policy, one.policies)
        rows.append([_named(name, policy.joint.verdict, scale.beyond(policy.joint)), scale.drawn(policy.joint, name)])
    most = f" The first {len(drawn)} of {len(one.policies)}." if len(drawn) < len(one.policies) else ""
    cut = "What does not fit is cut off at the edge; an arrow there is a value that lies beyond."
    note = f"Dashed line and shade: the value of the log and its interval. {cut}{most}"
    return (
        f'<figure class="chart whiskers"><figcaption><h3>Value and 90 % interval</h3><p>{note}</p></figcaption>'
        f"{table(['policy', scale.heading()], rows, 'Value and 90 % interval')}</figure>"
    )


def _named(name: str, verdict: str, beyond: str = "") -> Cell:
    kind = _KINDS.get(verdict, "soft")
    more = f' <span class="soft small">{escape(beyond)}</span>' if beyond else ""
    return Cell(Markup(f'{escape(name)} <span class="{kind} small">{escape(verdict)}</span>{more}'), long=True)


def _values(one: Evaluation) -> str:
    rows: list[Row] = [_row(facts.logged_cells(one), Markup(NOTHING))]
    rows += [_row(facts.cells(policy), _verdict(policy)) for policy in one.policies[:_MOST_ROWS]]
    left_out = f"The first {_MOST_ROWS} of {len(one.policies):,}; `--format md` has all."
    note = f'<p class="note">{left_out}</p>' if len(one.policies) > _MOST_ROWS else ""
    listed = table(facts.HEADINGS, rows, "Off-policy evaluation", tall=len(rows) > 14)
    return f'{note}<div class="judged">{listed}</div>'


def _row(cells: Sequence[str], verdict: Markup) -> Row:
    first, step, member, value, *others, _ = cells
    numbers = [Cell(text, number=True) for text in others]
    return [first, Cell(step, number=True), member, Cell(in_brackets(value), number=True), *numbers, verdict]


def _verdict(one: Judged) -> Markup:
    return Markup(f'<span class="{_KINDS[one.joint.verdict]}">{escape(one.joint.verdict)}</span>')


def _reasons(one: Evaluation) -> str:
    """Why each verdict is not better; below the table, where there is room for sentences."""
    listed = "".join(
        f"<dt>{escape(facts.label(policy, one.policies))}: {_verdict(policy).text}</dt>"
        + "".join(f"<dd>{prose(text)}</dd>" for text in policy.reasons)
        for policy in one.policies[:_MOST_ROWS]
        if policy.reasons
    )
    return f'<h3>Reasons of the verdicts</h3><dl class="card reasons">{listed}</dl>' if listed else ""


def _support(one: Evaluation) -> str:
    """Which actions, in which states and episodes, nobody tried."""
    leaving = facts.leaving(one)
    if not leaving:
        return '<p class="note after">No policy leaves the data more often than logged actions do themselves (5%).</p>'
    shown = "".join(_left(policy, one.policies) for policy in leaving[:_MOST_LEAVING])
    most = f" The worst {_MOST_LEAVING} of {len(leaving)}." if len(leaving) > _MOST_LEAVING else ""
    return f'<h3>Where it leaves the data</h3><p class="note">{facts.SUPPORT_NOTE}{most}</p>{shown}'


def _left(one: Judged, among: Sequence[Judged]) -> str:
    name = facts.label(one, among)
    lists = [
        _bars("action", "deviations", name, one.actions, {key: f"{value:.2g}" for key, value in one.actions.items()}),
        _bars(
            *("observation", "deviations", name, one.observations),
            {key: facts.apart_text(value) for key, value in one.observations.items()},
        ),
        _bars("episode", "share of rows", name, one.episodes, {key: f"{value:.0%}" for key, value in one.episodes.items()}),
    ]
    return (
        f'<p class="left"><strong>{escape(name)}</strong>: {one.beyond:.1%} of its actions are beyond the data.</p>'
        f'<div class="columns bars">{"".join(lists)}</div>'
    )


def _bars(kind: str, unit: str, whose: str, values: Mapping[str, float], texts: Mapping[str, str]) -> str:
    """Names with a bar each; shares of rows fill it, others beside the largest."""
    whole = 1.0 if kind == "episode" else max(map(abs, values.values()), default=0.0) or 1.0
    rows: list[Row] = [
        [Cell(name, long=True), Cell(texts[name], number=True), bar(abs(value) / whole, f"{name}: {texts[name]}")]
        for name, value in values.items()
    ]
    return table([kind, unit, Markup("")], rows or [[NOTHING, NOTHING, Markup("")]], f"{whose}: {kind}s beyond the data")
