"""A dataset as one HTML page: no scripts, no network, charts as inline SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rl_training.doctor.findings import Finding

_STYLE = """
:root{--ink:#1d2430;--soft:#5d6878;--paper:#f6f7f9;--card:#fff;--line:#dfe3e8;--bar:#3f6fd8;--end:#d2603a;
--good:#2f7d4f;--bad:#b3261e;--warn:#8a6100}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--paper:#14171c;--card:#1d2229;--line:#303742;
--bar:#7aa2ff;--end:#f08a63;--good:#6cc08b;--bad:#ff8a80;--warn:#e0b354}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}h1{font-size:24px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:36px 0 12px}p{margin:0 0 8px;color:var(--soft);overflow-wrap:anywhere}
.grid{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(240px,1fr))}
.figures{grid-template-columns:repeat(auto-fill,minmax(132px,1fr))}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px;min-width:0}
.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:13px}
figure{margin:0}figcaption{font-size:13px;color:var(--soft);margin-bottom:6px}figcaption strong{color:var(--ink)}
svg{display:block;width:100%;height:auto}.axis{font-size:10px;fill:var(--soft)}.bar{fill:var(--bar)}.end{fill:var(--end)}
.curve{fill:none;stroke:var(--bar);stroke-width:1.5}.base{stroke:var(--line)}
ul{list-style:none;padding:0;margin:0}li{background:var(--card);border:1px solid var(--line);
border-left:4px solid var(--warn);border-radius:6px;padding:10px 14px;margin-bottom:8px;overflow-wrap:anywhere}
li.error{border-left-color:var(--bad)}
li code{font-weight:600}li em{display:block;font-style:normal;color:var(--soft)}.clean{color:var(--good)}
"""
MARK = "<!-- made by rl-training data inspect -->"
_WIDTH, _HEIGHT = 240, 84


def report_page(title: str, origin: str, summary: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """Return the page of a dataset: key figures, findings, and a chart of every distribution."""
    ends = summary["ends"]
    figures = [
        (f"{summary['rows']:,}", "transitions"),
        (f"{summary['episodes']:,}", "episodes"),
        (f"{summary['observation_dim']} / {summary['action_dim']}", "observations / actions"),
        (f"{ends['true_ends']:,}", "true ends"),
        (f"{ends['time_limits']:,}", "time limits"),
        (
            f"{summary['returns']['mean']:,.4g}",
            f"mean return, from {summary['returns']['min']:,.4g} to {summary['returns']['max']:,.4g}",
        ),
        (
            f"{summary['lengths']['mean']:,.4g}",
            f"mean length, from {summary['lengths']['min']:,.0f} to {summary['lengths']['max']:,.0f}",
        ),
    ]
    cards = "".join(f"<div class=card><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in figures)
    charts = [
        _chart("Return of an episode", summary["returns"]["histogram"]),
        _chart("Length of an episode", summary["lengths"]["histogram"]),
        _chart("Reward of a transition", summary["rewards"]["histogram"]),
        _ends_chart(ends),
        _curve("Return in the order of the data", summary["return_trend"]),
    ]
    actions = [_chart(f"Action {i}", c["histogram"], _coverage(c)) for i, c in enumerate(summary["actions"])]
    observations = [_chart(f"Observation {i}", c["histogram"], _moments(c)) for i, c in enumerate(summary["observations"])]
    shown, total = len(summary["observations"]), summary["observation_dim"]
    more = f"<p>The first {shown} of {total} columns.</p>" if total > shown else ""
    return (
        f'<!doctype html>{MARK}<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><main><h1>{escape(title)}</h1><p>{escape(origin)}</p>"
        f'<div class="grid figures">{cards}</div><h2>Findings</h2>{_findings(findings)}'
        f"<h2>Episodes and rewards</h2>{_grid(charts)}<h2>Actions</h2>{_grid(actions)}"
        f"<h2>Observations</h2>{more}{_grid(observations)}</main></html>\n"
    )


def _grid(figures: Sequence[str]) -> str:
    return f"<div class=grid>{''.join(f'<div class=card>{figure}</div>' for figure in figures)}</div>"


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return '<p class="clean">The doctor has no findings.</p>'
    items = (
        f'<li class="{finding.severity}"><code>{finding.code}</code> ({finding.severity}): {escape(finding.evidence)}'
        f"<em>{escape(finding.fix)}</em></li>"
        for finding in findings
    )
    return f"<ul>{''.join(items)}</ul>"


def _coverage(column: Mapping[str, Any]) -> str:
    return f"{column['coverage']:.0%} of the range seen, {column['at_bounds']:.1%} at the bounds"


def _moments(column: Mapping[str, Any]) -> str:
    return f"mean {column['mean']:.4g}, std {column['std']:.4g}"


def _chart(caption: str, histogram: Mapping[str, Any], note: str = "") -> str:
    return _figure(caption, note, _bars(histogram["counts"], "bar", max(histogram["counts"], default=0)), histogram["edges"])


def _ends_chart(ends: Mapping[str, Any]) -> str:
    """True ends and time limits by episode length, on one axis."""
    both = [ends["true_end_lengths"], ends["time_limit_lengths"]]
    edges = [edge for histogram in both for edge in histogram["edges"]]
    if not edges:
        return _figure("Where episodes end", "", "", [])
    low, high = min(edges), max(edges)
    tallest = max(max(histogram["counts"], default=0) for histogram in both)
    bars = "".join(
        _bars(histogram["counts"], style, tallest, histogram["edges"], low, high)
        for histogram, style in zip(both, ("end", "bar"), strict=True)
    )
    return _figure("Where episodes end", "true ends in red, time limits in blue", bars, [low, high])


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
            height = max(1.0, (_HEIGHT - 20) * count / tallest)
            x, width = positions[i] * _WIDTH, max(1.0, (positions[i + 1] - positions[i]) * _WIDTH - 0.6)
            top = _HEIGHT - 14 - height
            pieces.append(
                f'<rect class="{style}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}">'
                f"<title>{count:,}</title></rect>"
            )
    return "".join(pieces)


def _curve(caption: str, values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    steps = max(len(values) - 1, 1)
    points = " ".join(
        f"{_WIDTH * i / steps:.1f},{_HEIGHT - 16 - (_HEIGHT - 22) * (value - low) / span:.1f}"
        for i, value in enumerate(values)
    )
    line = f'<polyline class="curve" points="{points}"/>'
    return _figure(caption, f"from {low:,.4g} to {high:,.4g}", line, [])


def _figure(caption: str, note: str, drawing: str, edges: Sequence[float]) -> str:
    axis = f'<line class="base" x1="0" x2="{_WIDTH}" y1="{_HEIGHT - 13.5}" y2="{_HEIGHT - 13.5}"/>'
    if len(edges):
        axis += f'<text class="axis" x="0" y="{_HEIGHT - 3}">{edges[0]:.4g}</text>'
        axis += f'<text class="axis" x="{_WIDTH}" y="{_HEIGHT - 3}" text-anchor="end">{edges[-1]:.4g}</text>'
    text = f"<strong>{escape(caption)}</strong>" + (f"<br>{escape(note)}" if note else "")
    drawn = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(caption)}">{axis}{drawing}</svg>'
    return f"<figure><figcaption>{text}</figcaption>{drawn}</figure>"
