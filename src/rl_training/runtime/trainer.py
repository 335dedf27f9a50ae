"""Builds every `train_<id>`: data or environment, learner, phases and loop."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from rl_training.algorithms.learner import Learner
from rl_training.config.blocks import AlgorithmKwargs
from rl_training.config.parts import without_effect
from rl_training.config.run import RunConfig
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.processing import action_variance
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import check_registered, infer_env_spaces, time_limit
from rl_training.envs.evaluation import MOST_STEPS
from rl_training.envs.scale.ordinary_scale import offset_warning, ordinary_scale, scale_note
from rl_training.envs.scale.random_steps import random_steps
from rl_training.errors import CheckpointError, ConfigError, StorageError, suggested
from rl_training.registry import get_spec
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.callbacks import CallbackLike
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.evaluating.selecting import selector
from rl_training.runtime.execution.mode import applied, check_execution, leave_lost_threads, resolve_device, resolve_execution
from rl_training.runtime.execution.steps import Executor
from rl_training.runtime.loop import TrainingLoop
from rl_training.runtime.loop_parts import LoopParts
from rl_training.runtime.offline_data import OfflineData, fitted_before, offline_data
from rl_training.runtime.phases.base import position_of
from rl_training.runtime.phases.build import PhaseBuilder, offline_phases, online_phases
from rl_training.runtime.progress import QuietReporter, Reporter
from rl_training.runtime.result import TrainingResult
from rl_training.runtime.sharing.batch_share import BatchShare
from rl_training.runtime.sharing.ranks import BatchRanks, Ranks
from rl_training.runtime.signals import SignalWatch

OnReady = Callable[[OfflineData | None, dict[str, Any] | None], None]
"""Is told the data of a run, and what random actions earned before it."""


@dataclass(frozen=True)
class TrainOptions:
    """What a trainer takes in addition to its config."""

    callbacks: Sequence[CallbackLike] = ()
    dataset: TransitionDataset | None = None
    resume_from: Checkpoint | None = None
    continue_metrics: bool = False
    reporter: Reporter | None = None
    go_on: str | None = None  # the command that continues an interrupted run; `rl-training resume` by default
    on_ready: OnReady | None = None  # called once all is checked, before the run writes
    signals: SignalWatch | None = None  # an open one, if somebody watches already
    ranks: Ranks | None = None  # the processes that share the members; by default this one has them all


class Trainer(Protocol):
    """Trains one algorithm."""

    def __call__(self, config: RunConfig[Any], run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
        """Train to the end of the budget; `run_dir` receives metrics, checkpoints and the replay of an online run."""


def trainer(algo: str) -> Trainer:
    """Return the `train_<id>` of an algorithm, as defined by its row in the registry."""
    get_spec(algo)

    def train(config: RunConfig[Any], run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
        if config.algo != algo:
            raise ConfigError(f"train_{algo} was given a config of {config.algo}")
        return _train(config, Path(run_dir), options or TrainOptions())

    train.__name__ = train.__qualname__ = f"train_{algo}"
    return train


def _train(config: RunConfig[Any], run_dir: Path, options: TrainOptions) -> TrainingResult:
    """Train to the end of the budget, from the beginning or by an exact resume from a checkpoint."""
    reporter, checkpoint = options.reporter or QuietReporter(), options.resume_from
    ranks = options.ranks or Ranks(len(config.member_seeds))
    watch = contextlib.nullcontext(options.signals) if options.signals else SignalWatch(patient=ranks.count > 1)
    with (
        watch as signals,
        contextlib.closing(reporter),
        contextlib.ExitStack() as stack,
        _out_of_memory_reported(),
        torch.inference_mode(False),
        torch.enable_grad(),  # whatever the caller has switched off
    ):
        leave_lost_threads(reporter.warn)
        device = resolve_device(ranks.use_device(config.device))
        check_execution(config, device)
        for env in filter(None, (config.environment, config.final_environment)):
            check_registered(env)  # before data is read, which may take long
        found, play = _data(config, options, signals, reporter), None
        if found is not None:
            spaces, transforms = found.train.spaces, found.train.transforms
        else:
            spaces = infer_env_spaces(config.environment or "")
            transforms, play = _scaled(config, spaces, checkpoint, signals, reporter)
        data = None if found is None else found.train
        kwargs = config.algo_kwargs if data is None else config.algo_kwargs.fitted(partial(action_variance, data))
        own = slice(ranks.own.start, ranks.own.stop)
        learner = build_learner(config.algo, spaces, config.member_seeds[own], device, kwargs, config.member_knobs[own])
        if ranks.count > 1:
            reporter.note(ranks.work)
        share = _batch_share(ranks, learner)
        _note_fitted(config, kwargs, reporter)
        for name, reason in without_effect(config.algo_kwargs).items():
            reporter.warn(f"`algo_kwargs.{name}` does nothing: {reason}")

        if config.eval_mode == "beside" and config.final_environment is None:
            reporter.warn("`eval_mode` does nothing: there is no environment to evaluate in")
        _warn_of_endless_episodes(config, reporter)
        chosen_by = selector(config, learner, found)
        builder = PhaseBuilder(config, learner, spaces, transforms, data, run_dir / "replay", reporter, stack, share)
        phases, planned_steps = online_phases(builder) if get_spec(config.algo).online else offline_phases(builder)

        stored = checkpoint.execution if checkpoint else None
        execution = resolve_execution(config, learner, stored, planned_steps, batch_parts=share.part[1] if share else 1)
        executor = Executor(execution, reporter.warn, reporter.note)
        if checkpoint is not None and (difference := _differences(checkpoint, executor.execution.record())):
            reporter.warn(f"not bit-exact: the checkpoint was written with {difference}")
        for phase in phases:
            phase.execute_with(executor)

        total = phases[-1].last
        if checkpoint is not None and total < (taken := position_of(phases, checkpoint)):
            unit, before = phases[-1].unit, phases[-1].first
            counted = f"{total - before:,} {unit}s is below the {taken - before:,} that {checkpoint.path} has taken already"
            raise ConfigError(f"the budget of {counted}; give more")
        signals.raise_if_stopped()
        if options.on_ready is not None:
            options.on_ready(found, play)
        parts = LoopParts(
            config=config,
            learner=learner,
            phases=phases,
            executor=executor,
            spaces=spaces,
            transforms=transforms,
            dataset_fingerprint=None if found is None else found.fingerprint,
            validation=None if found is None else found.validation,
            run_dir=run_dir,
            signals=signals,
            reporter=reporter,
            ranks=ranks,
            go_on=options.go_on or suggested("resume", run_dir, imports=config.env_imports),
            callbacks=options.callbacks,
            resume_from=checkpoint,
            continue_metrics=options.continue_metrics,
            selector=chosen_by,
        )
        with applied(executor.execution):
            return TrainingLoop(parts).run()


def _batch_share(ranks: Ranks, learner: Learner[Any, Any]) -> BatchShare | None:
    """The share of this rank in every batch; None where it has whole batches."""
    if not isinstance(ranks, BatchRanks):
        return None
    if learner.mixes_rows:
        raise ConfigError(
            f"{type(learner).__name__} with these knobs takes more than means over the rows of a batch (a largest value, a "
            "mean in a weight, dropout), so ranks cannot share it; start one process, or give as many --seeds as ranks"
        )
    return BatchShare(ranks, learner.model.device)


def _warn_of_endless_episodes(config: RunConfig[Any], reporter: Reporter) -> None:
    for env in {str(env): env for env in (config.environment, config.final_environment) if env is not None}.values():
        if time_limit(env) is None:
            waits = f"an evaluation waits until its episodes end, or cuts them after {MOST_STEPS:,} steps"
            reporter.warn(f"{env} has no time limit: {waits}; or set max_episode_steps")


def _note_fitted(config: RunConfig[Any], fitted: AlgorithmKwargs, reporter: Reporter) -> None:
    """Tell what `auto` became, unless every member has a value of its own."""
    before, after = config.algo_kwargs.model_dump(), fitted.model_dump()
    for name in [name for name in before if before[name] != after[name] and name not in config.member_knobs[0]]:
        reporter.note(f"{name}: {after[name]:.3g}, by the variance of the logged actions")


@contextlib.contextmanager
def _out_of_memory_reported() -> Any:
    """Turn an out-of-memory error of the device into a one-line StorageError."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise StorageError(f"the device ran out of memory; lower batch_size or the number of members ({error})") from error


