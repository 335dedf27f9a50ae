"""What every `train_<id>` shares: data or environment, learner, engine and loop put together."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from rl_training.algorithms.learner import Learner
from rl_training.data.environments import infer_env_spaces
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError, ConfigError, DatasetError, StorageError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.engine import Acceleration, Engine, applied, check_engine, resolve_device, resolve_engine
from rl_training.runtime.loop import LoopParts, TrainingLoop, TrainingResult
from rl_training.runtime.offline import OfflineEngine
from rl_training.runtime.offline_setup import OfflineData, offline_data
from rl_training.runtime.online_setup import environment_of, finetune_engine, online_engine
from rl_training.runtime.phases import TwoPhaseEngine
from rl_training.runtime.processing import RunData, in_memory
from rl_training.runtime.progress import QuietReporter, Reporter
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.signals import SignalWatch
from rl_training.runtime.sources import BatchSource, PrefetchedSource, batch_source
from rl_training.runtime.validation import Validation


class BuildLearner(Protocol):
    """Makes a learner from `algo_kwargs`, and from what each member has of its own."""

    def __call__(
        self,
        spaces: Spaces,
        seeds: Sequence[int],
        device: torch.device,
        kwargs: Any,
        member_knobs: Sequence[Mapping[str, float]] = (),
    ) -> Learner[Any, Any]:
        """Return a learner with a member per seed."""


def builder(learner: type[Learner[Any, Any]], model: Any) -> BuildLearner:
    """Return the function that makes a learner on its model, each taking its own knobs from `algo_kwargs`."""

    def build(
        spaces: Spaces,
        seeds: Sequence[int],
        device: torch.device,
        kwargs: Any,
        member_knobs: Sequence[Mapping[str, float]] = (),
    ) -> Learner[Any, Any]:
        shape = {name: getattr(kwargs, name) for name in model.knobs_type.model_fields}
        knobs = {name: getattr(kwargs, name) for name in learner.knobs_type.model_fields}
        stacked = model(spaces.observation_dim, spaces.action_dim, seeds=seeds, device=device, **shape)
        return learner(stacked, member_knobs=member_knobs, **knobs)

    return build


@dataclass(frozen=True)
class TrainOptions:
    """How a trainer is run, beside its settings."""

    callbacks: Sequence[Callback] = ()
    dataset: TransitionDataset | None = None
    resume_from: Checkpoint | None = None
    continue_metrics: bool = False
    reporter: Reporter | None = None
    on_ready: Callable[[TransitionDataset | None], None] | None = None  # all is checked; the run is about to write


@dataclass(frozen=True)
class Supply:
    """Where a run's batches come from."""

    spaces: Spaces
    transforms: Transforms
    dataset: TransitionDataset | None
    engine: Callable[[Learner[Any, Any]], Engine]
    fingerprint: str | None = None
    validation: Validation | None = None


def train_offline(
    settings: RunSettings, build: BuildLearner, run_dir: Path, options: TrainOptions, *, returns_to_go: bool = False
) -> TrainingResult:
    """Train from a fixed dataset until the budget ends, then online if the settings have a `finetune` block."""

    def supply(signals: SignalWatch, reporter: Reporter) -> Supply:
        found = _data(settings, options, signals, reporter, returns_to_go=returns_to_go)

        def engine(learner: Learner[Any, Any]) -> Engine:
            source = _source(learner, found.train, settings, reporter)
            budget, block = total_steps(settings, source.steps_per_epoch), settings.finetune
            if block is None:
                return OfflineEngine(learner, source, settings.schedules, budget)
            switch = block.from_step or budget
            if switch > budget:
                raise ConfigError(f"finetune.from_step = {switch} lies beyond the offline budget of {budget} steps")
            prior = in_memory(found.train, "a finetune")
            online = finetune_engine(learner, settings, block, switch, prior, run_dir / "replay", reporter.warn)
            offline = OfflineEngine(learner, source, settings.schedules, switch, span=budget)
            return TwoPhaseEngine(offline, online, planned_steps=budget)

        return _supply(found, engine)

    return _train(settings, build, run_dir, options, supply)


def train_online(settings: RunSettings, build: BuildLearner, run_dir: Path, options: TrainOptions) -> TrainingResult:
    """Train in the environment until the budget ends, one environment per member; `run_dir` receives what it leaves."""
    if options.dataset is not None:
        raise ConfigError(f"{settings.algo} learns online and takes no dataset")

    def supply(_signals: SignalWatch, reporter: Reporter) -> Supply:
        spaces = infer_env_spaces(environment_of(settings))
        transforms = Transforms.unfitted(spaces.observation_dim, settings.algo_kwargs.reward)

        def engine(learner: Learner[Any, Any]) -> Engine:
            return online_engine(learner, settings, spaces, transforms, run_dir / "replay", reporter.warn)

        return Supply(spaces, transforms, None, engine)

    return _train(settings, build, run_dir, options, supply)


