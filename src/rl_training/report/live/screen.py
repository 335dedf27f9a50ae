"""A run on a screen of a given size: what matters most comes first, and what does not fit is left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from rl_training.report.facts import MemberFacts, best_or_first, number, range_text, returns_of
from rl_training.report.live.plot import Glyphs, plot, sparkline, wrapped
from rl_training.report.live.progress import State
from rl_training.report.live.view import RunView, knobs_of

_STYLES = {"running": "green", "finished": "bold green", "not moving": "yellow", "stopped": "yellow", "failed": "bold red"}
_SHORTEST_PLOT, _TALLEST_PLOT = 5, 24
_SOFT = "bright_black"


@dataclass(frozen=True)
class Size:
    """Columns and lines of a screen, and the characters that it can show."""

    width: int
    height: int
    glyphs: Glyphs


def run_lines(name: str, view: RunView | None, state: State, waited: float, size: Size) -> list[Text]:
    """Return a run as lines, at most as many and as long as the screen has."""
    lines = _head(name, view, state, waited, size)
    if view is not None:
        lines += _caution_lines(view, size, max(3, (size.height - len(lines)) // 3))
        room = size.height - len(lines)
        metrics = _metric_lines(view, size, max(0, (room - 8) // 3))
        table = _member_lines(view, size, max(0, (room - len(metrics)) // 3))
        curve = _curve_lines(view, size, min(_TALLEST_PLOT, room - len(metrics) - len(table)))
        lines += [*curve, *table, *metrics]
    return lines[: size.height]


def _head(name: str, view: RunView | None, state: State, waited: float, size: Size) -> list[Text]:
    """Which run it is, whether it goes on, how far it is, and what it has reached."""
    lines = [Text(size.glyphs.fit(view.title if view else name, size.width), style="bold")]
    told = [state.text] if view is None else [state.text, view.progress.text()]
    style = "yellow" if state.kind in ("running", "finished") and view and view.lost else _STYLES.get(state.kind, "")
    lines += [Text(line, style=style) for line in wrapped(told, size.width, size.glyphs)]
    details = [] if view is None else [*speed_texts(view, state, waited), *filter(None, [view.result()])]
    return lines + [Text(line) for line in wrapped(details, size.width, size.glyphs)]


def speed_texts(view: RunView, state: State, waited: float) -> list[str]:
    """Return speed and time left of a run that goes on, for people; the speed alone of one that has ended."""
    speed = view.progress.speed
    texts = [] if speed is None else [f"{number(speed)} {view.progress.unit}s/s"]
    left = view.progress.left_text(waited, may_stop_early=view.may_stop_early) if state.kind == "running" else ""
    return [*texts, *filter(None, [left])]


def _caution_lines(view: RunView, size: Size, room: int) -> list[Text]:
    """What training warned of, the latest first and what no longer holds last; how many more there are if they do not fit."""
    lines: list[Text] = []
    latest_first = view.cautions[::-1]
    for shown, one in enumerate(sorted(latest_first, key=lambda one: one.past)):
        more = wrapped([one.text if one.past else f"warning: {one.text}"], size.width, size.glyphs)
        if lines and len(lines) + len(more) > room:
            lines.append(Text(f"{len(view.cautions) - shown} more in `rl-training report`", style=_SOFT))
            break
        lines += [Text(line, style=_SOFT if one.past else "yellow") for line in more]
    return lines


def _curve_lines(view: RunView, size: Size, room: int) -> list[Text]:
    if view.curve is None or view.group is None or room < _SHORTEST_PLOT + 1:
        return []
    knobs = [f"{best_or_first([view.group])} of the sweep: {view.group.label}"] if view.group.knobs else []
    online = [f"online from {view.switch:,}"] if view.switch is not None else []
    told = view.curve.text if len(view.curve.positions) > 1 else view.curve.text.partition(", band")[0]
    title = ", ".join([view.label, *online, told, *knobs])
    drawn = plot(view.curve, size.width, room - 1, size.glyphs, view.switch)
    return [Text(size.glyphs.fit(title, size.width), style=_SOFT), *drawn]


def _metric_lines(view: RunView, size: Size, room: int) -> list[Text]:
    """A line for each metric: its name, its course, and its latest value."""
    names = {name: name.removeprefix("train/") for name in list(view.metrics)[:room]}
    broad = min(max(map(len, names.values()), default=0), max(4, size.width // 3))
    lines = []
    for name, shown in names.items():
        values = view.metrics[name]
        last = number(float(values[-1]))
        line = Text(size.glyphs.fit(shown, broad).ljust(broad) + " ", style=_SOFT)
        line.append(sparkline(values, min(40, size.width - broad - 2 - len(last)), size.glyphs), style="cyan")
        line.append(f" {last}")
        line.truncate(size.width)
        lines.append(line)
    return lines


def _member_lines(view: RunView, size: Size, room: int) -> list[Text]:
    """A table of the members, those with the highest returns where not all fit, and a line for the others."""
    if room < 3 or len(view.members) < 2:
        return []
    shown, others = list(view.members), list[MemberFacts]()
    if len(shown) > room - 1:
        ordered = sorted(shown, key=lambda one: -np.inf if one.final is None or one.diverged else one.final, reverse=True)
        shown, others = ordered[: room - 2], ordered[room - 2 :]
    figures = _figures(view.members)
    rows = [_cells(one, figures) for one in shown]
    headings = ("seed", *figures)
    knobs = ["knobs"] if any(one.knobs for one in view.members) else []
    lines = _table([[*headings, *knobs, "status"], *rows], size, left=1 + len(knobs)) if rows else []
    return [*lines, *([Text(size.glyphs.fit(_summary(others), size.width), style=_SOFT)] if others else [])]


def _figures(members: Sequence[MemberFacts]) -> tuple[str, ...]:
    """What there is to say of each member: its returns, or without any its distance to held-out actions."""
    if any(one.final is not None for one in members):
        return "last", "best", "at step"
    return ("distance",) if any(one.distance is not None for one in members) else ()


def _cells(one: MemberFacts, figures: Sequence[str]) -> list[str]:
    at = one.best_text.partition(", ")[0].replace("gradient step ", "").replace("environment step", "env")  # lines are short
    known = {"last": number(one.final), "best": number(one.best), "at step": at, "distance": number(one.distance)}
    return [str(one.seed), *(known[name] for name in figures), *([knobs_of(one)] if one.knobs else []), one.status]


def _table(rows: Sequence[Sequence[str]], size: Size, left: int) -> list[Text]:
    """Rows in columns, the last `left` of them flush left; the first row is the heading."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for count, row in enumerate(rows):
        cells = [text.rjust(width) for text, width in zip(row, widths, strict=True)]
        cells[-left:] = [text.ljust(width) for text, width in zip(row[-left:], widths[-left:], strict=True)]
        lines.append(Text(size.glyphs.fit("  ".join(cells).rstrip(), size.width), style="" if count else _SOFT))
    return lines


def _summary(others: Sequence[MemberFacts]) -> str:
    """The members that are not shown, in a line."""
    finals = returns_of([one for one in others if not one.diverged], "final")
    spread = [range_text(finals)] if len(finals) else []
    ended = [f"{sum(one.diverged for one in others)} diverged"] if any(one.diverged for one in others) else []
    return f"and {len(others)} more" + (f": {', '.join([*spread, *ended])}" if spread or ended else "")
