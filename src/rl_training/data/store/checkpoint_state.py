"""The schema of a checkpoint's `state.json`: whoever can change a file can also make its hashes right, so values are checked.

A value that no run of this package writes is refused when a checkpoint is read, before anything is built from it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor

from rl_training.config.base import Seed, StrictModel, describe_faults
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage import parse_json

_SHOWN = 3  # faults of one file, at most

Count = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4096)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Numbers = dict[Text, Number]


class SpacesState(StrictModel):
    """The spaces that a policy was trained with."""

    observation_dim: Annotated[Count, Field(ge=1, le=2**24)]
    action_dim: Annotated[Count, Field(ge=1, le=2**24)]
    action_low: list[Number]
    action_high: list[Number]
    observation_names: list[Text] | None = None
    action_names: list[Text] | None = None

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        sizes = {"observation": self.observation_dim, "action": self.action_dim}
        named = {"observation": self.observation_names, "action": self.action_names}
        if any(len(bound) != self.action_dim for bound in (self.action_low, self.action_high)):
            raise ValueError("there must be one bound for each action")
        if any(abs(value) > 3e38 for value in (*self.action_low, *self.action_high)):
            raise ValueError("a bound does not fit into 32 bits")
        if any(low > high for low, high in zip(self.action_low, self.action_high, strict=True)):
            raise ValueError("a lower bound is above the upper one")
        if any(names is not None and len(names) != sizes[field] for field, names in named.items()):
            raise ValueError("there must be one name for each column")
        return self


class MemberState(StrictModel):
    """The record of a member."""

    seed: Seed
    status: Literal["training", "stopped", "diverged"]
    status_step: Count | None
    last_return: Number | None
    best_return: Number | None
    best_step: Count | None
    best_unit: Literal["step", "env step"] | None = None
    last_score: Number | None = None
    knobs: Numbers = Field(default_factory=dict)


class CallbackState(StrictModel):
    """What a callback keeps; its own `load_state_dict` knows what is legal inside."""

    name: Text
    state: dict[str, Any]


class ExecutionState(StrictModel):
    """How steps were executed."""

    device: Literal["cpu", "cuda"]
    mode: Literal["eager", "compile", "graph"]
    precision: Literal["float32", "tf32", "bf16"]
    deterministic: bool
    threads: Annotated[Count, Field(ge=1, le=2**16)]
    torch: Text
    machine: Text
    batch_parts: Annotated[Count, Field(ge=1, le=2**16)] = 1


class HeldOutState(StrictModel):
    """What is remembered of the last evaluation on held-out rows."""

    held_out: Numbers = Field(default_factory=dict)
    training: Numbers = Field(default_factory=dict)
    best_score: Number | None = None


class CountersState(StrictModel):
    """Where an evaluation was begun."""

    step: Count
    env_step: Count | None = None


class EvaluatingState(StrictModel):
    """An evaluation that was under way."""

    counters: CountersState
    label: Text
    members: list[Count]


class EpisodeState(StrictModel):
    """The episode that a member is in."""

    number: Count
    length: Count
    total_reward: Number
    last_return: Number | None
    last_length: Count | None


class SegmentState(StrictModel):
    """A segment of the replay; its name is checked where it is read."""

    name: Text
    first: Count
    stop: Count
    bytes: Count
    sha256: Digest

    @model_validator(mode="after")
    def _some_rows(self) -> Self:
        if self.stop <= self.first:
            raise ValueError("a segment must hold rows")
        return self


class CheckpointState(StrictModel):
    """Everything in `state.json`. What is optional is younger than the format, or of online runs alone."""

    algo: Text
    config: dict[str, Any]
    spaces: SpacesState
    seeds: list[Seed]
    step: Count
    env_step: Count | None = None
    hooks_pending: bool
    stopping: list[Count] = Field(default_factory=list)
    recent_metrics: dict[Text, list[Number]] = Field(default_factory=dict)
    members: list[MemberState]
    best_mean: Number | None
    callbacks: list[CallbackState]
    metrics_bytes: Count
    metrics_sha256: Digest | None = None
    dataset_fingerprint: Digest | None
    held_out: HeldOutState = HeldOutState()
    execution: ExecutionState
    evaluating: EvaluatingState | None = None
    replay: list[SegmentState] | None = None
    replay_ready: list[Count] | None = None
    replay_from: Count = 0
    episodes: list[EpisodeState] | None = None

    @model_validator(mode="after")
    def _one_entry_for_each_member(self) -> Self:
        lengths: dict[str, Sequence[Any] | None] = {
            "members": self.members,
            "replay_ready": self.replay_ready,
            "episodes": self.episodes,
            **{f"recent_metrics.{name}": column for name, column in self.recent_metrics.items()},
        }
        for name, entries in lengths.items():
            if entries is not None and len(entries) != len(self.seeds):
                raise ValueError(f"`{name}` has {len(entries)} entries, and there are {len(self.seeds)} seeds")
        named = {*self.stopping, *(self.evaluating.members if self.evaluating else ())}
        if named - set(range(len(self.seeds))):
            raise ValueError(f"it speaks of the members {sorted(named)}, and there are {len(self.seeds)}")
        if [member.seed for member in self.members] != self.seeds:
            raise ValueError("the seeds of `members` are not `seeds`")
        return self

    @model_validator(mode="after")
    def _online_or_not(self) -> Self:
        online = {"replay": self.replay, "replay_ready": self.replay_ready, "episodes": self.episodes}
        if self.env_step is None:
            if extra := [name for name, value in online.items() if value is not None]:
                raise ValueError(f"`{extra[0]}` is of an online run, and there is no `env_step`")
        elif missing := [name for name, value in online.items() if value is None]:
            raise ValueError(f"`{missing[0]}` is required after `env_step`")
        elif any(number > self.env_step for number in (self.replay_from, *(self.replay_ready or ()))):
            raise ValueError("`replay_from` or `replay_ready` is beyond `env_step`")
        return self

    def check_config(self, config: RunConfig[Any]) -> None:
        """Raise a ValueError unless the members are those of the config."""
        if self.algo != config.algo or tuple(self.seeds) != config.member_seeds:
            raise ValueError("its algorithm and seeds are not those of its `config`")
        if [member.knobs for member in self.members] != list(config.member_knobs):
            raise ValueError("the knobs of its `members` are not those of its `config`")


def parse_state(data: bytes, where: Path) -> dict[str, Any]:
    """Return a checkpoint's state, every value of it checked to be one that a run may write, or raise a CheckpointError."""
    state = parse_json(data, str(where))
    if "environment" in state:  # the key in the first versions
        state.setdefault("execution", state.pop("environment"))
    try:
        found = CheckpointState.model_validate(state)
    except ValidationError as error:
        faults = [fault for _, fault in describe_faults(CheckpointState, error)]
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise CheckpointError(f"{where}: {'; '.join(faults[:_SHOWN])}{more}") from None
    try:
        found.check_config(make_config(found.config))
    except ConfigError as error:
        raise CheckpointError(f"{where}: in its {str(error).splitlines()[0]}") from None
    except ValueError as error:
        raise CheckpointError(f"{where}: {error}") from None
    return state


def check_transforms(tensors: Mapping[str, Tensor], state: Mapping[str, Any], where: Path) -> None:
    """Raise a CheckpointError unless the transforms fit the observations of the state."""
    per_column = ((state["spaces"]["observation_dim"],), torch.float32)
    expected = {"observation_mean": per_column, "observation_std": per_column, "reward": ((4,), torch.float64)}
    for name, (shape, dtype) in expected.items():
        found = tensors.get(f"transforms/{name}")
        if found is None or found.shape != shape or found.dtype != dtype:
            raise CheckpointError(f"{where}: `transforms/{name}` must be {dtype} {shape}")
    if (limit := tensors.get("transforms/observation_limit")) is not None and limit.numel() != 1:
        raise CheckpointError(f"{where}: `transforms/observation_limit` must be one number")
    if (ends := tensors.get("transforms/observation_range")) is not None:  # younger than the format
        low_and_high = (2, state["spaces"]["observation_dim"])
        if (
            ends.shape != low_and_high
            or ends.dtype != torch.float32
            or not bool(((ends[0] <= ends[1]) & ends.isfinite()).all())
        ):
            raise CheckpointError(
                f"{where}: `transforms/observation_range` must be finite torch.float32 {low_and_high}, the lower ends first"
            )
