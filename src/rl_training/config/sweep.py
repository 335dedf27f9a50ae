"""Several values of knobs in one run, each with every seed: a sweep of all combinations, or listed trials; free of torch."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, Strict

from rl_training.config.blocks import EVEN_VARIANCE, AlgorithmKwargs
from rl_training.config.parts import learner_knobs, part_of
from rl_training.config.shared_knobs import LearnerKnobs, check_sweepable

MAX_MEMBERS = 4096


def _as_list(sweep: Mapping[str, tuple[float, ...]] | None) -> list[dict[str, list[float]]] | None:
    """Serialize as a list: the order of the knobs sets that of the members, and a JSON object has none."""
    return None if sweep is None else [{name: list(values)} for name, values in sweep.items()]


Values = Annotated[tuple[Annotated[float, Strict()], ...], Field(strict=False)]
Sweep = Annotated[dict[str, Values], PlainSerializer(_as_list, return_type=list[Any])]
"""Values by knob, the first knob slowest; written to a file as a list of one-knob mappings."""
Trial = dict[str, Annotated[float, Strict()]]
Trials = Annotated[tuple[Trial, ...], Field(strict=False)]
"""Combinations of knobs, each listed."""


def read_sweep(value: Any, kwargs: AlgorithmKwargs) -> dict[str, Any]:
    """Return a sweep, passed as a mapping or as a list of them, after checking that every knob may differ between members."""
    parts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(part, Mapping) and part for part in parts) or not parts:
        raise ValueError("must be a mapping from knobs to lists of numbers, such as {expectile: [0.7, 0.9]}")
    pairs = [(str(name), _plain(values)) for part in parts for name, values in part.items()]
    sweep = dict(pairs)
    if len(sweep) != len(pairs):
        raise ValueError(f"names a knob twice: {', '.join(name for name, _ in pairs)}")
    check_sweepable(learner_knobs(kwargs), sweep, type(kwargs).model_fields)
    for name, values in sweep.items():
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"`{name}` = {values!r} is not legal: must be a list of numbers")
    return sweep


def read_trials(value: Any, kwargs: AlgorithmKwargs) -> list[dict[str, Any]]:
    """Return listed combinations, after checking that all have the same knobs, and that these may differ between members.

    The knobs of each are in the order of the algorithm, whatever order a file has them in.
    """
    if not isinstance(value, list | tuple) or not value or not all(isinstance(own, Mapping) and own for own in value):
        raise ValueError("must be a list of combinations of knobs, such as [{expectile: 0.7, beta: 3}, ...]")
    names = set(value[0])
    for number, own in enumerate(value):
        if set(own) != names:
            raise ValueError(f"number {number} has the knobs {', '.join(own)}, and number 0 {', '.join(value[0])}")
    check_sweepable(learner_knobs(kwargs), value[0], type(kwargs).model_fields)
    order = [name for name in type(kwargs).model_fields if name in names]
    return [{name: _plain(own[name]) for name in order} for own in value]


def _plain(values: Any) -> Any:
    return values.tolist() if type(values).__module__ == "numpy" else values


def combinations(sweep: Mapping[str, tuple[float, ...]] | None) -> list[dict[str, float]]:
    """Return every combination of the values, the first knob slowest; without a sweep there is one, which is empty."""
    sweep = sweep or {}
    return [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]


def knob_text(knobs: Mapping[str, float]) -> str:
    """Return `expectile=0.7, beta=3` for a member's own knobs; unequal ones never read the same."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in knobs.items())


def value_text(value: float) -> str:
    """Return a value in six digits if that is all of it, and otherwise in all its digits."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def check_sweep(sweep: Mapping[str, tuple[float, ...]], kwargs: AlgorithmKwargs, num_seeds: int) -> None:
    """Raise a ValueError for the first fault: a value that is not legal or does nothing, or too many members."""
    for name, values in sweep.items():
        if len(set(values)) != len(values):
            raise ValueError(f"`{name}` has the same value twice: {', '.join(map(str, values))}")
    _check_count(math.prod(len(values) for values in sweep.values()), num_seeds)
    _check_effect(combinations(sweep), kwargs)


def check_trials(trials: Sequence[Mapping[str, float]], kwargs: AlgorithmKwargs, num_seeds: int) -> None:
    """Raise a ValueError for the first fault, as for a sweep: members with the same knobs and seed would be one."""
    seen: dict[tuple[float, ...], int] = {}
    for number, own in enumerate(trials):
        first = seen.setdefault(tuple(own.values()), number)
        if first != number:
            raise ValueError(f"number {number} is the same as number {first}: {knob_text(own)}")
    _check_count(len(trials), num_seeds)
    _check_effect(trials, kwargs)


def _check_count(count: int, num_seeds: int) -> None:
    if count * num_seeds > MAX_MEMBERS:
        raise ValueError(f"{count:,} combinations x {num_seeds:,} seeds are too many members: at most {MAX_MEMBERS:,}")


def _check_effect(combined: Sequence[Mapping[str, float]], kwargs: AlgorithmKwargs) -> None:
    """Refuse a combination that is not legal, and a knob that does nothing."""
    knobs, fitted = part_of(type(kwargs), LearnerKnobs), kwargs.fitted(lambda: EVEN_VARIANCE)
    plain = {name: getattr(fitted, name) for name in knobs.model_fields}
    checked = [knobs.checked({**plain, **own}) for own in combined]
    for name in combined[0]:
        if name in checked[0].idle:
            raise ValueError(f"`{name}` would do nothing: {checked[0].idle[name]}")
