"""Which charts tell of some runs, and what is on each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.analysis.random_play import random_play
from rl_training.report.bands import MANY, Band, Group, band, few_names, summarize
from rl_training.report.data_facts import action_text, bounds_text, parts_of
from rl_training.report.facts import NOTHING, number
from rl_training.report.values import ValueCurves, reward_transform, value_curves
from rl_training.runtime.validating.concerns import WHOLE, settled_text

HELD_OUT = "validation/"
_COPIES = ("learning_rate_factor",)  # metrics of training that need no held-out twin beside them
_VALUES = ("q_mean", "v_mean", "advantage_mean")  # in the units of the rewards that a learner sees


@dataclass(frozen=True, eq=False)
class Line:
    """A curve of a group on a chart; `name` tells it from others of the same group."""

    group: int
    band: Band
    name: str = ""


@dataclass(frozen=True, eq=False)
class Chart:
    """Curves on common axes, with values to compare them with."""

    title: str
    lines: Sequence[Line]
    metric: str = ""  # under which the numbers are logged
    note: str = ""
    references: dict[str, float] = field(default_factory=dict)
    percent: bool = False

    def summary(self, labels: Sequence[str]) -> str:
        """Return in a sentence per curve what a reader sees: where it begins and ends, and its extremes."""
        texts = []
        for line in self.lines:
            middle, positions = line.band.middle, line.band.positions
            whose = f"{labels[line.group]}{f', {line.name}' if line.name else ''}"
            start = f"{self.shown(middle[0])} at step {positions[0]:,}"
            if len(middle) == 1:
                texts.append(f"{whose}: {start}.")
                continue
            extremes = f"lowest {self.shown(middle.min())}, highest {self.shown(middle.max())}"
            texts.append(f"{whose}: from {start} to {self.shown(middle[-1])} at step {positions[-1]:,}, {extremes}.")
        texts += [f"{name}: {self.shown(value)}." for name, value in self.references.items()]
        return " ".join(texts)

    @property
    def steps(self) -> tuple[float, float]:
        """From where to where its curves reach: from 0 if they begin near it, as on the page."""
        low = min(int(line.band.positions[0]) for line in self.lines)
        high = max(int(line.band.positions[-1]) for line in self.lines)
        start = 0 if 0 < low < 0.2 * high else low
        return (start, high) if start < high else (low - 1, high + 1)

    def shown(self, value: float) -> str:
        """Return a value as the axis shows it."""
        return f"{value:.1%}" if self.percent else number(value)


def return_charts(groups: Sequence[Group]) -> list[Chart]:
    """Return the charts of returns in each environment: first of evaluations, then of the episodes that were learned from."""
    exploring, noise = "data/episode_return", "The last episode that was collected online, with exploration noise."
    return [
        *(
            Chart(f"Return in evaluations{place}", lines, RETURN, *_data_returns([groups[line.group] for line in lines]))
            for place, lines in _by_environment(groups, _lines(groups, RETURN)).items()
        ),
        *(
            Chart(f"Return while exploring{place}", lines, exploring, noise)
            for place, lines in _by_environment(groups, _lines(groups, exploring)).items()
        ),
    ]


def _by_environment(groups: Sequence[Group], lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines that can be compared, since they are of one environment, by what a title says of it where there are several."""
    several = len({env for group in groups if (env := group.run.config.final_env_id) is not None}) > 1
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(f", {groups[line.group].run.config.final_env_id}" if several else "", []).append(line)
    return found


