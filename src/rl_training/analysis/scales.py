"""Scores of several tasks on one scale."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np

from rl_training.analysis.aggregates import Values
from rl_training.analysis.logged_run import RETURN
from rl_training.analysis.scores.groups import Scored
from rl_training.envs.reference_scores import normalized_score, reference_of
from rl_training.errors import ConfigError

Normalization: TypeAlias = Literal["reference", "min-max"]
Unit: TypeAlias = Literal["returns", "normalized"]
Units: TypeAlias = Mapping[str, Unit | None]
"""Of the scores of each group; None where nobody told."""
SCALES: Final = {
    "reference": "0 is the reference minimum, 100 its maximum",
    "min-max": "0 is the lowest score, 1 the highest",
}
_CHOICES = ("auto", "reference", "min-max", "none")
_UNITS = ("returns", "normalized")
_LIKE_NORMALISED = (-10.0, 160.0)  # where normalised scores lie, nearly all
_OTHER_ORDER = 10.0


@dataclass(frozen=True)
class Scale:
    """Scores by group and task, and how they were put on one scale."""

    values: Scored
    by_task: Scored  # what is shown of single tasks: in their units, unless the references were asked for
    kind: Normalization | None = None  # None: as they are
    warnings: list[str] = field(default_factory=list)

    @property
    def comparable(self) -> bool:
        """Whether a difference means something beyond this comparison, as it does on one task whatever its unit."""
        return self.kind != "min-max" or all(len(group) == 1 for group in self.values.values())

    @property
    def kind_by_task(self) -> Normalization | None:
        """How what is shown of single tasks was normalised."""
        return self.kind if self.by_task is self.values else None


def units_of(names: Iterable[str], given: Collection[str], told: str | None) -> Units:
    """Return the unit of each group's scores: of those that were given, and are not of runs, what was told, if anything."""
    if told is not None and told not in _UNITS:
        raise ConfigError(f"--scores {told!r}: must be one of {', '.join(_UNITS)}")
    if told is not None and not given:
        raise ConfigError(f"--scores {told}: is for scores from files; these are returns of runs, whose unit is known")
    return {name: told if name in given else "returns" for name in names}  # type: ignore[misc]


def failures_filled(scores: Scored, units: Units, *, lower_is_better: bool) -> Scored:
    """Return scores in which members that diverged before they had any (NaN) have the worst of all on their task."""
    worst = np.nanmax if lower_is_better else np.nanmin

    def filled(name: str, task: str, own: Values) -> Values:
        if not np.isnan(own).any():
            return own
        raw = units[name] != "normalized"
        alike = np.concatenate([scores[one][task] for one in scores if (units[one] != "normalized") == raw])
        if np.isnan(alike).all():
            raise ConfigError(
                f"{name}: every member diverged on {task} before any evaluation, so there is nothing to compare"
            )
        return np.where(np.isnan(own), worst(alike), own)

    return {name: {task: filled(name, task, own) for task, own in tasks.items()} for name, tasks in scores.items()}


def normalized(scores: Scored, normalize: str, *, metric: str, units: Units) -> Scale:
    """Return scores in which tasks count alike: 0 to 100 between reference returns, or 0 to 1 between those compared.

    Scores that do not come from runs may be normalised already, so `auto` takes them as they are, with a warning where
    the tasks differ in scale by more than a factor of ten. Where some are said to be, all others are put on their scale.
    """
    if normalize not in _CHOICES:
        raise ConfigError(f"--normalize {normalize!r}: must be one of {', '.join(_CHOICES)}")
    tasks = list(next(iter(scores.values())))
    some = "normalized" in units.values()
    if some and normalize not in ("auto", "reference"):
        raise ConfigError(f"--normalize {normalize}: scores that are normalised keep their scale; leave it out")
    raw = [name for name in scores if units[name] != "normalized"]
    unknown = [task for task in tasks if not _has_reference(task)] if raw else []
    if normalize == "reference" or some:
        if unknown or (raw and metric != RETURN):
            why = f"there are none for {unknown[0]}" if unknown else f"{metric} is no return"
            asked = "--scores normalized" if some else "--normalize reference"
            way_out = "the groups cannot be put on one scale" if some else "use --normalize min-max or none"
            raise ConfigError(f"{asked}: needs reference returns, and {why}; {way_out}")
        values = _by_reference(scores, raw)
        return Scale(values, values, "reference")
    if normalize == "min-max":
        return _by_extremes(scores)
    if normalize == "none" or len(tasks) == 1 or None in units.values():
        return Scale(scores, scores, None, _scale_warnings(scores))
    return _by_extremes(scores) if unknown or metric != RETURN else Scale(_by_reference(scores, raw), scores, "reference")


