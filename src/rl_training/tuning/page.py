"""A study on the report page: its best trial, every trial as a line over its knobs, and the table of all."""

import math
from collections.abc import Sequence
from html import escape

from rl_training.output import prose
from rl_training.report.facts import NOTHING, number
from rl_training.report.page.html import Cell, Markup, Row, bar, card, known, table
from rl_training.tuning import showing
from rl_training.tuning.showing import Summary, knob_value
from rl_training.tuning.space import Choices, Range, label

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _SIDE = 1000, 304, 30, 266, 60  # of the plot and of its axes
_MOST_DRAWN, MOST_ROWS = 500, 200
_BEST_SHARE = 0.1  # of the trials are drawn strongly
_DRAWN = Markup('<span class="hidden">share, drawn</span>')


def section(found: Summary) -> str:
    """Return the part of a page on one study; all texts in it are escaped."""
    name = f"Study of {found.task.name}"
    sure = "".join(f"<p>{prose(text)}</p>" for text in showing.sureness(found))
    best = found.best
    train = "" if best is None else f'<pre class="command">{escape(showing.train_command(found, best))}</pre>'
    parts = (_cards(found), sure, train, _confirmed(found), _parallel(found), _importance(found), _trials(found))
    score = f'<p class="note">Score: {escape(found.task.rule.text)}.</p>'
    return f"<section><h2>{escape(name)}</h2>{score}{''.join(parts)}</section>"


def _cards(found: Summary) -> str:
    states = [row.status for row in found.rows]
    told = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    cards = [card("Trials", str(len(found.rows)), told)]
    fresh = " with new seeds" if found.confirmed else ""
    if found.best is not None and (value := found.score_of(found.best.number)) is not None:
        knobs = ", ".join(f"{name} {knob_value(value)}" for name, value in found.best.knobs.items())
        cards.append(card(f"Best{fresh}: trial {found.best.number}", number(value), knobs))
    if found.has_own and found.rows and (value := found.score_of(0)) is not None:
        cards.append(card(f"The config's own values{fresh}", number(value), "trial 0"))
    return f'<dl class="cards">{"".join(cards)}</dl>'


def _confirmed(found: Summary) -> str:
    """What the confirmed trials reached with new seeds, the best first."""
    if not found.confirmed:
        return ""
    rows: list[Row] = []
    for one in found.confirmed:
        value = None if one.result.values is None else one.result.values[0]
        score = Cell(NOTHING if value is None else number(value), known(value), number=True)
        why = f": {one.result.why_failed}" if one.result.why_failed else ""
        rows.append([Cell(str(one.number), one.number, number=True), score, _seeds(one.result.seeds) + why])
    return f"<h3>With new seeds</h3>{table(['trial', found.task.rule.name, 'seeds'], rows, 'With new seeds')}"


def _parallel(found: Summary) -> str:
    """Every trial with a score as a line over the axes of its knobs and of the score, the best drawn last."""
    scored = [row for row in found.rows if row.values]
    if len(scored) < 2:
        return ""
    scores = [row.values[0] for row in scored if row.values]
    axes = [_Axis(name, knob) for name, knob in found.task.space.knobs.items()]
    axes.append(
        _Axis(found.task.rule.name, Range(min(scores), max(scores) if max(scores) > min(scores) else min(scores) + 1))
    )
    places = [_SIDE + (_WIDTH - 2 * _SIDE) * at / (len(axes) - 1) for at in range(len(axes))]
    strong = set(found.order[: max(1, math.ceil(_BEST_SHARE * len(found.order)))])
    drawn = sorted(scored, key=lambda row: (row.number in strong, (row.values or [0.0])[0]))[-_MOST_DRAWN:]
    lines = told = ""
    for place, row in enumerate(drawn, start=1):
        values = [*(row.knobs[axis.name] for axis in axes[:-1]), (row.values or [0.0])[0]]
        points = [f"{x:.1f} {axis.at(value):.1f}" for x, axis, value in zip(places, axes, values, strict=True)]
        told = ", ".join(f"{axis.name} {knob_value(value)}" for axis, value in zip(axes, values, strict=True))
        told = escape(f"trial {row.number} ({row.status}): {told}")
        kind, path = "top" if row.number in strong else row.status, f"M{'L'.join(points)}"
        lines += (
            f'<g class="trial {kind}" tabindex="{0 if place == len(drawn) else -1}" role="img" aria-label="{told}">'
            f'<path class="reach" d="{path}"/><path class="line" d="{path}"/></g>'
        )
    ticks = "".join(axis.drawn(x) for x, axis in zip(places, axes, strict=True))
    note = "Strong: the best tenth; dashed: stopped early. Point at a line, or step through them with the arrow keys."
    title = "Trials over their knobs"
    return (
        f'<figure class="chart parallel"><figcaption><h3>{title}</h3><p>{note}</p></figcaption>'
        f'<div class="wide"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{title}; arrow keys step through '
        f'them">{ticks}{lines}</svg></div><p class="told">{told}</p></figure>'
    )


