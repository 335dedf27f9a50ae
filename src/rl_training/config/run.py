"""The strict schema of a run: everything except `algo_kwargs`; free of torch."""

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, get_args

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from rl_training.config.base import Seed, StrictModel
from rl_training.config.blocks import AlgorithmKwargs, OfflineKwargs, OnlineKwargs
from rl_training.config.environment import EnvId, EnvKwargs, EnvSource, TimeLimit, Workers, Wrappers
from rl_training.config.finetune import RHYTHM, FinetuneConfig, Rhythm, check_changes
from rl_training.config.schedules import GroupSchedules, ScheduleConfig, for_all_groups
from rl_training.config.shared_knobs import DEFAULT_GAMMA, CriticKnobs
from rl_training.config.sweep import (
    MAX_MEMBERS,
    Sweep,
    Trials,
    check_sweep,
    check_trials,
    combinations,
    read_sweep,
    read_trials,
)
from rl_training.config.yaml_loader import dump_yaml
from rl_training.errors import did_you_mean


class EarlyStoppingConfig(StrictModel):
    """When to stop a member before its budget."""

    patience: int | None = Field(None, ge=1)
    """Evaluations without improvement."""
    min_delta: float = Field(0.0, ge=0.0)
    """Least improvement that counts."""
    threshold: float | None = None
    """Stop once the mean return reaches this."""

    @model_validator(mode="after")
    def _some_rule(self) -> Self:
        if self.patience is None and self.threshold is None:
            raise ValueError("set `patience`, `threshold` or both")
        return self


class PruningConfig(StrictModel):
    """When to stop the worse of several combinations of knobs before their budget, all seeds of each."""

    kind: Literal["median", "halving"]
    """`median`: those below the median of all; `halving`: all but the best of each `factor`, at ever longer intervals."""
    first: int = Field(1, ge=1)
    """Evaluation at which the first are stopped: 2 spares all of them at the first."""
    factor: int = Field(3, ge=2)
    """Of halving: one in so many goes on, and so many times as many evaluations later one in so many of those."""


Backend = Literal["tensorboard", "wandb", "mlflow", "trackio"]