def _data(config: RunConfig[Any], options: TrainOptions, signals: SignalWatch, reporter: Reporter) -> OfflineData | None:
    """The data of a run, checked to be that of its checkpoint; None where the run learns from the environment alone."""
    spec = get_spec(config.algo)
    if not spec.takes_data:
        if options.dataset is not None:
            raise ConfigError(f"{config.algo} learns online and takes no dataset")
        return None
    return offline_data(config, options.dataset, reporter, signals.raise_if_stopped, checkpoint=options.resume_from)


def _scaled(
    config: RunConfig[Any], spaces: Spaces, checkpoint: Checkpoint | None, signals: SignalWatch, reporter: Reporter
) -> tuple[Transforms, dict[str, Any] | None]:
    """The transforms of a run that learns in an environment alone, and what random actions earn there where they were tried.

    The transforms are those of its checkpoint, or by random steps.
    """
    if checkpoint is not None:
        return fitted_before(checkpoint).transforms, None
    kwargs = config.algo_kwargs
    if kwargs.normalize_observations is False and not kwargs.reward.is_automatic:
        return Transforms.unfitted(spaces.observation_dim, kwargs.reward), None
    source, stop = config.environment or "", signals.raise_if_stopped
    steps = random_steps(source, config.workers, config.env_timeout, stop, reporter.note)
    transforms = ordinary_scale(steps, kwargs.normalize_observations, kwargs.reward)
    names = spaces.observation_names or [f"observation {column}" for column in range(spaces.observation_dim)]
    if note := scale_note(transforms, names, len(steps.rewards)):
        reporter.note(note)
    if kwargs.reward.is_automatic and (warning := offset_warning(steps.rewards)):
        reporter.warn(warning)
    return transforms, steps.play


def _differences(checkpoint: Checkpoint, now: dict[str, Any]) -> str:
    """How the execution of a checkpoint differs from that of this run; empty where it does not."""
    now = {"batch_parts": 1, **now}
    then = {"batch_parts": 1, **checkpoint.execution}
    if set(then) != set(now):
        raise CheckpointError(f"{checkpoint.path}: its record of the execution is incomplete")
    return ", ".join(f"{key} {then[key]} (now {now[key]})" for key in sorted(now) if then[key] != now[key])
