"""The sections of a page, in the order in which a reader asks."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.config.sweep import knob_text
from rl_training.report import facts
from rl_training.report.bands import Group
from rl_training.report.charts import Chart
from rl_training.report.facts import Timing, number
from rl_training.report.html import Cell, Markup, bar, card, figure, pairs, table

if TYPE_CHECKING:
    from rl_training.report.page import Picture

_COLOURS = 8  # of the style sheet


class Figures:
    """Numbers the charts of a page in the order in which their data is written."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels, self._next = labels, 0

    def of(self, charts: Sequence[Chart], *, large: bool = False) -> str:
        """Return the next charts."""
        first, self._next = self._next, self._next + len(charts)
        return "".join(figure(chart, first + i, self._labels, large=large) for i, chart in enumerate(charts))


def overview(runs: Sequence[LoggedRun], names: Sequence[str], timings: Mapping[Path, Timing]) -> str:
    """Return the verdict: cards for one run, a table for several."""
    if len(runs) == 1:
        return f'<section aria-label="Overview"><dl class="cards">{_cards(runs[0], timings[runs[0].path])}</dl>{_message(runs[0])}</section>'
    rows = []
    for run, name in zip(runs, names, strict=True):
        found = facts.member_facts(run)
        final, best = (facts.returns_of(found, which) for which in ("final", "best"))
        timing = timings[run.path]
        rows.append(
            [
                name,
                _status(run),
                run.config.algo,
                facts.source_of(run),
                Cell(str(len(found)), number=True),
                facts.steps_text(run),
                Cell(facts.duration(timing.seconds), timing.seconds, number=True),
                Cell(facts.spread_text(final), _sorted_by(final), number=True),
                Cell(facts.spread_text(best), _sorted_by(best), number=True),
            ]
        )
    headings = ["run", "status", "algorithm", "learned on", "members", "steps", "time", "final return", "best return"]
    return f"<section><h2>Runs</h2>{table(headings, rows, 'Runs', sortable=True)}{''.join(map(_message, runs))}</section>"


def _sorted_by(values: facts.Numbers) -> float | str:
    return float(facts.summarize(values)[0]) if len(values) else ""


def _cards(run: LoggedRun, timing: Timing) -> str:
    found = facts.member_facts(run)
    diverged = sum(one.diverged for one in found)
    speed = f"{timing.speed:,.0f} steps per second" if timing.speed else ""
    final, best = (facts.returns_of(found, which) for which in ("final", "best"))
    cards = [
        card("status", _status(run)),
        card("algorithm", run.config.algo),
        card("environment" if run.config.final_env_id else "data", facts.source_of(run)),
        card("members", str(len(found)), f"{diverged} diverged" if diverged else _seeds(run)),
        card("steps", *_two_lines(facts.steps_text(run))),
        card("time", facts.duration(timing.seconds), speed),
    ]
    if len(final):
        cards += [card("final return", number(facts.summarize(final)[0]), _spread(final, "last evaluation"))]
        cards += [card("best return", number(facts.summarize(best)[0]), _spread(best, "each member's best"))]
    elif run.config.final_env_id:
        cards += [card("final return", "none yet", "not evaluated so far")]
    else:
        cards += _held_out_card(run)
    return "".join(cards)


def _held_out_card(run: LoggedRun) -> list[str]:
    """Without an environment the distance to logged actions is the first thing to know of a policy."""
    distance, constant = ("validation/action_distance", "validation/constant_distance")
    if distance not in run.history or constant not in run.history:
        return []
    own, best = (facts.summarize(run.curve(name).last())[0] for name in (distance, constant))
    return [card("from the logged actions", f"{own:.1%}", f"of the range; best constant action {best:.1%}")]


def _two_lines(text: str) -> tuple[str, str]:
    first, _, second = text.partition(", ")
    return first, second


def _seeds(run: LoggedRun) -> str:
    seeds = list(dict.fromkeys(run.seeds.values()))
    shown = ", ".join(map(str, seeds[:4])) + (" …" if len(seeds) > 4 else "")
    return f"seed{'s' if len(seeds) > 1 else ''} {shown}"