def _known_backends(given: Any) -> Any:
    """Accept one name in place of a list, and a name twice as once; tell what an unknown one may have meant."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return names
    known = get_args(Backend)
    for name in [name for name in names if name not in known]:
        raise ValueError(f"{name!r} is none of {', '.join(known)}.{did_you_mean(name, known)}")
    return list(dict.fromkeys(names))


KwargsT = TypeVar("KwargsT", bound=AlgorithmKwargs)


class RunConfig(StrictModel, Generic[KwargsT]):
    """A complete run. Intervals count in the unit of `total_timesteps`: gradient steps offline, environment steps online."""

    algo: str
    """Algorithm id."""
    env_id: EnvId | None = None
    """Gymnasium environment; null when training from a file alone."""
    env_kwargs: EnvKwargs
    """Arguments of the environment."""
    max_episode_steps: TimeLimit | None = None
    """Most steps of an episode; null is the limit that the environment is registered with."""
    env_wrappers: Wrappers
    """Wrappers of Gymnasium around the environment, the innermost first: a name, or {name: ..., kwargs: {...}}."""
    env_imports: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Modules that `--import` had loaded for the environment: a note for later commands, never imported from here."""
    env_timeout: float = Field(60.0, gt=0.0, le=86_400.0)
    """Seconds that a reset or step of the environment may take in a worker process."""
    workers: Workers = "auto"
    """Processes that step the environments; 0 steps in the process of training, auto measures what is faster."""
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
    eval_mode: Literal["wait", "beside"] = "wait"
    """Whether training waits for an evaluation, or goes on beside it and learns its result at the next."""
    select_by: Literal["action_distance", "td_error", "validation_loss", "fqe"] | None = None
    """Without an environment: the score by logged data, averaged over members, by which the checkpoint `best` is chosen."""
    select_gamma: float | None = Field(None, ge=0.0, lt=1.0)
    """Discount of `select_by: fqe`; null is the algorithm's."""
    checkpoint_interval: int = Field(5_000, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(2, ge=2)
    """Checkpoints kept in addition to the best."""
    log_interval: int = Field(500, ge=1)
    """Steps between metric rows."""
    log: Annotated[tuple[Backend, ...], Field(strict=False), BeforeValidator(_known_backends)] = ()
    """Where metrics are shown too while they are written: tensorboard, wandb, mlflow, trackio, or several."""
    learning_rate_schedule: Annotated[GroupSchedules, BeforeValidator(for_all_groups)] = GroupSchedules()
    """One schedule for all groups, or one per group: a name, or {kind: cosine, over: 0.5, to: 0.1}."""
    early_stopping: EarlyStoppingConfig | None = None
    """Rules to stop a member early."""
    run_name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """Name of the run directory."""
    algo_kwargs: SerializeAsAny[KwargsT]
    """Settings of the algorithm."""
    sweep: Sweep | None = None
    """Values of knobs that replace those in `algo_kwargs`; every combination is trained with every seed."""
    trials: Trials | None = None
    """Combinations of knobs, such as [{expectile: 0.7, beta: 3}, ...], instead of a sweep of all; each with every seed."""
    pruning: PruningConfig | None = None
    """Rule to stop the worse combinations of a sweep or of trials early."""
    finetune: FinetuneConfig | None = None
    """How an offline run continues in its environment."""

    @model_validator(mode="after")
    def _fit_for_online(self) -> Self:
        kwargs = self.algo_kwargs
        if isinstance(kwargs, OnlineKwargs):
            if self.env_id is None:
                raise ValueError(f"`env_id` is required: {self.algo} learns in an environment")
            if self.finetune is not None:
                raise ValueError(f"`finetune` is for offline algorithms; {self.algo} already learns online")
            if self.max_epochs is not None:
                raise ValueError("`max_epochs` counts passes over a dataset, and an online run has none; use `max_updates`")
            if self.max_updates is not None and self.max_updates < kwargs.gradient_updates_per_step:
                raise ValueError("`max_updates` is less than one round of `gradient_updates_per_step`")
        elif self.finetune is not None:
            if not isinstance(kwargs, CriticKnobs):
                raise ValueError(f"`finetune` needs critics to learn from rewards, and {self.algo} has none")
            if self.final_env_id is None:
                raise ValueError(
                    "`env_id` is required: a finetune continues in an environment; for a run without one set "
                    "`finetune.env_id` (in the shell `finetune --env ID`, in Python `finetune(n, env_id=ID)`)"
                )
            if self.early_stopping is not None:
                raise ValueError("`early_stopping` and `finetune` exclude each other")
        return self

    @model_validator(mode="after")
    def _scored_without_environment(self) -> Self:
        if self.select_gamma is not None and self.select_by != "fqe":
            raise ValueError("`select_gamma` is the discount of `select_by: fqe`, which is not set")
        if self.select_by is None:
            return self
        if self.env_id is not None:
            raise ValueError(
                "`select_by` is for runs without an environment: evaluations in `env_id` choose the best checkpoint"
            )
        if self.select_by == "td_error" and not isinstance(self.algo_kwargs, CriticKnobs):
            raise ValueError(f"`select_by: td_error` needs critics, and {self.algo} has none: use action_distance or fqe")
        return self

    @model_validator(mode="after")
    def _first_update_has_rows(self) -> Self:
        """Refuse steps so long that none is complete when learning starts; prior data would fill the batch."""
        kwargs: Any = self.algo_kwargs
        fresh = self.finetune if self.finetune is not None and self.finetune.replay == "fresh" else None
        alone = fresh if isinstance(kwargs, OfflineKwargs) else kwargs
        if alone is not None and kwargs.n_step > min(max(alone.learning_starts, 1), alone.buffer_capacity):
            raise ValueError(
                f"`n_step` = {kwargs.n_step} leaves nothing to learn from at the first update: set `learning_starts` = "
                f"{alone.learning_starts} and `buffer_capacity` = {alone.buffer_capacity} to at least that"
            )
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
        if sweep is not None and {"algo_kwargs", "seeds"} <= set(info.data):  # otherwise other faults are reported
            check_sweep(sweep, info.data["algo_kwargs"], len(info.data["seeds"] or (0,)))
        return sweep

    @field_validator("trials", mode="before")
    @classmethod
    def _listed(cls, trials: Any, info: ValidationInfo) -> Any:
        return trials if trials is None or "algo_kwargs" not in info.data else read_trials(trials, info.data["algo_kwargs"])

    @field_validator("trials")
    @classmethod
    def _legal_trials(cls, trials: Trials | None, info: ValidationInfo) -> Trials | None:
        if trials is not None and info.data.get("sweep"):
            raise ValueError("`trials` and `sweep` exclude each other: both say which combinations to train")
        if trials is not None and {"algo_kwargs", "seeds"} <= set(info.data):
            check_trials(trials, info.data["algo_kwargs"], len(info.data["seeds"] or (0,)))
        return trials

    @model_validator(mode="after")
    def _something_to_prune(self) -> Self:
        if self.pruning is None:
            return self
        if len(self.combinations) < 2:
            raise ValueError("`pruning` compares combinations of knobs, and there is one: set `sweep` or `trials`")
        if self.early_stopping is not None or self.finetune is not None:
            other = "early_stopping" if self.early_stopping is not None else "finetune"
            raise ValueError(f"`pruning` and `{other}` exclude each other")
        if self.env_id is None and self.select_by is None:
            raise ValueError("`pruning` needs a score: set `env_id`, or `select_by` without an environment")
        return self

    @field_validator("finetune")
    @classmethod
    def _legal_changes(cls, block: FinetuneConfig | None, info: ValidationInfo) -> FinetuneConfig | None:
        if block is not None and {"algo_kwargs", "sweep", "trials"} <= set(info.data):
            combined = info.data["trials"] or combinations(info.data["sweep"])
            check_changes(block.changes, info.data["algo_kwargs"], combined)
        return block

    @cached_property
    def combinations(self) -> tuple[dict[str, float], ...]:
        """The knobs of each combination of a sweep, or of listed trials; without either there is one, which is empty."""
        return self.trials or tuple(combinations(self.sweep))

    @cached_property
    def member_seeds(self) -> tuple[int, ...]:
        """The seed of each member: all seeds for each combination."""
        return (self.seeds or (self.seed,)) * len(self.combinations)

    @cached_property
    def member_knobs(self) -> tuple[dict[str, float], ...]:
        """The own knobs of each member, with their values."""
        seeds = self.seeds or (self.seed,)
        return tuple(own for own in self.combinations for _ in seeds)

    @property
    def final_env_id(self) -> str | None:
        """The environment in which the run ends: that of its finetune, otherwise that of the run."""
        return (self.finetune and self.finetune.env_id) or self.env_id

    @property
    def environment(self) -> EnvSource | None:
        """How the environment of the run is made; None if there is none."""
        if self.env_id is None:
            return None
        return EnvSource(self.env_id, self.env_kwargs, self.max_episode_steps, self.env_wrappers, self.env_imports)

    @property
    def final_environment(self) -> EnvSource | None:
        """How the environment in which the run ends is made: that of its finetune, otherwise that of the run."""
        block = self.finetune
        if block is None or block.env_id is None:
            return self.environment
        return EnvSource(block.env_id, block.env_kwargs, block.max_episode_steps, block.env_wrappers, self.env_imports)

    @property
    def score_gamma(self) -> float:
        """The discount of `select_by: fqe`: its own, otherwise that of the algorithm."""
        own = self.select_gamma
        return float(getattr(self.algo_kwargs, "gamma", DEFAULT_GAMMA)) if own is None else own

    @property
    def rhythm(self) -> Rhythm:
        """How often the run is evaluated, logged and saved."""
        return Rhythm(self.eval_interval, self.eval_episodes, self.log_interval, self.checkpoint_interval)

    @property
    def final_rhythm(self) -> Rhythm:
        """The rhythm in which the run ends: that of its finetune, otherwise that of the run."""
        own = {name: getattr(self.finetune, name, None) for name in RHYTHM}
        return replace(self.rhythm, **{name: value for name, value in own.items() if value is not None})

    @cached_property
    def schedules(self) -> dict[str, ScheduleConfig]:
        """The schedule of each parameter group."""
        return dict(self.learning_rate_schedule)

    def record(self) -> dict[str, Any]:
        """Return the complete, resolved configuration as plain values."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """Return the complete, resolved configuration as YAML."""
        return dump_yaml(self.record())
