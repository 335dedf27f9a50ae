"""How an environment is made: its id, arguments, time limit and wrappers; free of Gymnasium."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from rl_training.config.base import StrictModel

_MAX_WORKERS, _LONGEST_ID = 1024, 200

WrapperName = Literal[
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "RepeatAction",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "StickyAction",
    "TimeAwareObservation",
]
"""Gymnasium's wrappers that take plain values and whose state begins anew with every reset, so that episodes repeat."""


def plain_values(value: Any) -> Any:
    """Return a value as it is stored with a run: maps from text, lists, numbers, text, true, false and null."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain_values(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(one) for one in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError("must be plain values, because they are stored with the run; in Python pass a function")


def _count_or_auto(value: Any) -> Any:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_WORKERS):
        return value
    raise ValueError(f"must be `auto` or a whole number from 0 to {_MAX_WORKERS}")


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class WrapperConfig(StrictModel):
    """A wrapper of Gymnasium around the environment."""

    name: WrapperName
    """Name of the wrapper."""
    kwargs: Annotated[dict[str, Any], BeforeValidator(plain_values)] = Field(default_factory=dict)
    """Its arguments."""


def _as_a_name(value: str) -> str:
    """Refuse what cannot be the id of an environment: it is part of the path of a run that has no other."""
    if not 0 < len(value) <= _LONGEST_ID or not value.isprintable() or not all(part.strip(".") for part in value.split("/")):
        raise ValueError("must be the id of an environment, such as Pendulum-v1")
    return value


EnvId = Annotated[str, AfterValidator(_as_a_name)]
EnvKwargs = Annotated[dict[str, Any], BeforeValidator(plain_values), Field(default_factory=dict)]
Workers = Annotated[int | Literal["auto"], BeforeValidator(_count_or_auto)]
Wrappers = Annotated[
    tuple[Annotated[WrapperConfig, BeforeValidator(_named)], ...], Field(default_factory=tuple, strict=False, max_length=20)
]
"""The innermost first; a wrapper without arguments may be given by its name alone."""
TimeLimit = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, eq=False)
class EnvSource:
    """All that makes an environment; in text it is its id."""

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None  # None is the limit it is registered with
    wrappers: tuple[WrapperConfig, ...] = ()
    imports: tuple[str, ...] = ()  # modules that were imported for it, named in messages

    def __str__(self) -> str:
        return self.env_id

    @property
    def making(self) -> str:
        """Return its arguments, time limit and wrappers in a line; `as registered` where there are none."""
        parts = (self.kwargs, self.max_episode_steps, *self.wrappers)
        return ", ".join(str(part) for part in parts if part) or "as registered"


EnvLike = str | EnvSource
"""The id of a registered environment, or how to make one."""


def env_source(env: EnvLike) -> EnvSource:
    """Return how to make an environment that may be given by its id alone."""
    return env if isinstance(env, EnvSource) else EnvSource(env)
