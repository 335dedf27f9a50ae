"""The `finetune` block: how an offline run continues in its environment, and the knobs that change there; free of torch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from rl_training.config.blocks import EVEN_VARIANCE, AlgorithmKwargs, CollectionConfig
from rl_training.config.environment import EnvId, EnvKwargs, TimeLimit, Wrappers
from rl_training.config.parts import learner_knobs, part_of
from rl_training.config.shared_knobs import LearnerKnobs, NetworkKnobs
from rl_training.errors import ConfigError, did_you_mean

Knobs = TypeVar("Knobs", LearnerKnobs, NetworkKnobs)


RHYTHM = ("eval_interval", "eval_episodes", "log_interval", "checkpoint_interval")  # of a run; a finetune may have its own


@dataclass(frozen=True)
class Rhythm:
    """How often a phase is evaluated, in how many episodes, logged and saved; intervals count in its own unit."""

    eval_interval: int
    eval_episodes: int
    log_interval: int
    checkpoint_interval: int

    @property
    def intervals(self) -> tuple[int, int, int]:
        """After how many steps something may be due."""
        return self.log_interval, self.eval_interval, self.checkpoint_interval


@dataclass(frozen=True)
class Change:
    """What becomes of a knob online: `end` at once or, if it `moves`, linearly from `start` (None: its offline value).

    It moves over a share of the phase, and then stays.
    """

    end: Any
    start: Any = None
    moves: bool = False
    over: float = 1.0

    def at(self, done: float, offline: Any) -> Any:
        """Return the value once a share of the phase is done, given the value of the offline phase."""
        if not self.moves:
            return self.end
        start = offline if self.start is None else self.start
        return start + (self.end - start) * min(done / self.over, 1.0)


def _plain(value: Any) -> Any:
    """Check the form of a change, and turn numpy numbers into plain ones; ranges are checked with the other knobs."""
    if isinstance(value, Mapping):
        if "to" not in value or not set(value) <= {"from", "to", "over"}:
            raise ValueError("must be a value, or {from: a, to: b, over: share} where `from` and `over` may be left out")
        over = value.get("over", 1.0)
        if isinstance(over, bool) or not isinstance(over, int | float) or not 0.0 < over <= 1.0:
            raise ValueError(f"`over` = {over!r} is not legal: must be a number > 0 and <= 1")
        return {key: _plain(one) for key, one in value.items()}
    return value.tolist() if type(value).__module__ == "numpy" else value


class FinetuneConfig(CollectionConfig):
    """How an offline run continues in its environment."""

    env_steps: int = Field(ge=1)
    """Environment steps of the online phase."""
    env_id: EnvId | None = None
    """Gymnasium environment of the online phase; null is that of the run. The policy keeps the bounds it was trained with."""
    env_kwargs: EnvKwargs
    """Arguments of this environment."""
    max_episode_steps: TimeLimit | None = None
    """Most steps of an episode in this environment; null is the limit it is registered with."""
    env_wrappers: Wrappers
    """Wrappers around this environment."""
    from_step: int | None = Field(None, ge=1)
    """Gradient step at which the online phase begins; null is the end of the offline budget."""
    eval_interval: int | None = Field(None, ge=1)
    """Environment steps between evaluations; null is the run's number."""
    eval_episodes: int | None = Field(None, ge=1, le=10_000)
    """Episodes per evaluation and member; null is the run's number."""
    log_interval: int | None = Field(None, ge=1)
    """Environment steps between metric rows; null is the run's number."""
    checkpoint_interval: int | None = Field(None, ge=1)
    """Environment steps between checkpoints; null is the run's number."""
    learning_starts: int = Field(0, ge=0)
    """Environment steps before the first update; the policy acts from the start."""
    replay: Literal["mixed", "append", "fresh"] = "mixed"
    """`mixed`: an exact share of every batch is prior data; `append`: prior and fresh data are one pool; `fresh`: prior data
    is dropped."""
    prior_ratio: float = Field(0.5, ge=0.0, le=1.0)
    """Share of prior data in a mixed batch, rounded to whole rows."""
    prior_ratio_end: float | None = Field(None, ge=0.0, le=1.0)
    """Final share of prior data, approached linearly over the online phase; null keeps it constant."""
    learning_rate_factor: float = Field(1.0, gt=0.0, le=1.0)
    """Constant factor on every learning rate online; the schedules end with the offline phase."""
    algo_kwargs: dict[str, Annotated[Any, BeforeValidator(_plain)]] = Field(default_factory=dict)
    """Knobs with another value online; {from: a, to: b, over: 0.5} moves one linearly over half of the phase. `from` is by
    default its offline value, `over` the whole phase."""

    @model_validator(mode="after")
    def _describes_its_own(self) -> Self:
        if self.env_id is None and (self.env_kwargs or self.max_episode_steps or self.env_wrappers):
            raise ValueError("`env_kwargs`, `max_episode_steps` and `env_wrappers` describe `finetune.env_id`: set it too")
        return self

    @property
    def changes(self) -> dict[str, Change]:
        """The knobs that change online."""
        return {
            name: _move(value) if isinstance(value, Mapping) else Change(value) for name, value in self.algo_kwargs.items()
        }

    @property
    def spans_the_phase(self) -> bool:
        """Whether anything moves over the whole online phase, so that its length cannot change any more."""
        return self.prior_ratio_end is not None or any(change.moves for change in self.changes.values())


