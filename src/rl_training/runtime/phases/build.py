"""Online phases put together from a run's settings: plan, replay buffer, environments."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.algorithms.learner import Learner
from rl_training.data.replay_buffer import ReplayBuffer, Returns, replay_layout
from rl_training.data.returns import compute_returns_to_go
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import ConfigError
from rl_training.runtime.collector import Collector
from rl_training.runtime.online import OnlineEngine, OnlinePlan, PriorShare, UpdateRhythm
from rl_training.runtime.processing import ProcessedDataset
from rl_training.runtime.settings import CollectionSettings, FinetuneSettings, RunSettings

Warn = Callable[[str], None]


def environment_of(settings: RunSettings) -> str:
    """Return the environment of a run that needs one."""
    if settings.env_id is None:
        raise ConfigError(f"{settings.algo} learns in an environment: set env_id")
    return settings.env_id


def online_engine(
    learner: Learner[Any, Any],
    settings: RunSettings,
    spaces: Spaces,
    transforms: Transforms,
    replay_dir: Path,
    warn: Warn,
    prior: ProcessedDataset | None = None,
) -> OnlineEngine:
    """Return the engine of an algorithm that learns online, on mixed batches where there is prior data."""
    kwargs = settings.algo_kwargs
    rhythm = _rhythm(kwargs)
    env_steps = settings.total_timesteps
    if settings.max_updates is not None:
        env_steps = min(env_steps, rhythm.env_steps(settings.max_updates))
    plan = OnlinePlan(
        env_steps=env_steps,
        batch_size=kwargs.batch_size,
        rhythm=rhythm,
        random_steps=kwargs.learning_starts,
        first_gradient_step=kwargs.offline_pretrain_updates if prior else 0,
        share=PriorShare(kwargs.offline_batch_ratio, kwargs.offline_batch_ratio, 0) if prior else None,
    )
    buffer = _buffer(learner, min(kwargs.buffer_capacity, env_steps), prior)
    collector = Collector(environment_of(settings), learner.model.seeds, spaces, transforms)
    return OnlineEngine(learner, plan, settings.schedules, buffer, collector, replay_dir, warn)


def finetune_engine(
    learner: Learner[Any, Any],
    settings: RunSettings,
    block: FinetuneSettings,
    switch: int,
    data: ProcessedDataset,
    replay_dir: Path,
    warn: Warn,
) -> OnlineEngine:
    """Return the online phase of an offline run that has taken `switch` gradient steps."""
    end = block.prior_ratio if block.prior_ratio_end is None else block.prior_ratio_end
    plan = OnlinePlan(
        env_steps=block.env_steps,
        batch_size=settings.algo_kwargs.batch_size,
        rhythm=_rhythm(block),
        random_steps=0,
        first_gradient_step=switch,
        share=PriorShare(block.prior_ratio, end, block.env_steps) if block.replay == "mixed" else None,
    )
    buffer = _buffer(learner, min(block.buffer_capacity, block.env_steps), data, _returns(data, settings.algo_kwargs))
    collector = Collector(environment_of(settings), learner.model.seeds, data.spaces, data.transforms)
    return OnlineEngine(learner, plan, {}, buffer, collector, replay_dir, warn, rate=block.learning_rate_factor)


def _rhythm(settings: CollectionSettings) -> UpdateRhythm:
    return UpdateRhythm(settings.learning_starts, settings.train_frequency, settings.gradient_updates_per_step)


def _returns(data: ProcessedDataset, kwargs: Any) -> Returns | None:
    """How fresh episodes get their returns: as the data's rows got theirs, if they did."""
    if not any(name == "returns_to_go" for name, _ in data.layout.fields):
        return None
    return partial(compute_returns_to_go, gamma=kwargs.gamma, tail=kwargs.tail, failure_reward=kwargs.failure_reward)


def _buffer(
    learner: Learner[Any, Any], capacity: int, prior: ProcessedDataset | None, returns: Returns | None = None
) -> ReplayBuffer:
    model = learner.model
    shape = (model.observation_dim, model.action_dim)
    rows = prior.replay_rows(replay_layout(*shape, returns_to_go=returns is not None)) if prior else None
    return ReplayBuffer(capacity, *shape, members=model.members, device=model.device, prior=rows, returns=returns)