def held_out_charts(groups: Sequence[Group]) -> list[Chart]:
    """Return what policies do on rows that they were not trained on: all that is known where there is no environment."""
    valued = [group for group in groups if f"{HELD_OUT}q_policy" in group.run.history]  # cloning alone has no values
    endless = all(map(_is_endless, valued))
    asked = [
        ("Distance to the logged actions", "action_distance", {"best constant action": "constant_distance",
                                                               "plain cloning": "cloning_distance"}, True),
        ("Actions at a bound", "at_bound", {"logged actions": "at_bound_data"}, True),
        ("Spread of the actions over states", "spread", {"logged actions": "spread_data",
                                                          "plain cloning": "spread_cloning"}, True),
        ("Value of the policy's actions", "q_policy", {"lowest possible": "possible_lowest",
                                                       "highest possible": "possible_highest"} if endless else
                                                      {"lowest logged episode": "reached_lowest",
                                                       "highest logged episode": "reached_highest"}, False),
    ]  # fmt: skip
    beside = (
        "what the rewards allow; no logged episode truly ends, so what follows its cut counts"
        if endless
        else f"the discounted returns of logged episodes{_parts_count(valued)}"
    )
    drawn = f", beside {beside}" if _references(groups, asked[-1][2]) else ""  # they differ between runs on different data
    notes = {
        "action_distance": "Mean distance as a share of the action range; lower is closer to the data.",
        "at_bound": "If far above the data, the policy follows values that the data does not support; if far below, it does "
        "not do what the data did at the bounds, such as switching on and off.",
        "spread": "Policies and plain cloning act without the chance that is in logged actions, so they are below the data "
        "where operators vary. If far below plain cloning, a policy hardly reacts to what it observes.",
        "q_policy": f"Discounted return of real rewards that the critics expect{drawn}.{_unsettled(valued)}",
    }
    charts = [
        Chart(title, _lines(groups, HELD_OUT + name), HELD_OUT + name, notes[name], _references(groups, refs), share)
        for title, name, refs, share in asked
    ]
    score = f"{HELD_OUT}score"
    chosen = "By `select_by`, higher is better: of a run without an environment, the best checkpoint has the highest mean."
    charts.append(Chart("Score that checkpoints are chosen by", _lines(groups, score), score, chosen))
    for metric in _metrics(groups, f"{HELD_OUT}action_distance/"):
        column = metric.removeprefix(f"{HELD_OUT}action_distance/")
        refs = {"best constant action": f"constant_distance/{column}", "plain cloning": f"cloning_distance/{column}"}
        title = f"Distance of action {column}"
        charts.append(Chart(title, _lines(groups, metric), metric, "In its own unit.", _references(groups, refs)))
    return [chart for chart in charts if chart.lines]


HELD_OUT_HEADINGS = ("figure", "policy", "best constant", "plain cloning", "logged actions")
HELD_OUT_NOTE = (
    f"Means over members at the last evaluation, of {MANY} or more interquartile means. Distances to logged actions: "
    "lower is closer to the data."
)


@dataclass(frozen=True)
class HeldOutFigure:
    """One figure of a policy on held-out rows, beside those that need no policy."""

    label: str  # of the group
    name: str
    policy: str
    others: tuple[str, str, str]  # best constant action, plain cloning, the logged actions
    worse: bool  # whether the best constant action is closer to the data

    @property
    def policy_text(self) -> str:
        """The figure of the policy, and whether a constant would be closer."""
        return f"{self.policy}, worse than a constant" if self.worse else self.policy


def held_out_figures(groups: Sequence[Group]) -> list[HeldOutFigure]:
    """Return what is known of the last policies on held-out rows: distances by action in their units, bounds, values."""
    return [figure for group in groups for figure in _figures_of(group)]


def _figures_of(group: Group) -> Iterator[HeldOutFigure]:
    bounds = (group.run.record.get("dataset") or {}).get("action_bounds") or {}
    for metric in group.run.metrics(f"{HELD_OUT}action_distance"):
        _, _, column = metric.removeprefix(HELD_OUT).partition("/")
        ends = bounds.get(column) or bounds.get(action_text(column))
        inside = f", which may be {bounds_text(ends)}" if column and ends else ""
        own, constant, cloning = (
            _last_middle(group, metric.replace("action_distance", f"{whose}_distance", 1))
            for whose in ("action", "constant", "cloning")
        )
        if own is not None:
            shown = [NOTHING if one is None else number(one) if column else f"{one:.1%}" for one in (own, constant, cloning)]
            name = f"distance of {action_text(column)}{inside}" if column else "distance, share of the range"
            yield HeldOutFigure(
                group.label, name, shown[0], (shown[1], shown[2], NOTHING), constant is not None and own > constant
            )
    for name, metric in (("actions at a bound", "at_bound"), ("spread of the actions", "spread")):
        own, cloning, logged = (_last_middle(group, f"{HELD_OUT}{metric}{whose}") for whose in ("", "_cloning", "_data"))
        if own is not None and logged is not None:
            others = (NOTHING, NOTHING if cloning is None else f"{cloning:.1%}", f"{logged:.1%}")
            yield HeldOutFigure(group.label, name, f"{own:.1%}", others, worse=False)
    own, logged = (_last_middle(group, f"{HELD_OUT}{name}") for name in ("q_policy", "q_data"))
    kind, limits = ("possible", "the rewards allow") if _is_endless(group) else ("reached", "logged episodes reached")
    low, high = (_last_middle(group, f"{HELD_OUT}{kind}_{side}") for side in ("lowest", "highest"))
    if own is not None:
        name = f"value of the actions; {limits} {number(low)} to {number(high)}, discounted"
        told = ", ".join(filter(None, (number(own), _settled(group))))
        yield HeldOutFigure(group.label, name, told, (NOTHING, NOTHING, number(logged)), worse=False)


