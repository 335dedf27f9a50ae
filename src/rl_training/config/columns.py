"""The column map of a table, as users write it; free of torch."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from rl_training.config.base import StrictModel

Names = Annotated[tuple[str, ...], Field(strict=False), BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]
"""Names or patterns such as `obs_*`, in the order the policy will see them."""


class ColumnMap(StrictModel):
    """The columns of a log, one row per time step."""

    observations: Names
    """Observation columns; a pattern selects all matching columns, numbered ones in numerical order."""
    actions: Names
    """Action columns."""
    reward: str
    """Reward of the row's observation and action."""
    next_observations: Names = ()
    """Next observations, if the log has them; otherwise the following row."""
    next_actions: Names = ()
    """Next actions, if the log has them."""
    episode: str | None = None
    """Column whose value changes from one episode to the next."""
    time: str | None = None
    """Number or ISO date that orders the rows of an episode; a large gap cuts the episode."""
    terminal: str | None = None
    """True end of an episode: no value follows."""
    done: str | None = None
    """End of an episode: a true one, unless `timeout` says otherwise."""
    timeout: str | None = None
    """End by a time limit: the future still counts."""

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        renamed = {OTHER_NAMES.get(name, name): value for name, value in values.items()}
        if len(renamed) != len(values):
            raise ValueError("the same column is set twice, under two names")
        return renamed


OTHER_NAMES = {
    **dict.fromkeys(("observation", "obs"), "observations"),
    **dict.fromkeys(("action", "acts"), "actions"),
    **dict.fromkeys(("rewards",), "reward"),
    **dict.fromkeys(("next_observation", "next_obs"), "next_observations"),
    **dict.fromkeys(("episode_id", "episodes"), "episode"),
    **dict.fromkeys(("timestamp",), "time"),
    **dict.fromkeys(("terminals", "terminated"), "terminal"),
    **dict.fromkeys(("dones",), "done"),
    **dict.fromkeys(("timeouts", "truncated"), "timeout"),
}
