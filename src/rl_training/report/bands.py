"""Curves of groups of members: a middle line with a band around it, thinned to what a page can hold."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.aggregates import cut
from rl_training.analysis.endings import ended_early
from rl_training.analysis.logged_run import DISTANCE, RETURN, Curve, LoggedRun
from rl_training.config.sweep import knob_text
from rl_training.output import printable

_MOST_NAMES = 4
MANY = 5  # members from which on the middle half says more than mean and extremes

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Group:
    """Members that differ by nothing but their seed: those of a run, or of one combination of a sweep."""

    run: LoggedRun
    label: str
    members: tuple[int, ...]  # columns of the run's curves
    knobs: dict[str, float]


@dataclass(frozen=True, eq=False)
class Band:
    """One metric of a group: at each position the members, a middle value, and the ends of a band."""

    positions: NDArray[np.int64]
    members: Numbers  # (positions, members), NaN for one that had stopped
    middle: Numbers
    low: Numbers
    high: Numbers
    ends: tuple[int, ...] = ()  # positions of the last values of members that ended before their curve

    def finite(self) -> "Band":
        """Return the points whose band is finite."""
        kept = np.isfinite([self.middle, self.low, self.high]).all(axis=0)
        summary = self.middle[kept], self.low[kept], self.high[kept]
        return Band(self.positions[kept], self.members[kept], *summary, self.ends)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many members have a value, at each position."""
        found: NDArray[np.int64] = (~np.isnan(self.members)).sum(axis=1, dtype=np.int64)
        return found

    @property
    def text(self) -> str:
        """What line and band are: of how many members, also where fewer are left towards the end."""
        total, counts = self.members.shape[1], self.counts
        if total == 1:
            return "one member"
        most, least = int(counts.max(initial=0)), int(counts.min(initial=total))
        known = f"{most} to {least} of " if least < most else f"{most} of " if most < total else ""
        members = f"{known}{total} members"
        if most == 1:
            return f"one of {total} members"
        if total < MANY:
            return f"mean of {members}, band from the lowest to the highest"
        return f"interquartile mean of {members}, band over the middle half"

    def thinned(self, most: int) -> "Band":
        """Return at most so many of the points, the first and the last among them; the band covers those left out."""
        count = len(self.positions)
        if count <= most:
            return self
        kept = np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
        low, high = np.minimum.reduceat(self.low, kept), np.maximum.reduceat(self.high, kept)
        return Band(self.positions[kept], self.members[kept], self.middle[kept], low, high, self.ends)


def band(curve: Curve, columns: Sequence[int]) -> Band:
    """Return the band of some members of a curve, where at least one of them has a value."""
    values = curve.values[:, list(columns)]
    present = ~np.isnan(values).all(axis=1)
    values = values[present]
    middle, low, high = _summaries(values).T
    return Band(curve.positions[present], values, middle, low, high, _ends(curve, columns))


def _ends(curve: Curve, columns: Sequence[int]) -> tuple[int, ...]:
    """Where members had their last value, if that is before the end of the curve."""
    known = [np.flatnonzero(~np.isnan(curve.values[:, column])) for column in columns]
    last = {int(curve.positions[own[-1]]) for own in known if len(own)}
    return tuple(sorted(last - {int(one) for one in curve.positions[-1:]}))


def summarize(values: Numbers) -> tuple[float, float, float]:
    """Return middle, low and high of values that are not NaN: mean and extremes, or of many the same of the middle half."""
    middle, low, high = _summaries(values[None])[0].tolist()
    return middle, low, high


def _summaries(values: Numbers) -> Numbers:
    """Middle, low and high of each row; what they are depends on the number of columns, so no curve changes it midway."""
    ordered, counts = np.sort(values, axis=1), (~np.isnan(values)).sum(axis=1)  # NaN is sorted last
    found = np.full((len(values), 3), np.nan)
    many = values.shape[1] >= MANY
    for count in np.unique(counts[counts > 0]):
        rows, left_out = counts == count, cut("iqm" if many else "mean", count)
        known = ordered[rows, :count]
        ends = (0.25, 0.75) if many else (0.0, 1.0)
        middle = known[:, left_out : count - left_out].mean(axis=1)
        with np.errstate(invalid="ignore"):  # between infinite values there is none
            found[rows] = np.column_stack((middle, *np.quantile(known, ends, axis=1)))
    return found


