"""The sections of a page that show curves and pictures."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rl_training.analysis.logged_run import LoggedRun
from rl_training.output import prose
from rl_training.report import facts, switch
from rl_training.report.bands import Group, curves_text
from rl_training.report.cautions import Caution
from rl_training.report.charts import HELD_OUT_HEADINGS, HELD_OUT_NOTE, Chart, held_out_figures
from rl_training.report.page.html import Cell, Markup, Row, figure, sample, table
from rl_training.report.palette import colour_of, dash_of

if TYPE_CHECKING:
    from rl_training.report.page.document import Picture


_HANDLING = (
    "Point at a chart or tap it to read its values; zoom with the buttons, or by dragging with a mouse; "
    "a double-click shows all."
)


class Figures:
    """Numbers the charts of a page in the order in which their data is written."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels, self._next = labels, 0

    def of(self, charts: Sequence[Chart], *, large: bool = False) -> str:
        """Return the next charts."""
        first, self._next = self._next, self._next + len(charts)
        return "".join(figure(chart, first + i, self._labels, large=large) for i, chart in enumerate(charts))


def curves(
    groups: Sequence[Group],
    of: int,
    runs: Sequence[LoggedRun],
    figures: Figures,
    charts: Sequence[Chart],
    data: Mapping[str, Any],
) -> str:
    """Return the learning curves of some groups `of` so many, with the controls of all charts."""
    seen = "".join(
        f'<label><input type="checkbox" data-group="{i}" checked>{sample(dash_of(i), f"c{colour_of(i)}")}'
        f"{escape(group.label)}</label>"
        for i, group in enumerate(groups)
    )
    drawn = figures.of(charts, large=True) or f'<p class="card">{_nothing(runs)}</p>'
    which = facts.best_or_first(groups)
    how = ": the fewest diverged members, then the highest final return" if which == "best" else ""
    best = f"The {which} {len(groups)} of {of} are drawn{how}. "
    chosen = facts.as_of_now(best, runs) if of > len(groups) else ""
    thinned = "Long curves are thinned; their band covers the points left out. " if data["thinned"] else ""
    note = f'<p class="note">{chosen}{thinned}{_explained(groups)}</p>'
    return f"<section><h2>Learning curves</h2>{_toolbar(seen, data)}{note}{drawn}{_switches(groups, runs)}</section>"


def _nothing(runs: Sequence[LoggedRun]) -> str:
    measured = [run for run in runs if run.config.final_env_id]
    if any(run.record["status"] == "running" for run in measured):
        return "No evaluation yet: returns appear here after the first one (eval_interval)."
    if measured:
        return "There was no evaluation, so there are no returns: the first comes after eval_interval steps."
    return "Trained without an environment, so there are no returns; below is what the policy does on rows it never saw."


def _toolbar(seen: str, data: Mapping[str, Any]) -> str:
    bands, each = (any(key in line for chart in data["charts"] for line in chart["lines"]) for key in ("low", "each"))
    boxes = [("bands", "Bands")] * bands + [("members", "Members")] * each + [("log", "Log scale")]
    checks = "".join(f'<label><input type="checkbox" id="{name}">{text}</label>' for name, text in boxes)
    timed = all(len(group["time"][0]) > 1 for group in data["groups"])
    choice = '<option value="false">steps</option><option value="true">time</option>'
    axis = f'<label>x axis <select id="axis">{choice}</select></label>' if timed else ""
    smooth = '<label>Smoothing <input type="range" id="smooth" min="0" max="0.95" step="0.05" value="0"></label>'
    names = {"in": ("+", "Zoom in"), "out": ("\N{MINUS SIGN}", "Zoom out"), "left": ("◀", "Earlier"), "right": ("▶", "Later")}
    zoom = "".join(
        f'<button type="button" data-zoom="{key}" aria-label="{name}" title="{name}">{sign}</button>'
        for key, (sign, name) in names.items()
    )
    reset = '<button type="button" data-zoom="reset" id="zoom-reset" disabled>Reset zoom</button>'
    return (
        f'<div class="toolbar" role="group" aria-label="What the charts show"><div class="legend">{seen}</div>'
        f'<div>{checks}{axis}{smooth}<span class="buttons">{zoom}{reset}</span></div></div>'
    )


def _explained(groups: Sequence[Group]) -> str:
    told = facts.as_of_now(curves_text(groups), [group.run for group in groups])
    return escape(f"{told} {_HANDLING}")