def _spread(values: facts.Numbers, what: str) -> str:
    if len(values) == 1:
        return what
    middle = "mean" if len(values) < facts.MANY else "interquartile mean"
    return f"{middle}, {number(values.min())} to {number(values.max())}; {what}"


def _status(run: LoggedRun) -> Markup:
    status = facts.status_of(run)
    kind = {"finished": "good", "running": "warn", "stopped by a signal": "warn"}.get(status, "bad")
    return Markup(f'<span class="{kind}">{escape(status)}</span>')


def _message(run: LoggedRun) -> str:
    message = run.record.get("message")
    return f'<p class="note">{escape(run.name)}: {escape(str(message))}</p>' if message else ""


def curves(
    groups: Sequence[Group], runs: Sequence[LoggedRun], figures: Figures, charts: Sequence[Chart], data: Mapping[str, Any]
) -> str:
    """Return the learning curves with the controls of all charts."""
    seen = "".join(
        f'<label><input type="checkbox" data-group="{i}" checked><i class="chip c{i % _COLOURS}"></i>{escape(group.label)}</label>'
        for i, group in enumerate(groups)
    )
    drawn = figures.of(charts, large=True) or f'<p class="card">{_nothing(runs)}</p>'
    return (
        f'<section><h2>Learning curves</h2>{_toolbar(seen, groups, data)}<p class="note">{_explained(groups)}</p>{drawn}'
        f"{_switches(groups, runs)}</section>"
    )


def _nothing(runs: Sequence[LoggedRun]) -> str:
    if any(run.config.final_env_id for run in runs):
        return "No evaluation yet: returns appear here after the first one (eval_interval)."
    return "Trained without an environment, so there are no returns; below is what the policy does on rows it never saw."


def _toolbar(seen: str, groups: Sequence[Group], data: Mapping[str, Any]) -> str:
    several = any(len(group.members) > 1 for group in groups)
    each = any("each" in line for chart in data["charts"] for line in chart["lines"])
    boxes = [("bands", "Bands")] * several + [("members", "Members")] * (several and each) + [("log", "Log scale")]
    checks = "".join(f'<label><input type="checkbox" id="{name}">{text}</label>' for name, text in boxes)
    timed = all(len(group["time"][0]) > 1 for group in data["groups"])
    axis = '<label>x <select id="axis"><option value="false">steps</option><option value="true">time</option></select></label>'
    smooth = '<label>Smoothing <input type="range" id="smooth" min="0" max="0.95" step="0.05" value="0"></label>'
    names = {"in": ("+", "Zoom in"), "out": ("−", "Zoom out"), "left": ("◀", "Earlier"), "right": ("▶", "Later")}
    zoom = "".join(
        f'<button type="button" data-zoom="{key}" aria-label="{name}" title="{name}">{sign}</button>'
        for key, (sign, name) in names.items()
    )
    reset = '<button type="button" data-zoom="reset" id="zoom-reset" disabled>Reset zoom</button>'
    return (
        f'<div class="toolbar" role="group" aria-label="What the charts show"><div class="legend">{seen}</div>'
        f'<div>{checks}{axis if timed else ""}{smooth}<span class="buttons">{zoom}{reset}</span></div></div>'
    )


def _explained(groups: Sequence[Group]) -> str:
    texts = list(dict.fromkeys(group.band_text for group in groups))
    steps = "Steps are gradient steps"
    if any(group.run.switch is not None for group in groups):
        steps += " up to the switch, and environment steps after it"
    elif any("env_step" in group.run.history for group in groups):
        steps = "Steps are environment steps"
    lines = f"Line: {'; '.join(texts)}. " if texts != ["one member"] else ""
    if any(facts.member_status(group.run, member).startswith(("diverged", "stopped at")) for group in groups for member in group.run.seeds):
        lines += "A member that diverged or stopped counts up to there. "
    return escape(f"{lines}{steps}. Drag over a chart to zoom into a part, double-click to see all.")


