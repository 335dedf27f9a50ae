"""Builds the phases of a run from its config."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.algorithms.learner import Learner
from rl_training.config.blocks import CollectionConfig
from rl_training.config.finetune import FinetuneConfig
from rl_training.config.run import RunConfig
from rl_training.config.schedules import ScheduleConfig
from rl_training.data.n_step import NStep
from rl_training.data.processing import ProcessedDataset, RunData, in_memory
from rl_training.data.replay_buffer import ReplayBuffer, Returns
from rl_training.data.returns import compute_returns_to_go
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.collector import Collector
from rl_training.envs.environments import check_fits, infer_env_spaces, time_limit, unused_range
from rl_training.envs.workers.count import open_batch
from rl_training.errors import ConfigError
from rl_training.registry import get_spec
from rl_training.runtime.batches.prefetch import PrefetchedBatches, dataset_batches
from rl_training.runtime.execution.steps import GradientSteps
from rl_training.runtime.phases.base import Phase, in_sequence
from rl_training.runtime.phases.offline import OfflinePhase
from rl_training.runtime.phases.online import OnlinePhase, OnlinePlan, PriorShare, UpdateRhythm
from rl_training.runtime.progress import Reporter
from rl_training.runtime.sharing.batch_share import BatchShare

Schedules = dict[str, ScheduleConfig]


@dataclass(frozen=True)
class PhaseBuilder:
    """Builds phases from the parts of a run; they are closed with `stack`."""

    config: RunConfig[Any]
    learner: Learner[Any, Any]
    spaces: Spaces
    transforms: Transforms
    data: RunData | None
    replay_dir: Path
    reporter: Reporter
    stack: ExitStack
    share: BatchShare | None = None

    def offline(self, schedules: Schedules, length: Callable[[int], int], *, prior: bool = False) -> OfflinePhase:
        """Return gradient steps on the data; `length` maps an epoch's steps to their number, which schedules span."""
        if self.data is None:
            raise ConfigError(f"{self.config.algo} has no data to learn from")
        model, batch_size = self.learner.model, self.config.algo_kwargs.batch_size
        batches = dataset_batches(self.data, model.seed_tensor, batch_size, model.device, prior=prior)
        if isinstance(batches, PrefetchedBatches):
            self.reporter.note(f"data: {batches.location}")
        steps_per_epoch = -(-len(self.data) // batch_size)
        steps = GradientSteps(self.learner, batches, members=len(self.config.member_seeds), share=self.share)
        phase = OfflinePhase(steps, schedules, length(steps_per_epoch))
        phase.environment, phase.rhythm = self.config.environment, self.config.rhythm
        return self.stack.enter_context(closing(phase))

    def online(self, plan: OnlinePlan, schedules: Schedules, capacity: int, prior: ProcessedDataset | None) -> OnlinePhase:
        """Return interaction with the environment; `prior` data is stored in the replay buffer with what is collected."""
        config, model, env = self.config, self.learner.model, self.config.final_environment
        if env is None:
            raise ConfigError(f"{config.algo} learns in an environment: set env_id")
        own = infer_env_spaces(env)
        check_fits(self.spaces, own, env)
        if note := unused_range(self.spaces, own, env):
            self.reporter.note(note)
        needs = get_spec(config.algo).needs
        buffer = ReplayBuffer(
            min(capacity, plan.env_steps),
            model.observation_dim,
            model.action_dim,
            members=model.members,
            device=model.device,
            prior=None if prior is None else prior.replay_rows,
            returns=_returns(config.algo_kwargs) if "returns_to_go" in needs else None,
            next_actions="next_actions" in needs,
            n_step=NStep.of(config.algo_kwargs),
        )
        envs = open_batch(env, model.members, config.workers, config.env_timeout)
        collector = Collector(env, model.seeds, self.spaces, self.transforms, envs)
        phase = OnlinePhase(self.learner, plan, schedules, buffer, collector, self.replay_dir, self.reporter.warn)
        phase.environment, phase.rhythm = env, config.final_rhythm
        if not phase.gradient_steps:
            self.reporter.warn(
                f"nothing will be learned online: the first update comes after learning_starts = {plan.rhythm.starts:,} "
                f"environment steps, and there are {plan.env_steps:,}"
            )
        return self.stack.enter_context(closing(phase))


def offline_phases(builder: PhaseBuilder) -> tuple[list[Phase], int]:
    """Return gradient steps on the data, then interaction if the config has a `finetune` block; and the planned steps.

    Planned steps leave out the finetune: it may be requested before the run starts or after it has ended, and must not
    change how the run is executed.
    """
    config, block = builder.config, builder.config.finetune
    phase = builder.offline(config.schedules, lambda steps_per_epoch: total_steps(config, steps_per_epoch))
    budget = phase.length
    if block is None:
        return [phase], budget
    switch = block.from_step or budget
    if switch > budget:
        raise ConfigError(f"finetune.from_step = {switch} lies beyond the offline budget of {budget} steps")
    phase.length = switch  # schedules still span the whole budget
    fresh = block.replay == "fresh"
    if fresh:
        _check_episodes_end_first(config, block)
    prior = None if builder.data is None or fresh else in_memory(builder.data, "a finetune")
    online = builder.online(_finetune_plan(config, block, switch), {}, block.buffer_capacity, prior)
    return in_sequence([phase, online]), budget


def online_phases(builder: PhaseBuilder) -> tuple[list[Phase], int]:
    """Return interaction, preceded by gradient steps on prior data only if the config has them; and the planned steps."""
    config, kwargs = builder.config, builder.config.algo_kwargs
    prior = None if builder.data is None else in_memory(builder.data, config.algo)
    pretraining = 0 if prior is None else kwargs.offline_pretrain_updates
    rhythm = _rhythm(kwargs)
    env_steps = config.total_timesteps
    if config.max_updates is not None:
        env_steps = min(env_steps, rhythm.env_steps(config.max_updates))
    plan = OnlinePlan(
        env_steps=env_steps,
        batch_size=kwargs.batch_size,
        rhythm=rhythm,
        random_steps=kwargs.learning_starts,
        first_gradient_step=pretraining,
        share=None if prior is None else PriorShare(kwargs.offline_batch_ratio, kwargs.offline_batch_ratio, 0),
    )
    online = builder.online(plan, config.schedules, kwargs.buffer_capacity, prior)
    if not pretraining:
        return [online], online.gradient_steps
    offline = builder.offline({}, lambda _: pretraining, prior=True)
    return in_sequence([offline, online]), pretraining + online.gradient_steps


def total_steps(config: RunConfig[Any], steps_per_epoch: int) -> int:
    """Return the gradient steps of an offline run: the smallest of its budgets."""
    epochs = None if config.max_epochs is None else config.max_epochs * steps_per_epoch
    return min(budget for budget in (config.total_timesteps, epochs, config.max_updates) if budget is not None)


def _finetune_plan(config: RunConfig[Any], block: FinetuneConfig, switch: int) -> OnlinePlan:
    """The online phase of an offline run that has taken `switch` gradient steps."""
    end = block.prior_ratio if block.prior_ratio_end is None else block.prior_ratio_end
    return OnlinePlan(
        env_steps=block.env_steps,
        batch_size=config.algo_kwargs.batch_size,
        rhythm=_rhythm(block),
        random_steps=0,
        first_gradient_step=switch,
        share=PriorShare(block.prior_ratio, end, block.env_steps) if block.replay == "mixed" else None,
        rate=block.learning_rate_factor,
        changes=block.changes,
    )


def _check_episodes_end_first(config: RunConfig[Any], block: FinetuneConfig) -> None:
    """Refuse updates that would come before there is anything to sample, where episodes are sampled once they have ended."""
    longest = None if config.final_environment is None else time_limit(config.final_environment)
    if "returns_to_go" in get_spec(config.algo).needs and longest is not None and block.learning_starts < longest:
        raise ConfigError(
            f"{config.algo} samples an episode once it has ended, and one may take {longest} steps: "
            f"with `replay: fresh` set finetune.learning_starts to at least {longest}"
        )


def offline_steps(config: RunConfig[Any], step: int, env_step: int | None) -> int:
    """Return how many of a run's gradient steps were taken on data alone, before its first environment step."""
    return step if env_step is None else step - _rhythm(config.finetune or config.algo_kwargs).gradient_steps(env_step)


def _rhythm(config: CollectionConfig) -> UpdateRhythm:
    return UpdateRhythm(config.learning_starts, config.train_frequency, config.gradient_updates_per_step)


def _returns(kwargs: Any) -> Returns:
    """The function that computes the returns of fresh episodes, as for the data."""
    return partial(compute_returns_to_go, gamma=kwargs.gamma, tail=kwargs.tail, failure_reward=kwargs.failure_reward)