def _switches(groups: Sequence[Group], runs: Sequence[LoggedRun]) -> str:
    online = [group for group in groups if group.run.switch is not None]
    if not online:
        return ""
    rows: list[Row] = []
    for group in online:
        first, *cells = switch.dip_cells(group, runs)
        rows.append([first, *(Cell(cell, number=True) for cell in cells)])
    note = f'<p class="note">{switch.DIP_NOTE}</p>'
    return f"<h3>The switch to online</h3>{note}{table(switch.DIP_HEADINGS, rows, 'The switch to online')}"


def warnings(found: Sequence[Caution]) -> str:
    """Return what training warned of; nothing if there is nothing."""
    listed = "".join(f"<li{' class=soft' * one.past}>{prose(one.text)}</li>" for one in found)
    return f'<section><h2>Warnings</h2><ul class="warnings">{listed}</ul></section>' if listed else ""


def pictures(found: Sequence["Picture"]) -> str:
    """Return the policies at work."""
    if not found:
        return ""
    shown, missing = [one for one in found if one.moving], [one for one in found if not one.moving]
    drawn = "".join(
        f'<figure><img src="{_uri("png", one.still)}" data-moving="{_uri("gif", one.moving)}" '
        f'alt="Animation of the policy of {escape(one.label)}: {escape(one.caption)}"><div><figcaption>{escape(one.label)}'
        f"<p>{escape(one.caption)}</p></figcaption>"
        f'<button type="button" class="play"><span>Play</span><span class="hidden"> {escape(one.label)}</span></button>'
        "</div></figure>"
        for one in shown
    )
    notes = "".join(f'<p class="note">{escape(one.label)}: no picture: {prose(one.caption)}</p>' for one in missing)
    return f'<section><h2>The policy at work</h2><div class="pictures">{drawn}</div>{notes}</section>'


def _uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


def values(figures: Figures, charts: Sequence[Chart], reasons: Sequence[str]) -> str:
    """Return values of the critics beside what was achieved, and why runs are not compared so."""
    missing = "".join(f'<p class="note">Not compared: {escape(reason)}.</p>' for reason in reasons)
    if not charts:
        return f"<section><h2>Values and returns</h2>{missing}</section>" if missing else ""
    note = (
        "Both are discounted returns in the units of the rewards; scale and shift of the rewards are undone. Expected: the "
        "mean of the critics on training batches (train/q_mean; with SAC and its variants the entropy bonus is part of it). "
        "Achieved: the mean reward of a step in evaluations, discounted over the steps that follow, as if rewards were even; "
        "without end in a run whose evaluations were all cut by the time limit, since critics look beyond a cut, otherwise "
        "to the end of an episode; what is achieved by two runs of which only one goes on without end is not comparable. "
        "This is rough: where rewards are large early or late in an episode, as when a plant settles or a goal ends it, it "
        "is off by several times. Besides, critics are averaged over the states and actions of the data, not over those that "
        "the policy reaches. So a gap tells of a wrong critic only if it is of another order of magnitude and values have "
        "settled; values that grow without end tell of one by themselves."
    )
    drawn = figures.of(charts, large=True)
    return f'<section><h2>Values and returns</h2><p class="note">{note}</p>{drawn}{missing}</section>'


def held_out(figures: Figures, charts: Sequence[Chart], groups: Sequence[Group]) -> str:
    """Return what the policy does on rows it was not trained on: the last figures, and how they came about."""
    if not charts:
        return ""
    rows: list[Row] = []
    for one in held_out_figures(groups):
        own = Markup(f'<span class="bad">{escape(one.policy_text)}</span>') if one.worse else one.policy_text
        cells = [Cell(own, number=True), *(Cell(other, number=True) for other in one.others)]
        rows.append([f"{one.label}: {one.name}" if len(groups) > 1 else one.name, *cells])
    listed = table(HELD_OUT_HEADINGS, rows, "The policy on held-out rows", tall=len(rows) > 14) if rows else ""
    note = f'<p class="note">{HELD_OUT_NOTE}</p>'
    drawn = f'<div class="charts">{figures.of(charts)}</div>'
    return f"<section><h2>The policy on held-out rows</h2>{note}{listed}{drawn}</section>"


def training(figures: Figures, charts: Sequence[Chart]) -> str:
    """Return losses and other metrics."""
    if not charts:
        return ""
    return f'<section><h2>Losses and training metrics</h2><div class="charts">{figures.of(charts)}</div></section>'