def _switches(groups: Sequence[Group], runs: Sequence[LoggedRun]) -> str:
    online = [group for group in groups if group.run.switch is not None]
    if not online:
        return ""
    rows = []
    for group in online:
        dip, switch = facts.dip_of(group, runs), group.run.switch or 0
        if dip is None:
            rows.append([group.label, Cell(f"{switch:,}", number=True), "not known", "", "", "no evaluation before or after it"])
            continue
        back = "not yet" if dip.recovered_at is None else f"{dip.recovered_at - switch:,} environment steps"
        lowest = f"{number(dip.lowest)} after {dip.lowest_at - switch:,}"
        fell = Cell(number(dip.depth) if dip.depth else "none", dip.depth, number=True)
        rows.append([group.label, Cell(f"{switch:,}", number=True), Cell(number(dip.before), number=True),
                     Cell(lowest, number=True), fell, back if dip.depth else "–"])  # fmt: skip
    headings = ["run", "at step", "return before", "lowest after", "dip", "recovered after"]
    note = "Mean over members; the lowest evaluation in the first half of the online phase so far."
    return f'<h3>The switch to online</h3><p class="note">{note}</p>{table(headings, rows, "The switch to online")}'


def pictures(found: Sequence["Picture"]) -> str:
    """Return the policies at work."""
    if not found:
        return ""
    shown, missing = [one for one in found if one.moving], [one for one in found if not one.moving]
    drawn = "".join(
        f'<figure><img src="{_uri("png", one.still)}" data-moving="{_uri("gif", one.moving)}" '
        f'alt="Animation of the policy of {escape(one.label)}: {escape(one.caption)}"><div><figcaption>{escape(one.label)}'
        f'<p>{escape(one.caption)}</p></figcaption><button type="button" class="play">Play</button></div></figure>'
        for one in shown
    )
    notes = "".join(f'<p class="note">{escape(one.label)}: no picture: {escape(one.caption)}</p>' for one in missing)
    return f'<section><h2>The policy at work</h2><div class="pictures">{drawn}</div>{notes}</section>'


def _uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


def values(figures: Figures, chart: Chart | str) -> str:
    """Return values of the critics beside what was achieved; nothing where they cannot be compared."""
    if isinstance(chart, str):
        return f'<section><h2>Values and returns</h2><p class="note">Not compared: {escape(chart)}.</p></section>'
    note = (
        "Both are discounted returns in the units of the rewards; scale and shift of the rewards are undone. Expected: the mean of the "
        "critics on training batches (train/q_mean; with SAC and its variants the entropy bonus is part of it). Achieved: the mean "
        "reward of a step in evaluations, discounted over the steps that follow, as if rewards were even. A critic far above what is "
        "achieved overestimates; small gaps mean nothing."
    )
    return f'<section><h2>Values and returns</h2><p class="note">{note}</p>{figures.of([chart], large=True)}</section>'


def held_out(figures: Figures, charts: Sequence[Chart]) -> str:
    """Return what the policy does on rows it was not trained on."""
    if not charts:
        return ""
    return f'<section><h2>The policy on held-out rows</h2><div class="charts">{figures.of(charts)}</div></section>'


def training(figures: Figures, charts: Sequence[Chart]) -> str:
    """Return losses and other metrics."""
    if not charts:
        return ""
    return f'<section><h2>Losses and training metrics</h2><div class="charts">{figures.of(charts)}</div></section>'


