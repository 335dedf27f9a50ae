"""The strict schema of a run's configuration; importable without torch."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, Strict, ValidationError, field_validator, model_validator

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.yaml_loader import parse_scalar, parse_yaml, scalar_value
from rl_training.knobs import (
    CalQLKnobs,
    CQLKnobs,
    IQLKnobs,
    IQLNetworkKnobs,
    REDQKnobs,
    REDQNetworkKnobs,
    SACKnobs,
    SACNetworkKnobs,
    StrictModel,
    TD3BCKnobs,
    TD3NetworkKnobs,
    XQLKnobs,
    describe_fault,
)

Seed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Schedule = Literal["constant", "linear", "cosine"]


class RewardConfig(StrictModel):
    """How rewards are transformed: r <- clip(scale * r + shift)."""

    scale: float = 1.0
    """Factor."""
    shift: float = 0.0
    """Summand, after the factor."""
    clip: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Lowest and highest reward afterwards; null clips nothing."""
    normalize: bool = False
    """First scale so that the episode returns in the data span 1000."""

    @model_validator(mode="after")
    def _ordered(self) -> "RewardConfig":
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError("clip must be [lowest, highest]")
        return self


class DatasetConfig(StrictModel):
    """One source of data: a recipe (`kind`) made from the environment, or a file (`path`)."""

    kind: Literal["random", "scripted"] | None = None
    """Behaviour of the recipe."""
    size: int = Field(100_000, ge=1, le=1_000_000_000)
    """Rows of the recipe."""
    seed: Seed = 0
    """Seed of the recipe, independent of the training seeds."""
    noise: float = Field(0.0, ge=0.0)
    """Action noise of a scripted behaviour, in units of half the action range."""
    path: str | None = None
    """File to read instead."""
    format: Literal["auto", "npz", "hdf5", "d3rlpy"] = "auto"
    """Layout of the file."""
    weight: float | None = Field(None, ge=0.0)
    """Share of the rows in a mixture; without weights every row is kept."""

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetConfig":
        if (self.kind is None) == (self.path is None):
            raise ValueError("give either `kind` (a recipe) or `path` (a file)")
        return self

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        return None if path is None else os.path.abspath(path)  # a resume may start from another directory


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, Mapping | DatasetConfig) else value if value is not None else []


class AlgorithmKwargs(StrictModel):
    """What every algorithm has under `algo_kwargs`."""

    batch_size: int = Field(256, ge=1, le=1_000_000)
    """Transitions per gradient step and member."""
    reward: RewardConfig = RewardConfig()
    """Reward transform."""


class OfflineKwargs(AlgorithmKwargs):
    """Data settings of the offline algorithms."""

    normalize_observations: bool = False
    """Whiten observations by the mean and standard deviation of the data."""
    dataset: Annotated[tuple[DatasetConfig, ...], Field(strict=False), BeforeValidator(_as_list)] = ()
    """A recipe or a file, or a list of them."""

    @field_validator("dataset")
    @classmethod
    def _all_weights_or_none(cls, parts: tuple[DatasetConfig, ...]) -> tuple[DatasetConfig, ...]:
        if len({part.weight is None for part in parts}) > 1:
            raise ValueError("give every part of a mixture a `weight`, or none of them")
        return parts