def _settled(group: Group) -> str:
    """How settled the last values of a group are; empty if they are, and for a run of a version that did not log it."""
    share = _last_middle(group, f"{HELD_OUT}values_settled")
    return "" if share is None else settled_text(share)


def _unsettled(groups: Sequence[Group]) -> str:
    """How settled the last values are, of each group where they are not."""
    found = "; ".join(f"{group.label} {text}" for group in groups if (text := _settled(group)))
    return f" Values begin at 0, and at the end are: {found}." if found else ""


def _is_endless(group: Group) -> bool:
    """Whether no episode of the data truly ends: critics then look beyond the logged returns, which stop at the cuts."""
    known = (group.run.record.get("dataset") or {}).get("true_ends") == 0
    return known and f"{HELD_OUT}possible_lowest" in group.run.history


def _parts_count(groups: Sequence[Group]) -> str:
    """That parts count as episodes, where the data has any."""
    return ", of which parts between gaps count as whole" if any(parts_of(group.run) for group in groups) else ""


def _last_middle(group: Group, metric: str) -> float | None:
    """The middle of a group's members, as on the charts, of the last value of a metric; None if there is none."""
    if metric not in group.run.history:
        return None
    middle = summarize(group.run.curve(metric).last()[list(group.members)])[0]
    return None if np.isnan(middle) else middle


def value_charts(groups: Sequence[Group]) -> tuple[list[Chart], list[str]]:
    """Return what the critics expect beside what was achieved in each environment, and why runs are left out of that."""
    lines: list[Line] = []
    known: dict[int, ValueCurves] = {}  # by the number of the group
    reasons: dict[str, None] = {}
    for index, group in enumerate(groups):
        curves = value_curves(group)
        if isinstance(curves, str):
            reasons[f"{group.run.name}: {curves}"] = None
        elif curves is not None:
            known[index] = curves
            lines.append(Line(index, band(curves.expected, group.members), "expected by the critics"))
            lines.append(Line(index, band(curves.achieved, group.members), "achieved, roughly"))
    charts = []
    for place, own in _by_environment(groups, _with_points(lines)).items():
        shown = {groups[line.group]: known[line.group] for line in own}
        charts.append(Chart(f"Value expected and achieved{place}", own, note=f"{_horizons(shown)}{_come_so_far(shown)}"))
    return charts, list(reasons)


def _horizons(known: dict[Group, ValueCurves]) -> str:
    """Whose achieved values go on without end, where those of others do not."""
    endless, ended = ([group.label for group, one in known.items() if one.endless == kind] for kind in (True, False))
    if not (endless and ended):
        return ""
    return f"Achieved goes on without end for {few_names(endless)}, to the end of episodes for {few_names(ended)}. "


def _come_so_far(known: dict[Group, ValueCurves]) -> str:
    """How much of an even stream of rewards critics know at the end, of groups where that is not all."""
    shares = {group.label: summarize(one.settled[list(group.members)])[0] for group, one in known.items()}
    told = [f"{share:.0%} ({label})" for label, share in shares.items() if share < WHOLE]
    so_far = f"Values begin at 0 and follow by tau: of even rewards, critics know at the end about {few_names(told)}."
    return so_far if told else ""