def members(groups: Sequence[Group]) -> str:
    """Return how each member ended: final and best, sortable."""
    rows, several = [], len({group.run.path for group in groups}) > 1
    known = {group.run.path: {one.member: one for one in facts.member_facts(group.run)} for group in groups}
    for index, group in enumerate(groups):
        numbers = list(group.run.seeds)
        for place, column in enumerate(group.members):
            one = known[group.run.path][numbers[column]]
            name = f"{group.label}, member {one.member}"
            box = f'<input type="checkbox" data-member="{index}:{place}" checked aria-label="draw {escape(name)}">'
            best_at = "" if one.best_at is None else f"{one.best_at:,}"
            rows.append(
                [
                    Cell(f"{group.run.name} {one.member}" if several else str(one.member), None if several else one.member),
                    Cell(str(one.seed), one.seed, number=True),
                    *([knob_text(one.knobs)] if any(group.knobs for group in groups) else []),
                    Cell(number(one.final), "" if one.final is None else one.final, number=True),
                    Cell(number(one.best), "" if one.best is None else one.best, number=True),
                    Cell(best_at, "" if one.best_at is None else one.best_at, number=True),
                    Markup(f'<span class="bad">{escape(one.status)}</span>') if one.diverged else one.status,
                    Markup(box),
                ]
            )
    swept = ["knobs"] if any(group.knobs for group in groups) else []
    headings = ["member", "seed", *swept, "final return", "best return", "best at step", "status"]
    shown = table([*headings, "drawn"], rows, "Members", sortable=True, tall=len(rows) > 14)
    return f"<section><h2>Members</h2>{shown}</section>"


def datasets(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return what the runs learned from, the same data once."""
    by_data: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        found = facts.dataset_facts(run)
        if found:
            by_data.setdefault(tuple(found.items()), []).append(name)
    if not by_data:
        return ""
    tables = [
        f"<div><h3>{escape(', '.join(whose)) if len(runs) > 1 else 'Data'}</h3>{pairs(dict(found), 'Dataset')}</div>"
        for found, whose in by_data.items()
    ]
    return f'<section><h2>Dataset</h2><div class="columns">{"".join(tables)}</div></section>'


def settings(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return the settings: the differences between runs first, and every setting of each."""
    shown = ""
    if len(runs) > 1:
        found = facts.differences(runs)
        rows = [[Markup(f"<code>{escape(key)}</code>"), *(_setting(value) for value in row)] for key, row in found.items()]
        same = '<p class="note">All settings are the same.</p>'
        shown = table(["setting", *names], rows, "Differences between the runs") if rows else same
    full = "".join(
        f"<details><summary>All settings{f' of {escape(name)}' if len(runs) > 1 else ''}</summary>"
        f"<pre tabindex=0>{escape(run.config.to_yaml())}</pre></details>"
        for run, name in zip(runs, names, strict=True)
    )
    return f"<section><h2>Settings</h2>{shown}{full}</section>"


def _setting(value: Any) -> str:
    return "–" if value is None else str(value)


def times(runs: Sequence[LoggedRun], names: Sequence[str], timings: Mapping[Path, Timing]) -> str:
    """Return where the time went, and what the runs were run on."""
    tables = []
    for run, name in zip(runs, names, strict=True):
        timing = timings[run.path]
        rows = [
            [activity.replace("_", " "), Cell(facts.duration(seconds), seconds, number=True), bar(seconds / timing.seconds, f"{seconds / timing.seconds:.0%}")]
            for activity, seconds in sorted(timing.activities.items(), key=lambda item: -item[1])
            if timing.seconds and seconds > 0
        ]
        speed = f", {timing.speed:,.0f} steps per second" if timing.speed else ""
        title = f"{name}: " if len(runs) > 1 else ""
        if rows:
            text = f"<h3>{escape(title)}{facts.duration(timing.seconds)}{speed}</h3>"
            tables.append(f"<div>{text}{table(['activity', 'time', 'share'], rows, 'Time by activity')}</div>")
    setups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        setups.setdefault(tuple(facts.setup_of(run).items()), []).append(name)
    for found, whose in setups.items():
        title = "Versions and hardware" + (f": {', '.join(whose)}" if len(setups) > 1 else "")
        tables.append(f"<div><h3>{escape(title)}</h3>{pairs(dict(found), 'Versions and hardware')}</div>")
    return f'<section><h2>Time and versions</h2><div class="columns">{"".join(tables)}</div></section>'
