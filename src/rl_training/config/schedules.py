"""Learning-rate schedules, one per parameter group; free of torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_serializer, model_validator

from rl_training.config.base import StrictModel

ScheduleName = Literal["constant", "linear", "cosine"]


class ScheduleConfig(StrictModel):
    """How a learning rate falls: from its full value to a share of it, over a share of the budget; then it stays there."""

    kind: ScheduleName
    """Shape of the descent."""
    over: float = Field(1.0, gt=0.0, le=1.0)
    """Share of the budget."""
    to: float = Field(0.0, ge=0.0, lt=1.0)
    """Final factor."""

    @model_validator(mode="after")
    def _something_to_shape(self) -> Self:
        if self.kind == "constant" and (self.over, self.to) != (1.0, 0.0):
            raise ValueError("`over` and `to` have no effect on a constant schedule")
        return self

    @model_serializer
    def _shortest(self) -> str | dict[str, Any]:
        """The name alone where the rest is as usual, as it is written."""
        values = {"kind": self.kind, "over": self.over, "to": self.to}
        return self.kind if (self.over, self.to) == (1.0, 0.0) else values


CONSTANT = ScheduleConfig.checked({"kind": "constant"})


def _by_name(value: Any) -> Any:
    if isinstance(value, str) and value not in get_args(ScheduleName):
        raise ValueError(f"must be one of {', '.join(get_args(ScheduleName))}, or {{kind: cosine, over: 0.5, to: 0.1}}")
    return {"kind": value} if isinstance(value, str) else value


Schedule = Annotated[ScheduleConfig, BeforeValidator(_by_name)]


class GroupSchedules(StrictModel):
    """A learning-rate schedule per parameter group."""

    actor: Schedule = CONSTANT
    critic: Schedule = CONSTANT
    value: Schedule = CONSTANT
    temperature: Schedule = CONSTANT
    multiplier: Schedule = CONSTANT


def for_all_groups(value: Any) -> Any:
    """Return the settings of `GroupSchedules` from one schedule for all groups, or from one per group."""
    if isinstance(value, Mapping) and not set(value) & set(ScheduleConfig.model_fields):
        return value
    if not isinstance(value, str | Mapping):
        return value
    return dict.fromkeys(GroupSchedules.model_fields, ScheduleConfig.checked(_by_name(value)))
