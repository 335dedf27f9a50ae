"""Scores of several tasks on one scale."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from rl_training.analysis.logged_run import RETURN
from rl_training.analysis.scores.groups import Scored
from rl_training.envs.reference_scores import normalized_score, reference_of
from rl_training.errors import ConfigError

Normalization: TypeAlias = Literal["reference", "min-max"]
_CHOICES = ("auto", "reference", "min-max", "none")


@dataclass(frozen=True)
class Scale:
    """Scores by group and task, and how they were put on one scale."""

    values: Scored
    kind: Normalization | None = None  # None: as they are
    warnings: list[str] = field(default_factory=list)

    @property
    def comparable(self) -> bool:
        """Whether a difference means something beyond this comparison, as it does on one task whatever its unit."""
        return self.kind != "min-max" or all(len(group) == 1 for group in self.values.values())


def normalized(scores: Scored, normalize: str, *, metric: str, of_runs: bool) -> Scale:
    """Return scores in which tasks count alike: 0 to 100 between reference returns, or 0 to 1 between those compared.

    Scores that do not come from runs may be normalised already, so `auto` takes them as they are, with a warning where
    the tasks differ in scale by more than a factor of ten.
    """
    if normalize not in _CHOICES:
        raise ConfigError(f"--normalize {normalize!r}: must be one of {', '.join(_CHOICES)}")
    tasks = list(next(iter(scores.values())))
    unknown = [task for task in tasks if not _has_reference(task)]
    if normalize == "reference":
        if unknown or metric != RETURN:
            why = f"there are none for {unknown[0]}" if unknown else f"{metric} is no return"
            raise ConfigError(f"--normalize reference: needs reference returns, and {why}; use --normalize min-max or none")
        return _by_reference(scores)
    if normalize == "min-max":
        return _by_extremes(scores)
    if normalize == "none" or len(tasks) == 1 or not of_runs:
        return Scale(scores, None, _scale_warnings(scores))
    return _by_extremes(scores) if unknown or metric != RETURN else _by_reference(scores)


def _by_reference(scores: Scored) -> Scale:
    values = {
        name: {
            task: np.array([normalized_score(value, _env(task)) for value in runs.tolist()]) for task, runs in group.items()
        }
        for name, group in scores.items()
    }
    return Scale(values, "reference")


def _by_extremes(scores: Scored) -> Scale:
    spans = _spans(scores)
    values = {
        name: {task: (runs - spans[task][0]) / (np.subtract(*spans[task][::-1]) or 1.0) for task, runs in group.items()}
        for name, group in scores.items()
    }
    told = (
        "overall values are relative to the lowest and the highest score of each task, so they change with what is compared"
    )
    return Scale(values, "min-max", [told])


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
