"""A comparison of groups of runs: aggregates with intervals, profiles, and what may be concluded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from rl_training.analysis.aggregates import Scores, Values, aggregate, optimality_gap, profile
from rl_training.analysis.bootstrap import (
    RESAMPLES,
    Interval,
    difference_interval,
    improvement_interval,
    interval,
    normal_quantile,
)
from rl_training.analysis.coverage import measured
from rl_training.analysis.logged_run import RETURN
from rl_training.analysis.paper import Kind, table
from rl_training.analysis.planning import can_be_shown, least_seeds, seeds_needed
from rl_training.analysis.scales import Normalization, Unit, failures_filled, normalized, units_of, unlike_scales
from rl_training.analysis.scores.arguments import read_groups
from rl_training.analysis.scores.directions import Direction, direction_of, refuse_turned
from rl_training.analysis.scores.groups import Choice, Groups, Scored
from rl_training.analysis.scores.paired import MeanGain, mean_gain
from rl_training.analysis.scores.tasks import other_names
from rl_training.analysis.verdict import Wording, conclusion, verdict
from rl_training.errors import ConfigError, did_you_mean
from rl_training.output import printable

Source: TypeAlias = Scores | Mapping[str, Scores] | str | Path | Sequence[str | Path]
_PROFILE_POINTS = 49


@dataclass(frozen=True)
class Cell:
    """The scores of a group on one task, or on all of them."""

    runs: int  # of the task; overall those of the task with the fewest
    most_runs: int  # of the task with the most
    iqm: Interval
    mean: float
    median: float


@dataclass(frozen=True)
class Pair:
    """One group beside another: how much higher its scores are, and how often its runs are better."""

    first: str
    second: str
    difference: Interval | None  # of the interquartile means; None where the scale of the tasks depends on what is compared
    improvement: Interval
    verdict: str  # better, worse, unclear; of a metric that does not tell how good a policy is larger, smaller, unclear
    seeds_needed: int | None  # per task and group to show a difference as measured; None if it is shown or cannot be told
    least_seeds: int | None  # without which no difference can be shown, however large; None if there are enough


@dataclass(frozen=True)
class Comparison:
    """Plain data: what `rl-training compare` prints and a report shows."""

    metric: str | None  # None for scores that were given
    by: str | None
    lower_is_better: bool
    direction: Direction  # which scores are good: higher or lower ones, or none where the metric is no score
    confidence: float
    normalization: Normalization | None  # of the overall values; None where scores are taken as they are
    normalization_by_task: Normalization | None  # of the values of single tasks
    units: dict[str, Unit | None]  # of `scores`, by group; None for scores of a file of which nobody told
    tasks: list[str]
    scores: Scored
    cells: dict[str, dict[str, Cell]]  # group -> task -> values, normalised if `normalization_by_task` says so
    overall: dict[str, Cell]  # group -> values over all tasks
    optimality_gap: dict[str, float]  # group -> distance from the reference; empty without references
    pairs: list[Pair]
    pairs_by_task: dict[str, list[Pair]]  # task -> the same pairs on it alone
    pair_confidence: float  # of the intervals of `pairs`, corrected for their number
    pair_confidence_by_task: float  # of those of `pairs_by_task`, corrected for the number of tasks too
    seed_by_seed: list[MeanGain]  # of groups that went on from others; at `confidence`
    thresholds: list[float]  # of the profiles
    profiles: dict[str, list[float]]  # group -> fraction of runs that are better than each threshold
    warnings: list[str]
    from_files: list[str]  # groups beside runs whose scores were read from files: `metric` and `by` say nothing of them
    conclusion: str
    coverage: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; bounds that are not known are null."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @property
    def cautions(self) -> list[str]:
        """The warnings as lines for people, whatever is in the paths that they name."""
        return [printable(f"warning: {text}") for text in self.warnings]

    def table(self, kind: Kind) -> str:
        """Return a table for a paper, `md`, `latex` or `csv`: IQM with interval and seeds by task, and the pairs."""
        return table(self, kind)

    def __str__(self) -> str:
        return "\n".join([*self.cautions, self.conclusion])


def compare(
    groups: Mapping[str, Source] | Sequence[str | Path] | str | Path,
    *,
    metric: str = RETURN,
    by: Literal["last", "best"] = "last",
    lower_is_better: bool = False,
    confidence: float = 0.95,
    normalize: Literal["auto", "reference", "min-max", "none"] = "auto",
    scores: Unit | None = None,
    against: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Return what may be concluded from the scores of groups of runs.

    Args:
        groups: For each name its scores (of one task, or a mapping from tasks to scores) or its run directories; or a
            list of paths as in `rl-training compare`.
        metric: The metric of runs that is compared.
        by: The `last` value of each run, or its `best`, which is optimistic.
        lower_is_better: Whether low values are good, for scores and for metrics whose direction is not known; that of
            returns, losses and distances is. Losses and distances on rows do not tell how good a policy is, and what
            critics expect is no score: they are called larger or smaller, not better.
        confidence: Of the intervals.
        normalize: How several tasks are put on one scale: by reference returns, by the lowest and highest score that is
            compared, or not at all. `auto` takes references where all tasks have them and the second otherwise; scores that
            do not come from runs are taken as they are. With `reference` values of single tasks are normalised too.
        scores: What scores that do not come from runs are: `returns`, or `normalized` already, so that those of runs are put
            on their scale; by default unknown.
        against: The group that all others are compared with, or `all` for every pair; by default the first.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.
    """
    normal_quantile(confidence)  # refuses what is not a confidence
    direction = direction_of(metric, lower_is_better=lower_is_better, by=by)
    found = read_groups(groups, Choice(metric, by, direction == "lower"))
    if lower_is_better and found.any_runs:
        refuse_turned(metric)
    lower_is_better = direction == "lower"
    common = _common_tasks(found)
    units = units_of(common, found.given, scores)
    values = failures_filled(common, units, lower_is_better=lower_is_better)
    pairs = _pairs(list(values), against and printable(against))
    tasks = list(next(iter(values.values())))
    scale = normalized(values, normalize, metric=metric, units=units)
    joint = {name: [scale.values[name][task] for task in tasks] for name in values}
    wording = Wording(metric, direction)
    judge = _Judge(wording, confidence, resamples, seed)
    comparisons = (len(pairs), len(pairs) * len(tasks))  # over all tasks, and by task
    strict, strictest = (replace(judge, confidence=1.0 - (1.0 - confidence) / count) for count in comparisons)
    thresholds = _thresholds([task for group in joint.values() for task in group])
    compared = [strict.pair(names, joint, comparable=scale.comparable) for names in pairs]
    by_task = {
        task: [strictest.pair(names, {name: [scale.by_task[name][task]] for name in names}) for names in pairs]
        for task in tasks
    }
    gains = [one for own in found.gains if own.task in tasks and (one := mean_gain(own, confidence)) is not None]
    told = [one.sentence(confidence, turned=(one.second, one.first) in pairs) for one in gains]
    reservations = [*found.reservations, *told, *unlike_scales(values, units, found.origins)]
    return Comparison(
        metric=metric if found.any_runs else None,
        by=by if found.any_runs else None,
        lower_is_better=lower_is_better,
        direction=direction,
        confidence=confidence,
        normalization=scale.kind,
        normalization_by_task=scale.kind_by_task,
        units=dict(units),
        tasks=tasks,
        scores=values,
        cells={name: {task: judge.cell([group[task]]) for task in tasks} for name, group in scale.by_task.items()},
        overall={name: judge.cell(group) for name, group in joint.items()},
        optimality_gap={name: optimality_gap(group, 100.0) for name, group in joint.items() if scale.kind == "reference"},
        pairs=compared,
        pairs_by_task=by_task,
        pair_confidence=strict.confidence,
        pair_confidence_by_task=strictest.confidence,
        seed_by_seed=gains,
        thresholds=thresholds.tolist(),
        profiles={name: judge.profile(group, thresholds) for name, group in joint.items()},
        warnings=[*found.warnings, *scale.warnings],
        from_files=found.from_files if found.any_runs else [],
        conclusion=conclusion(compared, by_task, values, wording, reservations, confidence=confidence, lucky=found.lucky),
        coverage=measured(),
    )