class OnlineKwargs(AlgorithmKwargs):
    """How an online algorithm collects and learns."""

    buffer_capacity: int = Field(1_000_000, ge=1, le=1_000_000_000)
    """Transitions kept per member; the oldest are forgotten."""
    learning_starts: int = Field(1_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    train_frequency: int = Field(1, ge=1)
    """Environment steps between two rounds of updates."""
    gradient_updates_per_step: int = Field(1, ge=1, le=10_000)
    """Gradient steps of one round."""

    @field_validator("reward")
    @classmethod
    def _no_fitted_reward(cls, reward: RewardConfig) -> RewardConfig:
        if reward.normalize:
            raise ValueError("`normalize` is fitted on a dataset, and an online run has none; use `scale`")
        return reward


class IQLKwargs(IQLKnobs, IQLNetworkKnobs, OfflineKwargs):
    """Everything under `algo_kwargs` of IQL."""


class XQLKwargs(XQLKnobs, IQLNetworkKnobs, OfflineKwargs):
    """Everything under `algo_kwargs` of XQL."""


class TD3BCKwargs(TD3BCKnobs, TD3NetworkKnobs, OfflineKwargs):
    """Everything under `algo_kwargs` of TD3+BC."""

    normalize_observations: bool = True
    """Whiten observations by the mean and standard deviation of the data."""


class CQLKwargs(CQLKnobs, SACNetworkKnobs, OfflineKwargs):
    """Everything under `algo_kwargs` of CQL."""


class CalQLKwargs(CalQLKnobs, SACNetworkKnobs, OfflineKwargs):
    """Everything under `algo_kwargs` of Cal-QL."""


class SACKwargs(SACKnobs, SACNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of SAC."""


class REDQKwargs(REDQKnobs, REDQNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of REDQ."""

    learning_starts: int = Field(5_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    gradient_updates_per_step: int = Field(20, ge=1, le=10_000)
    """Gradient steps of one round."""

    @model_validator(mode="after")
    def _subset_of_the_critics(self) -> "REDQKwargs":
        if self.subset_size > self.num_critics:
            raise ValueError(f"subset_size = {self.subset_size} must be at most num_critics = {self.num_critics}")
        return self


class EarlyStoppingConfig(StrictModel):
    """When to stop a member before its budget."""

    patience: int | None = Field(None, ge=1)
    """Evaluations without improvement."""
    min_delta: float = Field(0.0, ge=0.0)
    """Least improvement that counts."""
    threshold: float | None = None
    """Stop once the mean return reaches this."""

    @model_validator(mode="after")
    def _some_rule(self) -> "EarlyStoppingConfig":
        if self.patience is None and self.threshold is None:
            raise ValueError("give `patience`, `threshold` or both")
        return self


class GroupSchedules(StrictModel):
    """A learning-rate schedule per parameter group."""

    actor: Schedule = "constant"
    critic: Schedule = "constant"
    value: Schedule = "constant"
    temperature: Schedule = "constant"


def _for_all_groups(value: Any) -> Any:
    """One word stands for every group."""
    if not isinstance(value, str):
        return value
    if value not in get_args(Schedule):
        raise ValueError(f"must be one of {', '.join(get_args(Schedule))}, or one of them per group")
    return dict.fromkeys(GroupSchedules.model_fields, value)


KwargsT = TypeVar("KwargsT", bound=AlgorithmKwargs)


class RunConfig(StrictModel, Generic[KwargsT]):
    """A complete run. Intervals count in the unit of `total_timesteps`: gradient steps offline, environment steps online."""

    algo: str
    """Algorithm id."""
    env_id: str | None = None
    """Gymnasium environment; null when training from a file alone."""
    seed: Seed = 0
    """Seed of a solo run."""
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=4096)] | None = None
    """Seeds of a population, trained side by side."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """auto, cpu, cuda or cuda:N."""
    engine: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps are executed."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Arithmetic of the matrix products."""
    deterministic: bool = True
    """Use only operations that repeat bit for bit."""
    total_timesteps: int = Field(100_000, ge=1)
    """Budget of the run."""
    max_epochs: int | None = Field(None, ge=1)
    """Budget in passes over the data."""
    max_updates: int | None = Field(None, ge=1)
    """Budget in gradient steps."""
    eval_interval: int = Field(5_000, ge=1)
    """Steps between evaluations."""
    eval_episodes: int = Field(10, ge=1, le=10_000)
    """Episodes per evaluation and member."""
    checkpoint_interval: int = Field(5_000, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(2, ge=2)
    """Checkpoints kept beside the best."""
    log_interval: int = Field(500, ge=1)
    """Steps between metric rows."""
    learning_rate_schedule: Annotated[GroupSchedules, BeforeValidator(_for_all_groups)] = GroupSchedules()
    """One schedule for all groups, or one per group."""
    early_stopping: EarlyStoppingConfig | None = None
    """Rules to stop a member early."""
    run_name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """Name of the run directory."""
    algo_kwargs: SerializeAsAny[KwargsT]
    """Settings of the algorithm."""

    @model_validator(mode="after")
    def _fit_for_online(self) -> "RunConfig[KwargsT]":
        if isinstance(self.algo_kwargs, OnlineKwargs):
            if self.env_id is None:
                raise ValueError(f"`env_id` is required: {self.algo} learns in an environment")
            if self.max_epochs is not None:
                raise ValueError("`max_epochs` counts passes over a dataset, and an online run has none; use `max_updates`")
            if self.max_updates is not None and self.max_updates < self.algo_kwargs.gradient_updates_per_step:
                raise ValueError("`max_updates` is less than one round of `gradient_updates_per_step`")
        return self

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if seeds is not None and len(set(seeds)) != len(seeds):
            raise ValueError("seeds must differ from one another")
        return seeds

    @cached_property
    def member_seeds(self) -> tuple[int, ...]:
        """The seed of each member."""
        return self.seeds if self.seeds is not None else (self.seed,)

    @cached_property
    def schedules(self) -> dict[str, str]:
        """The schedule of each parameter group."""
        return self.learning_rate_schedule.model_dump()

    def record(self) -> dict[str, Any]:
        """Return the complete, resolved configuration as plain values."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """Return the complete, resolved configuration as YAML."""
        return yaml.dump(self.record(), Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Quotes every word that our own reader would not give back as it is."""


def _represent_word(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if scalar_value(text) == text else "'")


_Dumper.add_representer(str, _represent_word)


def make_config(values: Mapping[str, Any], where: str = "config", lines: Mapping[Any, int] | None = None) -> RunConfig[Any]:
    """Return the checked configuration, or one ConfigError with a line for every fault."""
    from rl_training.experiment.registry import get_spec

    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: must be a mapping of settings")
    raw = dict(values)
    if not isinstance(raw.get("algo"), str):
        raise ConfigError(f"{where}: `algo` is required: the id of an algorithm, such as iql")
    try:
        spec = get_spec(raw["algo"])
    except ConfigError as error:
        raise ConfigError(f"{_place(where, lines, ('algo',))}: {error}") from None
    raw.setdefault("algo_kwargs", {})
    if raw["algo_kwargs"] is None:
        raw["algo_kwargs"] = {}
    schema = RunConfig[spec.kwargs]  # type: ignore[name-defined]
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        faults = [describe_fault(schema, fault) for fault in error.errors()]
        text = dict.fromkeys(f"{_place(where, lines, path)}: {fault}" for path, fault in faults)
        raise ConfigError("\n".join(text)) from None


def _place(where: str, lines: Mapping[Any, int] | None, path: Sequence[int | str]) -> str:
    """`file:line` of a key path, or of the nearest path above it that the file has."""
    for length in range(len(path), 0, -1):
        if lines and tuple(path[:length]) in lines:
            return f"{where}:{lines[tuple(path[:length])]}"
    return where


def packaged_configs() -> dict[str, str]:
    """Return the texts of the configs that come with the package, by name such as `iql/pendulum`."""
    root = resources.files("rl_training") / "assets" / "configs"
    found: dict[str, str] = {}
    for folder in sorted(root.iterdir(), key=lambda entry: entry.name):
        texts = {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
        found |= {f"{folder.name}/{name}": texts[name].read_text() for name in sorted(texts)}
    return found


def load_config(name: str, overrides: Sequence[str] = (), extra: Mapping[str, Any] | None = None) -> RunConfig[Any]:
    """Return the config of a packaged name or a YAML file, with `key.path=value` overrides applied in order."""
    packaged = packaged_configs()
    if name in packaged:
        text, where = packaged[name], f"{name} (packaged)"
    else:
        path = Path(name)
        if not path.is_file():
            hint = did_you_mean(name, packaged)
            raise ConfigError(f"{name}: neither a packaged config nor a file.{hint} `rl-training list` shows what there is")
        try:
            text, where = path.read_text(), name
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: cannot be read: {error}") from error
    values, lines = parse_yaml(text, where)
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: must be a mapping of settings")
    for override in overrides:
        apply_override(values, override)
    values.update(extra or {})
    return make_config(values, where, lines)


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set `key.path=value` in nested settings, the value read like YAML."""
    key, sign, text = override.partition("=")
    if not sign or not all(key.split(".")):
        raise ConfigError(f"--set {override!r}: must look like key.path=value")
    *parents, last = key.split(".")
    place = values
    for parent in parents:
        child = place.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override!r}: `{parent}` is {child!r}, not a group of settings")
        place = child
    place[last] = parse_scalar(text)
