"""The parts of an algorithm's settings: those of its learner and those of its networks; free of torch."""

from typing import TypeVar

from rl_training.config.base import StrictModel
from rl_training.config.blocks import AlgorithmKwargs
from rl_training.config.shared_knobs import LearnerKnobs

PartT = TypeVar("PartT", bound=StrictModel)


def part_of(kwargs: type[AlgorithmKwargs], kind: type[PartT]) -> type[PartT]:
    """Return the settings of one kind among all of an algorithm's: those of its learner, or those of its networks."""
    return next(base for base in kwargs.__mro__ if issubclass(base, kind) and not issubclass(base, AlgorithmKwargs))


def without_effect(kwargs: AlgorithmKwargs) -> dict[str, str]:
    """Return the settings that differ from their defaults and do nothing given the others, each with the reason."""
    defaults, idle = type(kwargs).model_fields, learner_knobs(kwargs).idle
    return {name: reason for name, reason in idle.items() if getattr(kwargs, name) != defaults[name].default}


def learner_knobs(kwargs: AlgorithmKwargs) -> LearnerKnobs:
    """Return the learner's part of checked settings; an `auto` that waits for data stays."""
    part = part_of(type(kwargs), LearnerKnobs)
    return part.model_construct(**{name: getattr(kwargs, name) for name in part.model_fields})
