"""What can be set: every option with its default, its legal values and its sentence, in groups; free of torch."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import get_annotations
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from rl_training.config.base import StrictModel, limits
from rl_training.config.blocks import (
    AlgorithmKwargs,
    CollectionConfig,
    DatasetConfig,
    FileConfig,
    OfflineKwargs,
    PurelyOfflineKwargs,
    RewardConfig,
    RewardKwargs,
    ValidationConfig,
)
from rl_training.config.columns import ColumnMap
from rl_training.config.finetune import FinetuneConfig
from rl_training.config.parts import part_of
from rl_training.config.run import EarlyStoppingConfig, RunConfig
from rl_training.config.schedules import ScheduleConfig
from rl_training.config.shared_knobs import (
    CriticKnobs,
    CriticNetworkKnobs,
    GaussianNetworkKnobs,
    LearnerKnobs,
    NetworkKnobs,
    StochasticNetworkKnobs,
)
from rl_training.registry import REGISTRY, AlgorithmSpec

SHARED: Final[Mapping[type[StrictModel], str]] = MappingProxyType(
    {
        LearnerKnobs: "Every learner",
        CriticKnobs: "Learners with critics",
        NetworkKnobs: "Networks",
        CriticNetworkKnobs: "Networks of critics",
        StochasticNetworkKnobs: "Gaussian policy",
        GaussianNetworkKnobs: "Gaussian or deterministic policy",
        AlgorithmKwargs: "Batches",
        RewardKwargs: "Rewards",
        OfflineKwargs: "Data",
        PurelyOfflineKwargs: "Held-out data",
        CollectionConfig: "Collection",
    }
)
"""The groups under `algo_kwargs` that algorithms share, by the class that defines them."""

BLOCKS: Final[Mapping[type[StrictModel], str]] = MappingProxyType(
    {
        RewardConfig: "`algo_kwargs.reward`",
        DatasetConfig: "`algo_kwargs.dataset`",
        ValidationConfig: "`algo_kwargs.validation`",
        FileConfig: "Files",
        ColumnMap: "`columns`",
        RunConfig: "The run",
        ScheduleConfig: "`learning_rate_schedule`",
        EarlyStoppingConfig: "`early_stopping`",
        FinetuneConfig: "`finetune`",
    }
)
"""The other groups: the run, and the blocks inside it."""

_WORDS = {bool: "true, false", int: "integer", float: "number", str: "text", NoneType: "null", dict: "mapping"}
_SHORT = 30  # columns of a range worth showing


@dataclass(frozen=True)
class Option:
    """One key that may be set."""

    key: str
    default: Any  # as plain values
    legal: str
    text: str
    required: bool = False

    @property
    def shown(self) -> str:
        """The default as a config has it; a block whose keys have defaults of their own is `{}`."""
        if self.required:
            return "required"
        if isinstance(self.default, float):
            return f"{self.default:.4g}"
        if isinstance(self.default, dict):
            return "{}"
        return self.default if isinstance(self.default, str) else json.dumps(self.default)


def groups_of(model: type[StrictModel]) -> list[type[StrictModel]]:
    """Return the groups whose options a class has too, the nearest first."""
    return [base for base in model.__mro__[1:] if base in SHARED or base in BLOCKS]


def options(model: type[StrictModel], beside: Sequence[type[StrictModel]] = ()) -> list[Option]:
    """Return the options of a class that `beside` lacks, then those with another default than in the first that has them."""
    known = {name: field for base in reversed(beside) for name, field in base.model_fields.items()}
    ours = {name: _option(name, model.model_fields[name]) for name in _ordered(model)}
    changed = [name for name in ours if name in known and ours[name].default != _option(name, known[name]).default]
    return [*(option for name, option in ours.items() if name not in known), *(ours[name] for name in changed)]


def _ordered(model: type[StrictModel]) -> Iterator[str]:
    """The fields of a class, then those of its bases; pydantic has them the other way round."""
    names = dict.fromkeys(name for base in model.__mro__ for name in get_annotations(base))
    return (name for name in names if name in model.model_fields)


def _option(key: str, field: FieldInfo) -> Option:
    default = None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True))
    text = " ".join((field.description or "").split())
    return Option(key, default, _legal(field.annotation, field.metadata), text, field.is_required())


def specific(spec: AlgorithmSpec) -> list[Option]:
    """Return the options that an algorithm adds to the groups it shares, or whose default it changes."""
    return options(spec.config, groups_of(spec.config))


def parent(spec: AlgorithmSpec) -> AlgorithmSpec | None:
    """Return the nearest algorithm that this one is a variant of: it has all of its specific options."""
    learners = {part_of(other.config, LearnerKnobs): other for other in REGISTRY.values() if other is not spec}
    for found in (learners[base] for base in spec.config.__mro__ if base in learners):
        if {option.key for option in specific(found)} <= set(spec.config.model_fields):
            return found
    return None


def _legal(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What may be given for a value of this type, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [one for item in arguments[1:] for one in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _legal(arguments[0], inner)
    if origin in (Union, UnionType):
        return " or ".join(_legal(argument, metadata) for argument in arguments)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin is tuple:
        items = [_legal(argument) for argument in arguments if argument is not ...]
        return f"list of {items[0]}" if ... in arguments else f"[{', '.join(items)}]"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "block"
    word, bounds = _WORDS.get(origin or annotation, "block"), re.sub(r"\.0\b", "", limits(metadata))
    return f"{word} {bounds}" if bounds and len(bounds) < _SHORT and annotation in (int, float) else word
