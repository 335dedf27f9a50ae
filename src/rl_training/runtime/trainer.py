"""What every `train_<id>` shares: data, learner, engine and loop put together."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.learner import Learner
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.spaces import Spaces
from rl_training.errors import CheckpointError, ConfigError, DatasetError, StorageError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.engine import Engine, applied, resolve_device, resolve_engine
from rl_training.runtime.loop import LoopParts, TrainingLoop, TrainingResult
from rl_training.runtime.offline import DatasetSource, build_offline_dataset, process_offline_dataset
from rl_training.runtime.progress import QuietReporter, Reporter
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.signals import SignalWatch

BuildLearner = Callable[[Spaces, Sequence[int], torch.device, Any], Learner[Any, Any]]
"""Makes a learner from (spaces, seeds, device, algo_kwargs)."""


@dataclass(frozen=True)
class TrainOptions:
    """How a trainer is run, beside its settings."""

    callbacks: Sequence[Callback] = ()
    dataset: TransitionDataset | None = None
    resume_from: Checkpoint | None = None
    continue_metrics: bool = False
    reporter: Reporter | None = None
    on_ready: Callable[[TransitionDataset], None] | None = None  # everything is checked; the run is about to write


def train_offline(settings: RunSettings, build: BuildLearner, run_dir: Path, options: TrainOptions) -> TrainingResult:
    """Train from a fixed dataset until the budget ends; `run_dir` receives metrics and checkpoints."""
    reporter = options.reporter or QuietReporter()
    checkpoint = options.resume_from
    with SignalWatch() as signals, contextlib.closing(reporter):
        device = resolve_device(settings.device)
        dataset = options.dataset
        if dataset is None:
            dataset = build_offline_dataset(settings, signals.raise_if_stopped)
        _check_same_data(dataset, checkpoint)
        data = process_offline_dataset(dataset, settings)
        try:
            learner = build(data.spaces, settings.member_seeds, device, settings.algo_kwargs)
            source = DatasetSource(data, learner.model.seed_tensor, settings.algo_kwargs.batch_size, device)
            resolved = resolve_engine(settings, learner, checkpoint.state["environment"] if checkpoint else None)
            if checkpoint is not None and (difference := _differences(checkpoint, resolved.record())):
                reporter.warn(f"not bit-exact: the checkpoint was written with {difference}")
            total = total_steps(settings, source.steps_per_epoch)
            if checkpoint is not None and total < checkpoint.step:
                raise ConfigError(f"the budget of {total} steps is below the {checkpoint.step} of {checkpoint.path}")
            engine = Engine(learner, source, dict(settings.schedules), total)
            if options.on_ready is not None:
                options.on_ready(dataset)
            parts = LoopParts(
                settings=settings,
                learner=learner,
                engine=engine,
                resolved=resolved,
                spaces=data.spaces,
                transforms=data.transforms,
                dataset_fingerprint=data.fingerprint,
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
            raise StorageError(f"the device ran out of memory; lower batch_size or the number of seeds ({error})") from error


def total_steps(settings: RunSettings, steps_per_epoch: int) -> int:
    """Return the gradient steps of a run: the smallest of its budgets."""
    budgets = [settings.total_timesteps]
    if settings.max_epochs is not None:
        budgets.append(settings.max_epochs * steps_per_epoch)
    if settings.max_updates is not None:
        budgets.append(settings.max_updates)
    return min(budgets)


def _check_same_data(dataset: TransitionDataset, checkpoint: Checkpoint | None) -> None:
    if checkpoint is None:
        return
    known = checkpoint.state.get("dataset_fingerprint")
    if known != dataset.fingerprint:
        raise DatasetError(f"the data has changed since the checkpoint: {dataset.fingerprint} now, {known} then")


def _differences(checkpoint: Checkpoint, now: dict[str, Any]) -> str:
    then: dict[str, Any] = checkpoint.state["environment"]
    if set(then) != set(now):
        raise CheckpointError(f"{checkpoint.path}: its record of the engine is incomplete")
    return ", ".join(f"{key} {then[key]} (now {now[key]})" for key in sorted(now) if then[key] != now[key])