def _move(value: Mapping[str, Any]) -> Change:
    return Change(value["to"], value.get("from"), moves=True, over=value.get("over", 1.0))


def check_changes(
    changes: Mapping[str, Change], kwargs: AlgorithmKwargs, combinations: Sequence[Mapping[str, float]]
) -> None:
    """Raise a ConfigError for a knob that cannot change online, and for a value that is not legal or does nothing.

    `combinations` are those of a sweep; without one there is a single, empty one.
    """
    if not changes:
        return
    fitted = kwargs.fitted(lambda: EVEN_VARIANCE)  # the data's own variance gives another number, which is as legal
    offline = {name: getattr(fitted, name) for name in type(kwargs).model_fields}
    for name, change in changes.items():
        if reason := _refusal(name, change, kwargs, offline, combinations[0]):
            raise ConfigError(f"`algo_kwargs.{name}` cannot change online: {reason}")
    for done in (0.0, 1.0):
        online = {name: change.at(done, offline[name]) for name, change in changes.items()}
        for own in combinations:
            _part(NetworkKnobs, kwargs, {**offline, **online})
            before, after = (_part(LearnerKnobs, kwargs, {**offline, **own, **values}) for values in ({}, online))
            _check_effect(changes, before, after)


def _part(kind: type[Knobs], kwargs: AlgorithmKwargs, values: Mapping[str, Any]) -> Knobs:
    """The checked settings of the learner, or those of the networks."""
    part = part_of(type(kwargs), kind)
    return part.checked({name: values[name] for name in part.model_fields}, inside="algo_kwargs.")


def _refusal(name: str, change: Change, kwargs: AlgorithmKwargs, offline: Mapping[str, Any], swept: Collection[str]) -> str:
    """Why a knob cannot change in this way, or an empty string."""
    learner, acting = learner_knobs(kwargs), part_of(type(kwargs), NetworkKnobs).acting_knobs
    legal = [*learner.changeable(), *acting]
    if name not in offline:
        return f"there is no such knob.{did_you_mean(name, legal)} What can: {', '.join(legal)}"
    if name in learner.data_knobs:
        return "the data is processed with it"
    if name not in legal:
        return f"it sets a shape, a count or the data. What can: {', '.join(legal)}"
    if name in swept:
        return "it is swept"
    if change.moves and name not in {*learner.sweepable(), *acting}:
        return "it is not a number that could move; give one value"
    if change.moves and name in learner.optimizer_knobs:
        return "the optimizer reads it once, so it cannot move; give one value"
    ends = (offline[name] if change.start is None else change.start, change.end)
    if change.moves and not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        return f"it would move from {ends[0]} to {ends[1]}; both must be numbers"
    return ""


def _check_effect(changed: Collection[str], before: LearnerKnobs, after: LearnerKnobs) -> None:
    """Refuse a change between a number and something learned, and one that does nothing."""
    for name in changed:
        if (name in before.learned) != (name in after.learned):
            raise ConfigError(
                f"`algo_kwargs.{name}` cannot change online between {getattr(before, name)} and {getattr(after, name)}: "
                "only one of the two is a fixed number"
            )
        if name in after.idle:
            raise ConfigError(f"`algo_kwargs.{name}` would do nothing online: {after.idle[name]}")
