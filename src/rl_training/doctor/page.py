"""A dataset as one HTML page: no scripts, no network, charts as inline SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rl_training.doctor.charts import histogram, lines, one_value, short, two_histograms
from rl_training.doctor.findings import Finding
from rl_training.doctor.traces import MOST_COLUMNS, Trace
from rl_training.output import prose

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
.card b{display:block;font-size:20px;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card span{color:var(--soft);font-size:13px}
figure{margin:0}figcaption{font-size:13px;color:var(--soft);margin-bottom:6px}figcaption strong{color:var(--ink)}
svg{display:block;width:100%;height:auto}.axis{font-size:10px;fill:var(--soft)}.bar{fill:var(--bar)}.end{fill:var(--end)}
.end-of-axis{paint-order:stroke;stroke:var(--card);stroke-width:3px}
.curve{fill:none;stroke-width:1.2;stroke-linejoin:round;stroke-opacity:.85}
.line0{stroke:var(--bar);background:var(--bar)}.line1{stroke:var(--good);background:var(--good)}
.line2{stroke:var(--warn);background:var(--warn)}.line3{stroke:var(--end);background:var(--end)}
.legend span{display:inline-block;margin-right:18px;font-size:13px}
.legend i{display:inline-block;width:14px;height:3px;margin:0 6px 3px 0;
forced-color-adjust:none;print-color-adjust:exact}.base{stroke:var(--line)}
ul{list-style:none;padding:0;margin:0}li{background:var(--card);border:1px solid var(--line);
border-left:4px solid var(--warn);border-radius:6px;padding:10px 14px;margin-bottom:8px;overflow-wrap:anywhere}
li.error{border-left-color:var(--bad)}
li code:first-child{font-weight:600}li em{display:block;font-style:normal;color:var(--soft)}.clean{color:var(--good)}
@media print{:root{color-scheme:light;--ink:#1d2430;--soft:#5d6878;--paper:#fff;--card:#fff;--line:#dfe3e8;--bar:#3f6fd8;
--end:#d2603a;--good:#2f7d4f;--warn:#8a6100}main{padding:0;max-width:none}.card,li{break-inside:avoid}h2{break-after:avoid}}
"""
MARK = "<!-- made by rl-training data inspect -->"


def report_page(
    title: str, origin: str, summary: Mapping[str, Any], findings: Sequence[Finding], traces: Sequence[Trace]
) -> str:
    """Return the page of a dataset: key figures, findings, episodes over time, and a chart of every distribution."""
    ends = summary["ends"]
    figures = [
        (f"{summary['rows']:,}", "transitions"),
        (f"{summary['episodes']:,}", "episodes"),
        (f"{summary['observation_dim']} / {summary['action_dim']}", "observations / actions"),
        (f"{ends['true_ends']:,}", "true ends"),
        (f"{ends['time_limits']:,}", "time limits"),
        (
            short(summary["returns"]["mean"]),
            f"mean return, from {short(summary['returns']['min'])} to {short(summary['returns']['max'])}",
        ),
        (
            f"{summary['lengths']['mean']:,.4g}",
            f"mean length, from {summary['lengths']['min']:,.0f} to {summary['lengths']['max']:,.0f}",
        ),
    ]
    cards = "".join(f"<div class=card><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in figures)
    charts = [
        _distribution("Return of an episode", summary["returns"]),
        _distribution("Length of an episode", summary["lengths"]),
        _distribution("Reward of a transition", summary["rewards"]),
        two_histograms(
            *("Where episodes end", "true ends in red, time limits in blue"),
            both=(ends["true_end_lengths"], ends["time_limit_lengths"]),
            styles=("end", "bar"),
            ends=(summary["lengths"]["min"], summary["lengths"]["max"]),
        ),
    ]
    if summary["episodes"] > 1:
        charts.append(lines("Return in the order of the data", [("line0", list(enumerate(summary["return_trend"])))]))
    actions = [_distribution(c["label"], c, _coverage(c)) for c in summary["actions"]]
    observations = [_distribution(c["label"], c, _moments(c)) for c in summary["observations"]]
    shown, total = len(summary["observations"]), summary["observation_dim"]
    more = f"<p>The first {shown} of {total} columns.</p>" if total > shown else ""
    return (
        f'<!doctype html>{MARK}<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><main><h1>{escape(title)}</h1><p>{prose(origin)}</p>"
        f'<div class="grid figures">{cards}</div><h2>Findings</h2>{_findings(findings)}'
        f"<h2>Episodes over time</h2>{_over_time(traces, summary)}"
        f"<h2>Episodes and rewards</h2>{_grid(charts)}<h2>Actions</h2>{_grid(actions)}"
        f"<h2>Observations</h2>{more}{_grid(observations)}</main></html>\n"
    )


def _grid(figures: Sequence[str]) -> str:
    return f"<div class=grid>{''.join(f'<div class=card>{figure}</div>' for figure in figures)}</div>"


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return '<p class="clean">The doctor has no findings.</p>'
    items = (
        f'<li class="{finding.severity}"><code>{finding.code}</code> ({finding.severity}): {prose(finding.evidence)}'
        f"<em>{prose(finding.fix)}</em></li>"
        for finding in findings
    )
    return f"<ul>{''.join(items)}</ul>"


def _distribution(caption: str, values: Mapping[str, Any], note: str = "") -> str:
    counted = values["histogram"]
    if values["min"] == values["max"]:
        return one_value(caption, values["min"], sum(counted["counts"]), note)
    told = f"lowest {short(values['min'])}, highest {short(values['max'])}, mean {short(values['mean'])}"
    return histogram(caption, counted, note, told)


def _coverage(column: Mapping[str, Any]) -> str:
    if column["min"] == column["max"]:
        return f"always {column['min']:.4g}"
    return f"{column['coverage']:.0%} of the range seen, {column['at_bounds']:.1%} at the bounds"


def _moments(column: Mapping[str, Any]) -> str:
    if column["min"] == column["max"]:
        return f"always {column['min']:.4g}"
    return f"mean {column['mean']:.4g}, std {column['std']:.4g}"


def _over_time(traces: Sequence[Trace], summary: Mapping[str, Any]) -> str:
    """A chart per column with a line per episode, and what the lines are."""
    legend = "".join(
        f'<span><i class="line{number}"></i>{trace.role}: episode {trace.number}, '
        f"{trace.length:,} step{'s' * (trace.length != 1)}, return {short(trace.total_reward)} "
        f"({short(trace.mean_reward)} a step), {'true end' if trace.ended else 'time limit'}</span>"
        for number, trace in enumerate(traces)
    )
    charts = [lines("Reward", [(f"line{n}", trace.reward) for n, trace in enumerate(traces)], " steps")]
    for role in ("actions", "observations"):
        for column in getattr(traces[0], role):
            curves = [(f"line{n}", getattr(trace, role)[column]) for n, trace in enumerate(traces)]
            charts.append(lines(_label(summary[role], role, column), curves, " steps"))
    wide = max(summary["action_dim"], summary["observation_dim"])
    more = (
        f"<p>At most {MOST_COLUMNS} columns of each: those with findings, then the first.</p>" if wide > MOST_COLUMNS else ""
    )
    return f"<p class=legend>{legend}</p>{more}{_grid(charts)}"


def _label(columns: Sequence[Mapping[str, Any]], role: str, column: int) -> str:
    """The label of a column, by its number where the summary of a very wide dataset has none."""
    return str(columns[column]["label"]) if column < len(columns) else f"{role.removesuffix('s')} {column}"
