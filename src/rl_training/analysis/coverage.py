"""How often the intervals of `bootstrap` cover the truth, measured in simulated experiments where the truth is known.

`python -m benchmarks.coverage` measures it and writes the table that is packaged; `rl-training compare` prints it.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from rl_training.analysis.aggregates import Values, aggregate, probability_of_improvement
from rl_training.analysis.bootstrap import Interval, difference_interval, improvement_interval, interval

TABLE: Final = "coverage.json"
RUNS: Final = (3, 5, 10, 30)
_TRUTH_RUNS = 300_000

Draw: TypeAlias = Callable[[np.random.Generator, int], Values]
"""Returns scores (tasks, runs) of a simulated group."""


def _normal(mean: float, spread: float) -> Draw:
    return lambda generator, runs: generator.normal(mean, spread, (1, runs))


def _skewed(mean: float, spread: float) -> Draw:
    return lambda generator, runs: np.exp(generator.normal(mean, spread, (1, runs)))


def _failing(share: float) -> Draw:
    """Runs that reach about 90, of which a share fails at about 10."""

    def draw(generator: np.random.Generator, runs: int) -> Values:
        failed = generator.random((1, runs)) < share
        return np.where(failed, generator.normal(10.0, 5.0, (1, runs)), generator.normal(90.0, 8.0, (1, runs)))

    return draw


def _bounded(first: float, second: float) -> Draw:
    """Scores between 0 and 100, crowded at one end."""
    return lambda generator, runs: 100.0 * generator.beta(first, second, (1, runs))


def _counts(low: int, high: int) -> Draw:
    """Whole numbers, such as goals reached: many scores are equal."""
    return lambda generator, runs: generator.integers(low, high, (1, runs)).astype(np.float64)


def _tasks(*draws: Draw) -> Draw:
    return lambda generator, runs: np.concatenate([draw(generator, runs) for draw in draws])


_UNIFORM: Final = _bounded(1, 1)
SHAPES: Final[Mapping[str, tuple[Draw, Draw]]] = MappingProxyType(
    {
        "normal": (_normal(120, 20), _normal(100, 20)),
        "far apart": (_normal(160, 20), _normal(100, 20)),
        "no difference": (_UNIFORM, _UNIFORM),
        "unequal spread": (_normal(110, 5), _normal(100, 30)),
        "skewed": (_skewed(0.8, 1.0), _skewed(0.0, 1.0)),
        "one in five fails": (_failing(0.2), _failing(0.4)),
        "one in three fails": (_failing(0.35), _normal(60, 15)),
        "near a bound": (_bounded(5, 1), _bounded(3, 2)),
        "equal scores": (_counts(3, 8), _counts(0, 6)),
        "four tasks": (
            _tasks(_normal(60, 10), _failing(0.2), _skewed(4.0, 0.5), _bounded(5, 1)),
            _tasks(_normal(50, 10), _failing(0.3), _skewed(4.0, 0.5), _bounded(3, 1)),
        ),
        "six tasks of different scale": (
            _tasks(*(_normal(10.0 * mean, spread) for mean, spread in zip(range(1, 7), (1, 3, 5, 10, 20, 30), strict=True))),
            _tasks(*(_normal(9.0 * mean, spread) for mean, spread in zip(range(1, 7), (2, 2, 4, 15, 20, 20), strict=True))),
        ),
    }
)
"""What simulated scores look like: those of a group, and of one that it is compared with."""


def _iqm(scores: Values, _others: Values, resamples: int, seed: int) -> Interval:
    return interval(scores, resamples=resamples, seed=seed)


def _percentile(scores: Values, _others: Values, resamples: int, seed: int) -> Interval:
    return interval(scores, method="percentile", resamples=resamples, seed=seed)


def _difference(scores: Values, others: Values, resamples: int, seed: int) -> Interval:
    return difference_interval(scores, others, resamples=resamples, seed=seed)


def _improvement(scores: Values, others: Values, _resamples: int, _seed: int) -> Interval:
    return improvement_interval(scores, others)


KINDS: Final = MappingProxyType(
    {"iqm": _iqm, "iqm, plain percentiles": _percentile, "difference": _difference, "improvement": _improvement}
)
"""The kinds of 95 % intervals whose coverage is measured."""


def coverage(kind: str, shape: str, runs: int, experiments: int = 1000, resamples: int = 2000, seed: int = 0) -> float:
    """Return the share of simulated experiments with so many runs per task in which a 95 % interval covers the truth."""
    generator = np.random.default_rng([seed, runs, list(SHAPES).index(shape)])
    group, other = SHAPES[shape]
    target, covered = truth(kind, shape), 0
    for experiment in range(experiments):
        found = KINDS[kind](group(generator, runs), other(generator, runs), resamples, experiment)
        covered += not found.excludes(target)
    return covered / experiments


@cache
def truth(kind: str, shape: str) -> float:
    """Return the value that intervals should cover, from so many runs that its error does not matter."""
    generator, exact = np.random.default_rng(1), {"difference": 0.0, "improvement": 0.5}
    group, other = SHAPES[shape]
    if group is other and kind in exact:  # intervals may end exactly there
        return exact[kind]
    scores, others = (draw(generator, _TRUTH_RUNS) for draw in (group, other))
    if kind == "improvement":
        return probability_of_improvement(scores, others)
    return aggregate(scores) - (aggregate(others) if kind == "difference" else 0.0)


@cache
def measured() -> dict[str, Any]:
    """Return the packaged table: the command, its settings, and `coverage[kind][runs][shape]`."""
    text = resources.files("rl_training").joinpath("assets", TABLE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
