"""The column map of a table, as users write it; free of torch."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from rl_training.config.base import StrictModel


def _as_entries(value: Any) -> Any:
    """Texts, and expressions under a new name, one entry each; a text or a mapping alone is a list of its own."""
    entries: list[str | dict[str, str]] = []
    for one in [value] if isinstance(value, str | Mapping) else value if isinstance(value, list | tuple) else [None]:
        if isinstance(one, str):
            entries.append(one)
        elif isinstance(one, Mapping) and all(isinstance(text, str) for pair in one.items() for text in pair):
            entries += [{name: text} for name, text in one.items()]
        else:
            raise ValueError("must be names, patterns or expressions, each alone or under a new name: {error: T1 - TSP1}")
    return tuple(entries)


Entries = Annotated[tuple[str | dict[str, str], ...], BeforeValidator(_as_entries)]
"""Columns in the order the policy will see them: names, patterns and expressions; a mapping gives them new names."""


class ColumnMap(StrictModel):
    """The columns of a log, one row per time step: names, patterns such as `obs_*`, or expressions such as `T1 - TSP1`."""

    observations: Entries = Field(min_length=1)
    """Observation columns; a pattern selects all matching columns, numbered ones in numerical order; `{error: T1 - TSP1}`
    is a computed one with a name."""
    actions: Entries = Field(min_length=1)
    """Action columns."""
    reward: str
    """Reward of the row's observation and action, such as `-abs(T1 - TSP1)`."""
    next_observations: Entries = ()
    """Next observations, if the log has them; otherwise the following row."""
    next_actions: Entries = ()
    """Next actions, if the log has them."""
    episode: str | None = None
    """Column whose value changes from one episode to the next."""
    time: str | None = None
    """Number or date that orders the rows of an episode; a large gap cuts the episode."""
    terminal: str | None = None
    """True end of an episode: no value follows; a column, or a condition such as `T1 > 90`."""
    done: str | None = None
    """End of an episode: a true one, unless `timeout` says otherwise."""
    timeout: str | None = None
    """End by a time limit: the future still counts."""

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, values: Any) -> Any:
        if isinstance(values, str):
            columns = "{observations: ..., actions: ..., reward: ...}"
            raise ValueError(f"must be the columns themselves, {columns}; a file of them is what `--columns` takes")
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
