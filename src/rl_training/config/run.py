"""The strict schema of a run's configuration; importable without torch."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator, model_validator

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.kwargs import AlgorithmKwargs, CollectionConfig, OnlineKwargs, Seed
from rl_training.experiment.sweep import MAX_MEMBERS, Sweep, check_sweep, combinations, read_sweep
from rl_training.experiment.yaml_loader import parse_scalar, parse_yaml, scalar_value
from rl_training.knobs import StrictModel, describe_faults

Schedule = Literal["constant", "linear", "cosine"]


class FinetuneConfig(CollectionConfig):
    """How an offline run goes on in its environment."""

    env_steps: int = Field(ge=1)
    """Environment steps of the online phase."""
    from_step: int | None = Field(None, ge=1)
    """Gradient step at which the online phase begins; null is the end of the offline budget."""
    learning_starts: int = Field(0, ge=0)
    """Environment steps before the first update; the policy acts from the start."""
    replay: Literal["mixed", "append"] = "mixed"
    """`mixed`: an exact share of every batch is prior data; `append`: prior and fresh data are one pool."""
    prior_ratio: float = Field(0.5, ge=0.0, le=1.0)
    """Share of prior data in a mixed batch, rounded to whole rows."""
    prior_ratio_end: float | None = Field(None, ge=0.0, le=1.0)
    """Share that it moves to, linearly over the online phase; null keeps it."""
    learning_rate_factor: float = Field(1.0, gt=0.0, le=1.0)
    """Factor of every learning rate online, constant: a schedule of the offline phase ends with it."""


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
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1, max_length=MAX_MEMBERS)] | None = None
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
    finetune: FinetuneConfig | None = None
    """How an offline run goes on in its environment."""
    run_name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """Name of the run directory."""
    algo_kwargs: SerializeAsAny[KwargsT]
    """Settings of the algorithm."""
    sweep: Sweep | None = None
    """Values of knobs that take the place of those in `algo_kwargs`; every combination is trained with every seed."""

    @model_validator(mode="after")
    def _fit_for_online(self) -> "RunConfig[KwargsT]":
        kwargs = self.algo_kwargs
        if isinstance(kwargs, OnlineKwargs):
            if self.env_id is None:
                raise ValueError(f"`env_id` is required: {self.algo} learns in an environment")
            if self.finetune is not None:
                raise ValueError(f"`finetune` is for offline algorithms; {self.algo} learns online as it is")
            if self.max_epochs is not None:
                raise ValueError("`max_epochs` counts passes over a dataset, and an online run has none; use `max_updates`")
            if self.max_updates is not None and self.max_updates < kwargs.gradient_updates_per_step:
                raise ValueError("`max_updates` is less than one round of `gradient_updates_per_step`")
        elif self.finetune is not None:
            if self.env_id is None:
                raise ValueError("`env_id` is required: a finetune goes on in an environment")
            if self.early_stopping is not None:
                raise ValueError("`early_stopping` and `finetune` exclude each other")
        return self

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if seeds is not None and len(set(seeds)) != len(seeds):
            raise ValueError("seeds must differ from one another")
        return seeds

    @field_validator("sweep", mode="before")
    @classmethod
    def _sweepable(cls, sweep: Any, info: ValidationInfo) -> Any:
        return sweep if sweep is None or "algo_kwargs" not in info.data else read_sweep(sweep, info.data["algo_kwargs"])

    @field_validator("sweep")
    @classmethod
    def _legal_sweep(cls, sweep: Sweep | None, info: ValidationInfo) -> Sweep | None:
        if sweep is not None and {"algo_kwargs", "seeds"} <= set(info.data):  # otherwise there are other faults to mend
            check_sweep(sweep, info.data["algo_kwargs"], len(info.data["seeds"] or (0,)))
        return sweep

    @cached_property
    def member_seeds(self) -> tuple[int, ...]:
        """The seed of each member: all seeds for each combination of a sweep."""
        return (self.seeds or (self.seed,)) * len(combinations(self.sweep))

    @cached_property
    def member_knobs(self) -> tuple[dict[str, float], ...]:
        """What each member has of its own by the sweep."""
        seeds = self.seeds or (self.seed,)
        return tuple(own for own in combinations(self.sweep) for _ in seeds)

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
    if not spec.takes_data and isinstance(raw["algo_kwargs"], Mapping) and raw["algo_kwargs"].get("dataset"):
        place = _place(where, lines, ("algo_kwargs", "dataset"))
        raise ConfigError(f"{place}: `algo_kwargs.dataset`: {spec.id} learns online and takes no dataset; try rlpd")
    schema = RunConfig[spec.kwargs]  # type: ignore[name-defined]
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        faults = describe_faults(schema, error)
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
