"""Small charts as inline SVG: bars of a histogram, lines over time."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 240, 84
_FOOT = 14  # below the drawing, for the numbers of the axis
_LEFT = 40  # of curves over time, for the lowest and the highest value


def short(value: float) -> str:
    """Return a number in four digits, or without digits after the point where it is larger."""
    return f"{value + 0.0:,.0f}" if 1e4 <= abs(value) < 1e8 else f"{value + 0.0:,.4g}"


def histogram(caption: str, counted: Mapping[str, Any], note: str = "", told: str = "") -> str:
    """Return the chart of a histogram with `counts` and `edges`; `told` is what a reader hears of it besides."""
    bars = _bars(counted["counts"], "bar", max(counted["counts"], default=0))
    return figure(caption, note, bars, counted["edges"], told=told)


def one_value(caption: str, value: float, count: int, note: str = "") -> str:
    """Return the chart of a column that never changes: one bar, with its value below it."""
    return figure(caption, note or f"always {short(value)}", _bars([0, count, 0], "bar", count), [value])


def two_histograms(
    caption: str, note: str, both: Sequence[Mapping[str, Any]], styles: Sequence[str], ends: Sequence[float]
) -> str:
    """Return two histograms on one axis, which has the lowest and the highest value at its ends."""
    edges = [edge for counted in both for edge in counted["edges"]]
    if not edges:
        return figure(caption, "", "", [])
    low, high = min(edges), max(edges)
    tallest = max(max(counted["counts"], default=0) for counted in both)
    bars = "".join(
        _bars(counted["counts"], style, tallest, counted["edges"], low, high)
        for counted, style in zip(both, styles, strict=True)
    )
    return figure(caption, note, bars, sorted(set(ends)))


def _bars(
    counts: Sequence[int],
    style: str,
    tallest: int,
    edges: Sequence[float] | None = None,
    low: float = 0.0,
    high: float = 1.0,
) -> str:
    """Bars of equal width, or placed by their edges between low and high."""
    positions = [i / len(counts) for i in range(len(counts) + 1)] if counts else []
    if edges and high > low:
        positions = [(edge - low) / (high - low) for edge in edges]
    pieces = []
    for i, count in enumerate(counts):
        if count:
            height = max(1.0, (HEIGHT - 20) * count / tallest)
            x, width = positions[i] * WIDTH, max(1.0, (positions[i + 1] - positions[i]) * WIDTH - 0.6)
            top = HEIGHT - _FOOT - height
            pieces.append(
                f'<rect class="{style}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}">'
                f"<title>{count:,}</title></rect>"
            )
    return "".join(pieces)


def lines(caption: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], unit: str = "") -> str:
    """Return curves (style, points) on common axes; a single flat value is drawn in the middle."""
    points = [point for _, curve in series for point in curve]
    low, high = min(y for _, y in points), max(y for _, y in points)
    last = max(x for x, _ in points) or 1.0
    drawn = "".join(
        f'<polyline class="curve {style}" points="{" ".join(_place(point, last, low, high) for point in curve)}"/>'
        for style, curve in series
    )
    note = f"always {short(low)}" if low == high else ""
    mean = sum(y for _, y in points) / len(points)
    told = f"lowest {short(low)}, highest {short(high)}, mean of what is drawn {short(mean)}"
    return figure(caption, note, drawn + _ends(low, high), [0.0, last], unit, told, left=_LEFT)


def _ends(low: float, high: float) -> str:
    """The lowest and the highest value, at their heights."""
    places = [(high, HEIGHT - 18 - (HEIGHT - 24)), (low, HEIGHT - 18)] if low < high else []
    return "".join(f'<text class="axis end-of-axis" x="0" y="{y + 3}">{short(value)}</text>' for value, y in places)


def _place(point: tuple[float, float], last: float, low: float, high: float) -> str:
    share = (point[1] - low) / (high - low) if high > low else 0.5
    return f"{_LEFT + (WIDTH - _LEFT) * point[0] / last:.1f},{HEIGHT - 18 - (HEIGHT - 24) * share:.1f}"


def figure(
    caption: str, note: str, drawing: str, edges: Sequence[float], unit: str = "", told: str = "", left: float = 0.0
) -> str:
    """Return a drawing with its caption, a note and the ends of its axis; `told` is what a reader hears of it besides."""
    foot = HEIGHT - _FOOT + 0.5
    axis = f'<line class="base" x1="{left:g}" x2="{WIDTH}" y1="{foot}" y2="{foot}"/>'
    places = {1: [(WIDTH / 2, "middle")]}.get(len(edges), [(left, "start"), (WIDTH, "end")])
    for edge, (x, anchor) in zip((edges[0], edges[-1]) if len(edges) else (), places, strict=False):
        after = unit if anchor == "end" else ""
        axis += f'<text class="axis" x="{x:g}" y="{HEIGHT - 3}" text-anchor="{anchor}">{short(edge)}{after}</text>'
    text = f"<strong>{escape(caption)}</strong>" + (f"<br>{escape(note)}" if note else "")
    name = escape(": ".join(filter(None, (caption, told or note))))
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">{axis}{drawing}</svg>'
    return f"<figure><figcaption>{text}</figcaption>{drawn}</figure>"