class _Axis:
    """A vertical axis: of numbers, of their logarithms, or of choices."""

    def __init__(self, name: str, knob: Range | Choices) -> None:
        self.name, self._knob = name, knob

    def at(self, value: object) -> float:
        """Return the height of a value."""
        return _BOTTOM - (_BOTTOM - _TOP) * self._share(value)

    def _share(self, value: object) -> float:
        if isinstance(self._knob, Choices):
            return self._knob.labels.index(label(value)) / (len(self._knob.values) - 1)
        low, high, here = self._knob.low, self._knob.high, float(str(value))
        if self._knob.log:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return (here - low) / (high - low)

    def drawn(self, x: float) -> str:
        """Return the axis with its name and its ends, or its choices."""
        knob = self._knob
        ends: Sequence[object] = knob.values if isinstance(knob, Choices) else (knob.low, knob.high)
        name = escape(self.name + (" (log)" if isinstance(knob, Range) and knob.log else ""))
        marks = "".join(
            f'<text class="tick middle beyond" x="{x:.1f}" y="{self.at(end) + (14 if end == ends[0] else -5):.1f}">'
            f"{escape(knob_value(end))}</text>"
            for end in ends
        )
        line = f'<path class="axis" d="M{x:.1f} {_TOP}V{_BOTTOM}"/>'
        return f'{line}{marks}<text class="tick middle" x="{x:.1f}" y="{_HEIGHT - 8}">{name}</text>'


def _importance(found: Summary) -> str:
    if not found.importance:
        return ""
    rows: list[Row] = [
        [name, Cell(f"{share:.0%}", share, number=True), bar(share, f"{name} {share:.0%}")]
        for name, share in found.importance.items()
    ]
    caption = showing.importance_title(found).capitalize()
    return f'<h3>{caption}</h3><div class="bars">{table(["knob", "share", _DRAWN], rows, caption)}</div>'


def _trials(found: Summary) -> str:
    names, rule = list(found.task.space.knobs), found.task.rule
    head = ["trial", *names, rule.name, *([rule.also] if rule.also else []), "seeds", "status"]
    every = [found.rows[at] for at in found.order] + [row for row in found.rows if row.number not in set(found.order)]
    rows = [_trial(row, names, found) for row in every[:MOST_ROWS]]
    most = f'<p class="note">The best {MOST_ROWS} of {len(every):,}.</p>' if len(every) > MOST_ROWS else ""
    chosen = "<p>With the seeds that trials were chosen by.</p>" if found.confirmed else ""
    return f"<h3>Trials</h3>{chosen}{most}{table(head, rows, 'Trials', sortable=True, tall=len(rows) > 14)}"


def _trial(row: showing.Row, names: Sequence[str], found: Summary) -> Row:
    values: list[float | None] = [*(row.values or []), None, None][: len(found.task.rule.directions)]
    knobs = [_cell(row.knobs[name]) for name in names]
    scores = [Cell(NOTHING if value is None else number(value), known(value), number=True) for value in values]
    return [Cell(str(row.number), row.number, number=True), *knobs, *scores, _seeds(row.seeds), showing.status_of(row, found)]


def _seeds(scores: Sequence[float | None]) -> str:
    return " ".join(NOTHING if score is None else number(score) for score in scores)


def _cell(value: object) -> Cell:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(knob_value(value), float(str(value)) if plain else None, number=plain)