def _common_tasks(found: Groups) -> Scored:
    """The scores on the tasks that all groups have, in one order; a warning for those that are left out."""
    scores = found.scores
    if len(scores) < 2:
        only = f"there is only one group ({', '.join(scores) or 'none'}); name two or more to compare"
        raise ConfigError("; ".join([only, *found.left_out]))
    common = [task for task in next(iter(scores.values())) if all(task in group for group in scores.values())]
    if not common:
        has = "; ".join(f"{name}: {', '.join(group)}" for name, group in scores.items())
        if found.by_data:
            way_out = "without an environment the data is the task, so train the groups on the same"
            raise ConfigError(f"not comparable: trained on different data ({has}); {way_out}")
        raise ConfigError(f"the groups have no task in common ({has}); {_way_to_common_tasks(found)}")
    for name, group in scores.items():
        if left := [task for task in group if task not in common]:
            found.warnings.append(f"{', '.join(left)}: only some groups have it, so it is left out (here of {name})")
    return {name: {task: group[task] for task in common} for name, group in scores.items()}


def _way_to_common_tasks(found: Groups) -> str:
    """What to do about groups that share no task: plain scores may be called otherwise, runs may belong together."""
    if not found.given:
        return "runs of one algorithm belong together by NAME=PATH,PATH"
    if not found.sources:
        return "call each task the same in all files"
    task = found.tasks[0]
    names = [task, *(name for name, meant in other_names(found.sources, found.tasks).items() if meant == task)]
    return f"in a file of scores call a task as runs do, here {' or '.join(f'`{name}`' for name in names)}"