def training_charts(groups: Sequence[Group]) -> list[Chart]:
    """Return a chart for each other metric: losses first, those of held-out rows on the same axes, then the rest."""
    metrics = _metrics(groups, "train/")
    metrics.sort(key=lambda name: (not name.endswith("_loss"), "learning_rate_factor" in name))
    charts = []
    for metric in metrics:
        lines, name = _lines(groups, metric), metric.removeprefix("train/")
        if not any(copy in name for copy in _COPIES):
            lines += _lines(groups, HELD_OUT + name, "held out")
        charts.append(Chart(_title(name), lines, metric, _learning_units(groups, metric) if name in _VALUES else ""))
    others = [name for name in ("eval/length_mean", "eval/return_std", "data/episode_length") if _metrics(groups, name)]
    titles = ("Episode length in evaluations", "Deviation of the returns of a member", "Episode length while exploring")
    named = dict(zip(("eval/length_mean", "eval/return_std", "data/episode_length"), titles, strict=True))
    return [*charts, *(Chart(named[metric], _lines(groups, metric), metric) for metric in others)]


def _learning_units(groups: Sequence[Group], metric: str) -> str:
    """What the values in which critics learn have to do with real rewards, where they are not the same."""
    found = {run.name: reward_transform(run)[:2] for run in _runs(groups) if metric in run.history}
    if all(one == (1.0, 0.0) for one in found.values()):
        return ""
    texts = {
        name: "a scale fitted on the data" if scale is None else f"times {scale:.4g}" + (f", {shift:+.4g}" if shift else "")
        for name, (scale, shift) in found.items()
    }
    if len(set(texts.values())) == 1:
        return f"In the rewards of learning, not real ones: {next(iter(texts.values()))}."
    return f"In the rewards of learning, not real ones: {'; '.join(f'{name} {text}' for name, text in texts.items())}."


def _title(name: str) -> str:
    words = name.replace("learning_rate_factor/", "learning rate factor, ").replace("_", " ")
    return words[:1].upper() + words[1:]


def _runs(groups: Sequence[Group]) -> list[LoggedRun]:
    return list({group.run.path: group.run for group in groups}.values())


def _metrics(groups: Sequence[Group], prefix: str) -> list[str]:
    return list(dict.fromkeys(name for run in _runs(groups) for name in run.metrics(prefix)))


def _lines(groups: Sequence[Group], metric: str, name: str = "") -> list[Line]:
    curves = {run.path: run.curve(metric) for run in _runs(groups) if metric in run.history}
    found = [
        Line(index, band(curves[group.run.path], group.members), name)
        for index, group in enumerate(groups)
        if group.run.path in curves
    ]
    return _with_points(found)


def _with_points(lines: Sequence[Line]) -> list[Line]:
    """The lines that have a point: members that diverge at once are never logged."""
    return [line for line in lines if len(line.band.positions)]


def _data_returns(groups: Sequence[Group]) -> tuple[str, dict[str, float]]:
    """The returns in the data, or of random actions, where they are those of all groups; before them why there are none."""
    plays = [random_play(run) for run in _runs(groups)]
    if known := [play.mean for play in plays if play is not None]:
        return "", {"random actions": float(np.mean(known))} if len(known) == len(plays) else {}
    found = [group.run.record.get("dataset") or {} for group in groups]
    if len({one.get("fingerprint") for one in found}) != 1 or "return_mean" not in found[0]:
        return "", {}
    if (whole := parts_of(groups[0].run)) is not None:
        cut = f"its {found[0]['episodes']:,} episodes are parts of {whole:,}, cut by gaps or bad rows"
        return f"The returns in the data are not drawn: {cut}, and evaluations are of whole episodes.", {}
    return "", {"mean in the data": float(found[0]["return_mean"]), "best in the data": float(found[0]["return_max"])}


def _references(groups: Sequence[Group], names: dict[str, str]) -> dict[str, float]:
    """Held-out figures that need no policy, where they are the same for all groups."""
    found = {text: list(_last_values(groups, HELD_OUT + name)) for text, name in names.items()}
    return {text: values[0] for text, values in found.items() if values and np.allclose(values, values[0])}


def _last_values(groups: Sequence[Group], metric: str) -> Iterator[float]:
    for run in _runs(groups):
        if metric in run.history:
            last = run.curve(metric).last()
            yield from last[~np.isnan(last)].tolist()