def unlike_scales(scores: Scored, units: Units, origins: Mapping[str, Path]) -> list[str]:
    """Return a reservation for each group of unknown scale whose scores may be normalised beside returns that are not.

    What one file holds is taken to be on one scale. Ordinary returns are not doubted: on tasks with reference returns they
    exceed what a normalised score can be, and elsewhere the others are not of another order.
    """
    found = []
    for name in (name for name in scores if units[name] is None):
        beside = [one for one in scores if units[one] or origins.get(one) != origins.get(name)]
        doubted = [
            one
            for one in beside
            if any(_unlike(scores[name][task], scores[one][task], task, units[one]) for task in scores[name])
        ]
        if doubted:
            others = (
                f"those of {', '.join(doubted)} {'returns' if all(units[one] for one in doubted) else 'of another order'}"
            )
            found.append(
                f"Scores of {name} look normalised (0 to 100) and {others}, so two scales may be compared here: say "
                "which with --scores normalized, or --scores returns."
            )
    return found


def _unlike(scores: Values, others: Values, task: str, unit: Unit | None) -> bool:
    """Whether some scores may be normalised while others are not."""
    low, high = _LIKE_NORMALISED
    if not (low <= scores.min() and scores.max() <= high):
        return False
    if unit is not None and _has_reference(task):
        _, lowest, highest = reference_of(_env(task))
        possible = scores.max() <= highest + 0.2 * (highest - lowest)
        return highest > high or not possible  # on a task of small returns those that are possible are taken as such
    return bool(np.abs(others).min() >= _OTHER_ORDER * max(np.abs(scores).max(), 1.0))


def _by_reference(scores: Scored, raw: Collection[str]) -> Scored:
    """The scores with those of some groups, which are returns, normalised."""
    return {
        name: {
            task: np.array([normalized_score(value, _env(task)) for value in runs.tolist()]) if name in raw else runs
            for task, runs in group.items()
        }
        for name, group in scores.items()
    }


def _by_extremes(scores: Scored) -> Scale:
    spans = _spans(scores)
    values = {
        name: {task: (runs - spans[task][0]) / (np.subtract(*spans[task][::-1]) or 1.0) for task, runs in group.items()}
        for name, group in scores.items()
    }
    told = (
        "overall values are relative to the lowest and the highest score of each task, so they change with what is compared"
    )
    return Scale(values, scores, "min-max", [told])


def _has_reference(task: str) -> bool:
    try:
        reference_of(_env(task))
    except ConfigError:
        return False
    return True


def _env(task: str) -> str:
    """The environment of a task, which may name its data too."""
    return task.partition(" ")[0]


def _spans(scores: Scored) -> Mapping[str, tuple[float, float]]:
    """The lowest and the highest score on each task."""
    tasks = next(iter(scores.values()))
    joined = {task: np.concatenate([group[task] for group in scores.values()]) for task in tasks}
    return {task: (float(runs.min()), float(runs.max())) for task, runs in joined.items()}


def _scale_warnings(scores: Scored) -> list[str]:
    sizes = {task: max(map(abs, span)) for task, span in _spans(scores).items()}
    large, small = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
    if sizes[large] <= 10.0 * sizes[small]:
        return []
    return [
        f"{large} and {small} differ in scale, so the first decides the overall values; pass --normalize min-max or reference"
    ]