def _pairs(names: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    """The pairs to compare: all others with one group, or every pair."""
    if against == "all":
        return [(first, second) for place, first in enumerate(names) for second in names[place + 1 :]]
    if against is not None and against not in names:
        raise ConfigError(
            f"--against {against}: is no group.{did_you_mean(against, names)} There are {', '.join(names)}, and `all`"
        )
    base = names[0] if against is None else against
    return [(base, name) if against is None else (name, base) for name in names if name != base]


@dataclass(frozen=True)
class _Judge:
    """Turns scores into cells and pairs."""

    wording: Wording
    confidence: float
    resamples: int
    seed: int

    @property
    def lower_is_better(self) -> bool:
        return self.wording.direction == "lower"

    def cell(self, tasks: Sequence[Values]) -> Cell:
        found = interval(tasks, confidence=self.confidence, resamples=self.resamples, seed=self.seed)
        counts = [len(task) for task in tasks]
        return Cell(min(counts), max(counts), found, aggregate(tasks, "mean"), aggregate(tasks, "median"))

    def pair(self, names: tuple[str, str], groups: Mapping[str, Sequence[Values]], *, comparable: bool = True) -> Pair:
        first, second = (groups[name] for name in names)
        better, worse = (second, first) if self.lower_is_better else (first, second)
        improvement = improvement_interval(better, worse, confidence=self.confidence)
        least = None if can_be_shown(first, second, self.confidence) else least_seeds(len(first), self.confidence)
        if not comparable:
            return Pair(*names, None, improvement, self._verdict(None, improvement), None, least)
        difference = difference_interval(first, second, confidence=self.confidence, resamples=self.resamples, seed=self.seed)
        judged = self._verdict(difference, improvement)
        ahead = -difference.estimate if self.lower_is_better else difference.estimate
        agree = ahead * (improvement.estimate - 0.5) > 0.0  # otherwise more seeds would show nothing
        needed = seeds_needed(first, second, improvement.estimate, self.confidence) if agree and judged == "unclear" else None
        return Pair(*names, difference, improvement, judged, needed and max(needed, least or 0), least)

    def profile(self, tasks: Sequence[Values], thresholds: Values) -> list[float]:
        sign = -1.0 if self.lower_is_better else 1.0
        found: list[float] = profile([sign * task for task in tasks], sign * thresholds).tolist()
        return found

    def _verdict(self, difference: Interval | None, improvement: Interval) -> str:
        """The verdict, in words that claim no more than the metric tells."""
        return self.wording.word(verdict(difference, improvement, lower_is_better=self.lower_is_better))


def _thresholds(tasks: Sequence[Values]) -> Values:
    joined = np.concatenate(tasks)
    return np.linspace(joined.min(), joined.max(), _PROFILE_POINTS)


def _plain(value: Any) -> Any:
    """Plain values of JSON: lists for arrays, objects for intervals, null for NaN."""
    if isinstance(value, Interval):
        return {name: _plain(number) for name, number in value._asdict().items()}
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value
