"""Pieces of HTML: elements with escaped texts, tables, cards, charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from rl_training.report.bands import Numbers, summarize
from rl_training.report.charts import Chart
from rl_training.report.palette import kind_dash, reference_dash

_NUMBER = ' class="number"'
_LONG = 32  # characters of a cell whose text may be broken into lines
_TABLE_ROWS = 12  # of the numbers behind a chart


@dataclass(frozen=True)
class Markup:
    """HTML that is already escaped."""

    text: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what is shown, and by what it is sorted."""

    text: str | Markup
    value: float | str | None = None
    number: bool = False
    long: bool = False  # may be broken into lines, as long texts are


Row: TypeAlias = Sequence[str | Markup | Cell]


def known(value: float | None) -> float | str:
    """By what a cell with a number is sorted: an empty text where nothing is known, which the page puts last."""
    return "" if value is None else value


def text(value: str | Markup) -> str:
    """Return escaped HTML of a text; markup as it is."""
    return value.text if isinstance(value, Markup) else escape(value)


def table(
    headings: Sequence[str | Markup],
    rows: Sequence[Row],
    caption: str,
    *,
    sortable: bool = False,
    tall: bool = False,
) -> str:
    """Return a table that scrolls inside its box; its first column is the heading of each row. Markup does not sort."""
    numeric = [isinstance(cell, Cell) and cell.number for cell in rows[0]] if rows else [False] * len(headings)
    head = ""
    for name, right in zip(headings, numeric, strict=True):
        shown = f'<button type="button">{escape(name)}</button>' if sortable and isinstance(name, str) else text(name)
        head += f'<th scope="col"{_NUMBER if right else ""}>{shown}</th>'
    return _box(f"<thead><tr>{head}</tr></thead>", rows, caption, tall=tall)


def pairs(facts: Mapping[str, str], caption: str) -> str:
    """Return a table of names and values."""
    return _box("", list(facts.items()), caption, tall=False)


def _box(head: str, rows: Sequence[Row], caption: str, *, tall: bool) -> str:
    body = "".join(f"<tr>{''.join(_cell(cell, first=not i) for i, cell in enumerate(row))}</tr>" for row in rows)
    named = f'tabindex="0" role="region" aria-label="{escape(caption)}"'
    return (
        f'<div class="scroll{" tall" if tall else ""}" {named}><table><caption class="hidden">{escape(caption)}</caption>'
        f"{head}<tbody>{body}</tbody></table></div>"
    )


def _cell(cell: str | Markup | Cell, *, first: bool) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    tag, scope = ("th", ' scope="row"') if first else ("td", "")
    long = cell.long or (isinstance(cell.text, str) and len(cell.text) > _LONG)
    kind = _NUMBER if cell.number else ' class="long"' if long else ""
    value = "" if cell.value is None else f' data-value="{escape(str(cell.value))}"'
    return f"<{tag}{scope}{kind}{value}>{text(cell.text)}</{tag}>"


def in_brackets(value: str) -> Markup:
    """Return a number whose range in brackets may stand on a line of its own."""
    number, bracket, more = value.partition(" (")
    return Markup(escape(number) + (f" {whole(f'({more}').text}" if bracket else ""))


def returns_cell(shown: str, values: Numbers) -> Cell:
    """Return a cell with returns and their range in brackets, sorted by their middle."""
    return Cell(in_brackets(shown), float(summarize(values)[0]) if len(values) else "", number=True)


def whole(value: str) -> Markup:
    """Return a text that is not broken into lines, unless it is long."""
    return Markup(f'<span class="whole">{escape(value)}</span>' if len(value) <= _LONG else escape(value))


def card(name: str, value: str | Markup, more: str = "") -> str:
    """Return a figure with its name, and a smaller line below it."""
    below = f"<dd>{escape(more)}</dd>" if more else ""
    return f'<div class="card"><dt>{escape(name)}</dt><dd>{text(value)}</dd>{below}</div>'


def bar(share: float, label: str) -> Markup:
    """Return a horizontal bar that fills a share of its width."""
    filled = 100.0 * min(1.0, max(0.0, share))
    return Markup(
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'<rect class="rest" width="100" height="10"/><rect width="{filled:.2f}" height="10"/></svg>'
    )


def figure(chart: Chart, index: int, labels: Sequence[str], *, large: bool = False) -> str:
    """Return the place of a chart, which the script of the page fills, with its numbers in words and as a table."""
    summary = chart.summary(labels)
    metric = f' <code class="soft">{escape(chart.metric)}</code>' if chart.metric else ""
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    keys = "".join(f"<li class=key>{key}</li>" for key in _keys(chart))
    listed = f'<ul class="keys">{keys}</ul>' if keys else ""
    name = f"{chart.title}. {summary}"
    numbers = f"<details><summary>Numbers</summary>{_numbers(chart, labels)}</details>" if large else ""
    return (
        f'<figure class="chart{" large" if large else ""}"><figcaption><h3>{escape(chart.title)}{metric}</h3>{note}{listed}'
        f'</figcaption><div class="plot" data-chart="{index}" tabindex="0" role="group" '
        f'aria-label="{escape(chart.title)}: chart; arrow keys read it step by step, plus and minus zoom, 0 resets">'
        f'<svg role="img" aria-label="{escape(name)}"></svg><div class="tip" role="status" hidden></div></div>{numbers}'
        "</figure>"
    )


def _keys(chart: Chart) -> list[str]:
    """What solid, dashed and dotted lines are, where a chart has several kinds."""
    names = list(dict.fromkeys(line.name for line in chart.lines))
    texts = [(name or "training batches", kind_dash(i)) for i, name in enumerate(names)] if len(names) > 1 else []
    for i, (name, value) in enumerate(chart.references.items()):
        texts.append((f"{name} {chart.shown(value)}", reference_dash(i)))
    return [sample(dash) + escape(name) for name, dash in texts]


def sample(dash: str, kind: str = "") -> str:
    """Return a short line as it is drawn on charts; `kind` is the class of its colour."""
    line = f'<line class="{kind}" x1="0" x2="26" y1="4" y2="4" stroke-dasharray="{dash}"/>'
    return f'<svg class="sample" viewBox="0 0 26 8" aria-hidden="true">{line}</svg>'


def _numbers(chart: Chart, labels: Sequence[str]) -> str:
    """The middle of each curve at some steps, the last among them."""
    rows: dict[int, dict[int, str]] = {}
    for column, line in enumerate(chart.lines):
        few = line.band.thinned(_TABLE_ROWS)
        for position, value in zip(few.positions.tolist(), few.middle.tolist(), strict=True):
            rows.setdefault(position, {})[column] = chart.shown(value)
    names = [labels[line.group] + (f", {line.name}" if line.name else "") for line in chart.lines]
    body = [
        [Cell(f"{position:,}"), *(Cell(found.get(column, ""), number=True) for column in range(len(names)))]
        for position, found in sorted(rows.items())
    ]
    return table(["step", *names], body, f"{chart.title}: numbers")