def train_with_prior_data(settings: RunSettings, build: BuildLearner, run_dir: Path, options: TrainOptions) -> TrainingResult:
    """Train in the environment on batches that hold a share of prior data, after `offline_pretrain_updates` on it alone."""

    def supply(signals: SignalWatch, reporter: Reporter) -> Supply:
        environment_of(settings)
        found = _data(settings, options, signals, reporter)
        data = in_memory(found.train, settings.algo)

        def engine(learner: Learner[Any, Any]) -> Engine:
            replay_dir, pretraining = run_dir / "replay", settings.algo_kwargs.offline_pretrain_updates
            online = online_engine(learner, settings, data.spaces, data.transforms, replay_dir, reporter.warn, data)
            if not pretraining:
                return online
            source = _source(learner, data, settings, reporter, prior=True)
            offline = OfflineEngine(learner, source, {}, pretraining)
            return TwoPhaseEngine(offline, online, planned_steps=pretraining + online.planned_steps)

        return _supply(found, engine)

    return _train(settings, build, run_dir, options, supply)


def _data(
    settings: RunSettings, options: TrainOptions, signals: SignalWatch, reporter: Reporter, *, returns_to_go: bool = False
) -> OfflineData:
    """The data of a run, the one the checkpoint knows."""
    check = signals.raise_if_stopped
    found = offline_data(settings, options.dataset, reporter, check, returns_to_go=returns_to_go)
    _check_same_data(found.fingerprint, options.resume_from)
    return found


def _supply(found: OfflineData, engine: Callable[[Learner[Any, Any]], Engine]) -> Supply:
    train = found.train
    return Supply(train.spaces, train.transforms, found.dataset, engine, found.fingerprint, found.validation)


def _source(
    learner: Learner[Any, Any], data: RunData, settings: RunSettings, reporter: Reporter, *, prior: bool = False
) -> BatchSource:
    model = learner.model
    source = batch_source(data, model.seed_tensor, settings.algo_kwargs.batch_size, model.device, prior=prior)
    if isinstance(source, PrefetchedSource):
        reporter.note(f"data: {source.whereabouts}")
    return source


def _train(
    settings: RunSettings,
    build: BuildLearner,
    run_dir: Path,
    options: TrainOptions,
    make_supply: Callable[[SignalWatch, Reporter], Supply],
) -> TrainingResult:
    reporter = options.reporter or QuietReporter()
    checkpoint = options.resume_from
    with SignalWatch() as signals, contextlib.closing(reporter):
        device = resolve_device(settings.device)
        check_engine(settings, device)
        supply = make_supply(signals, reporter)
        try:
            learner = build(supply.spaces, settings.member_seeds, device, settings.algo_kwargs, settings.member_knobs)
            with contextlib.closing(supply.engine(learner)) as engine:
                stored = checkpoint.state["environment"] if checkpoint else None
                resolved = resolve_engine(settings, learner, stored, engine.planned_steps)
                if checkpoint is not None and (difference := _differences(checkpoint, resolved.record())):
                    reporter.warn(f"not bit-exact: the checkpoint was written with {difference}")
                acceleration = Acceleration(resolved, reporter.warn, reporter.note)
                engine.accelerate(acceleration)
                if checkpoint is not None and engine.total < (taken := engine.position(checkpoint)):
                    raise ConfigError(f"the budget of {engine.total} steps is below the {taken} of {checkpoint.path}")
                if options.on_ready is not None:
                    options.on_ready(supply.dataset)
                parts = LoopParts(
                    settings=settings,
                    learner=learner,
                    engine=engine,
                    acceleration=acceleration,
                    spaces=supply.spaces,
                    transforms=supply.transforms,
                    dataset_fingerprint=supply.fingerprint,
                    validation=supply.validation,
                    run_dir=run_dir,
                    signals=signals,
                    reporter=reporter,
                    callbacks=options.callbacks,
                    resume_from=checkpoint,
                    continue_metrics=options.continue_metrics,
                )
                with applied(resolved):
                    return TrainingLoop(parts).run()
        except torch.OutOfMemoryError as error:
            raise StorageError(
                f"the device ran out of memory; lower batch_size or the number of members ({error})"
            ) from error


def total_steps(settings: RunSettings, steps_per_epoch: int) -> int:
    """Return the gradient steps of a run: the smallest of its budgets."""
    budgets = [settings.total_timesteps]
    if settings.max_epochs is not None:
        budgets.append(settings.max_epochs * steps_per_epoch)
    if settings.max_updates is not None:
        budgets.append(settings.max_updates)
    return min(budgets)


def _check_same_data(fingerprint: str, checkpoint: Checkpoint | None) -> None:
    known = fingerprint if checkpoint is None else checkpoint.state.get("dataset_fingerprint")
    if known != fingerprint:
        raise DatasetError(f"the data has changed since the checkpoint: {fingerprint} now, {known} then")


def _differences(checkpoint: Checkpoint, now: dict[str, Any]) -> str:
    then: dict[str, Any] = checkpoint.state["environment"]
    if set(then) != set(now):
        raise CheckpointError(f"{checkpoint.path}: its record of the engine is incomplete")
    return ", ".join(f"{key} {then[key]} (now {now[key]})" for key in sorted(now) if then[key] != now[key])