def groups_of(runs: Sequence[LoggedRun]) -> list[Group]:
    """Return the groups of some runs, labelled so that no two are alike."""
    found = []
    for run, name in zip(runs, distinct_names(runs), strict=True):
        by_knobs: dict[tuple[tuple[str, float], ...], list[int]] = {}
        for column, member in enumerate(run.seeds):
            by_knobs.setdefault(tuple(member_knobs(run, member).items()), []).append(column)
        for knobs, members in by_knobs.items():
            own = knob_text(_in_short(knobs, by_knobs))
            label = own if own and len(runs) == 1 else f"{name}: {own}" if own else name
            found.append(Group(run, label, tuple(members), dict(knobs)))
    return found


def _in_short(knobs: Iterable[tuple[str, float]], every: Iterable[Iterable[tuple[str, float]]]) -> dict[str, float]:
    """Knobs in six digits, as many as a search does not need, but those that would then read like another's in all."""
    known = {knob for own in every for knob in own}
    alike = Counter((name, f"{value:g}") for name, value in known)
    return {name: float(f"{value:g}") if alike[name, f"{value:g}"] == 1 else value for name, value in knobs}


def few_names(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    return ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def curves_text(groups: Sequence[Group]) -> str:
    """Return what the lines, bands and steps of curves are, in sentences."""
    metrics = {group.run.path: (group.run, main_metric(group.run)) for group in groups}
    curves = {path: run.curve(metric) for path, (run, metric) in metrics.items() if metric is not None}
    bands = [band(curves[group.run.path], group.members) for group in groups if group.run.path in curves]
    texts = list(dict.fromkeys(own.text for own in bands if len(own.positions)))
    lines = f"Line: {'; '.join(texts)}. " if texts not in ([], ["one member"]) else ""
    if early := [group.run for group in groups if ended_early(group.run)]:
        counted_last = (
            ", and in a final return with its last evaluation" if any(RETURN in run.history for run in early) else ""
        )
        lines += f"A member that diverged or stopped counts up to there, which a cross marks{counted_last}. "
    kinds: dict[str, list[str]] = {}
    for group in groups:
        kinds.setdefault(_steps(group.run), []).append(group.label)
    counted = [f"{kind} ({few_names(own)})" if len(kinds) > 1 else kind for kind, own in kinds.items()]
    return f"{lines}Steps are {'; '.join(counted)}."


def title_of(runs: Sequence[LoggedRun]) -> str:
    """Return what some runs are called together: by their names, or where they are many by the folder that holds them."""
    names, folder = distinct_names(runs), Path(os.path.commonpath([run.path.resolve() for run in runs])).name
    if len(names) <= _MOST_NAMES or not folder:
        return few_names(names)
    return f"{printable(folder)}: {len(names)} runs"


def main_metric(run: LoggedRun) -> str | None:
    """Return what is first to know of a run: the return, without any a figure on held-out rows, or a loss; None before it."""
    known = [RETURN, DISTANCE, *run.metrics("validation/"), *losses(run), *run.metrics("train/")]
    return next((name for name in known if name in run.history), None)


def losses(run: LoggedRun) -> list[str]:
    """Return the losses of training among the metrics of a run."""
    return [name for name in run.metrics("train/") if "loss" in name]


def _steps(run: LoggedRun) -> str:
    """What the steps of a run count."""
    if run.switch is not None:
        return "gradient steps up to the switch, and environment steps after it"
    return "environment steps" if "env_step" in run.history else "gradient steps"


def member_knobs(run: LoggedRun, member: int) -> dict[str, float]:
    """Return the knobs of a sweep that a member was trained with; empty without a sweep."""
    knobs = run.config.member_knobs
    return knobs[member] if member < len(knobs) else {}


def distinct_names(runs: Sequence[LoggedRun]) -> list[str]:
    """Return the name of each run, with as much of its path before it as tells it from the others."""
    parts = [run.path.resolve().parts for run in runs]
    names = [run.name for run in runs]
    for count in range(2, max(map(len, parts), default=0) + 1):
        if len(set(names)) == len(names):
            break
        longer = [printable("/".join(one[-count:])) for one in parts]
        names = [own if names.count(name) > 1 else name for own, name in zip(longer, names, strict=True)]
    return names
