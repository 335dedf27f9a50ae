"""The online phase: collect a transition per member, then take the gradient steps that are due."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.learner import Learner, Metrics, Rounds
from rl_training.config.finetune import Change
from rl_training.config.schedules import ScheduleConfig
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.collector import Collector
from rl_training.errors import CheckpointError, ConfigError, EnvironmentFailedError
from rl_training.runtime.batches.replay import ReplayBatches
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.checkpoints.replay_store import ReplayStore, read_replay
from rl_training.runtime.execution.interaction import Interaction
from rl_training.runtime.execution.mode import CHUNK_LIMIT
from rl_training.runtime.execution.steps import Executor, GradientSteps
from rl_training.runtime.phases.base import Phase
from rl_training.runtime.phases.knobs import KnobChanges


@contextmanager
def _failing_after(taken: int) -> Iterator[None]:
    """Say how many steps were complete when an environment fails inside."""
    try:
        yield
    except ConfigError as error:
        raise EnvironmentFailedError(str(error), taken) from error


@dataclass(frozen=True)
class UpdateRhythm:
    """When updates happen: `updates` of them every `frequency` environment steps, once `starts` steps are taken."""

    starts: int
    frequency: int
    updates: int

    def _rounds_before_start(self) -> int:
        return (max(self.starts, 1) - 1) // self.frequency

    def gradient_steps(self, env_step: int) -> int:
        """Return the gradient steps taken once `env_step` environment steps are done."""
        return max(0, env_step // self.frequency - self._rounds_before_start()) * self.updates

    def env_steps(self, gradient_steps: int) -> int:
        """Return the environment steps up to the last round of updates that fits into a budget of gradient steps."""
        return (self._rounds_before_start() + gradient_steps // self.updates) * self.frequency


@dataclass(frozen=True)
class PriorShare:
    """The share of prior data in a batch: annealed from `start` to `end` over `anneal_steps` environment steps."""

    start: float
    end: float
    anneal_steps: int

    def rows(self, env_step: int, batch_size: int) -> int:
        """Return the prior rows of a batch: the rounded share."""
        done = min(env_step / self.anneal_steps, 1.0) if self.anneal_steps > 0 else 1.0
        return round((self.start + (self.end - self.start) * done) * batch_size)


@dataclass(frozen=True)
class OnlinePlan:
    """The settings of an online phase, independent of the algorithm."""

    env_steps: int
    batch_size: int
    rhythm: UpdateRhythm
    random_steps: int  # environment steps with uniformly random actions at the start
    first_gradient_step: int = 0  # gradient steps taken before the phase
    share: PriorShare | None = None  # None: prior data, if any, and fresh transitions are one pool
    rate: float = 1.0  # factor of every learning rate
    changes: Mapping[str, Change] = field(default_factory=dict)  # knobs that differ from the offline phase


class OnlinePhase(Phase):
    """Environment steps with gradient steps at fixed intervals; the unit is an environment step."""

    unit = "env step"

    def __init__(
        self,
        learner: Learner[Any, Any],
        plan: OnlinePlan,
        schedules: Mapping[str, ScheduleConfig],
        buffer: ReplayBuffer,
        collector: Collector,
        replay_dir: Path,
        warn: Callable[[str], None],
    ) -> None:
        self.interaction = Interaction(learner, buffer, plan.random_steps)
        inbox, seeds = self.interaction.inbox, learner.model.seed_tensor
        self.batches = ReplayBatches(buffer, seeds, plan.batch_size, inbox, shared=plan.share is not None)
        rounds = Rounds(plan.first_gradient_step, plan.rhythm.updates)
        super().__init__(GradientSteps(learner, self.batches, rounds), schedules, plan.env_steps)
        self.plan, self.buffer, self.collector, self.warn = plan, buffer, collector, warn
        self.busy_cores = 1 + collector.envs.processes
        self.store = ReplayStore(replay_dir)
        self.knobs = KnobChanges(learner, plan.changes, plan.env_steps)

    @property
    def chunk(self) -> int:
        """The maximum number of environment steps between two checks of the watchdog and the signals."""
        updates_per_step = self.plan.rhythm.updates / self.plan.rhythm.frequency
        return max(1, min(CHUNK_LIMIT, int(self.steps.chunk / updates_per_step)))

    def rates(self, done: int) -> dict[str, float]:
        """Return the learning-rate factor of each group."""
        return {group: rate * self.plan.rate * self.knobs.rate(group, done) for group, rate in super().rates(done).items()}

    @property
    def gradient_steps(self) -> int:
        """The gradient steps of the whole phase."""
        return self.plan.rhythm.gradient_steps(self.length)

    def execute_with(self, executor: Executor) -> None:
        """Use an executor for gradient steps and acting."""
        super().execute_with(executor)
        if not self.knobs.change_acting:  # otherwise what was traced once would stay as it was
            self.interaction.execute_with(executor)

    def run(self, done: int, count: int) -> Metrics:
        """Take `count` environment steps and their updates."""
        rhythm, watch = self.plan.rhythm, self.watch
        last, metrics = rhythm.gradient_steps(done + count), Metrics()
        with _failing_after(0):
            self.collector.begin_episodes()
        for env_step in range(done, done + count):
            ending = env_step + 1 == done + count
            watch.switch("acting")
            self.knobs.apply(env_step)
            if env_step == done or self.knobs.change_acting:  # otherwise they were chosen with the updates of the last step
                self._choose(env_step)
            actions = self.interaction.actions(env_step)
            watch.switch("environments")
            with _failing_after(env_step - done):
                transition = self.collector.step(actions)
            failure = self._begin_episodes()
            watch.switch("rest")
            self._write(transition, env_step + 1)
            watch.switch("gradient_steps")
            begin, end = rhythm.gradient_steps(env_step), rhythm.gradient_steps(env_step + 1)
            report = begin < end == last
            found = self._learn(env_step, begin, end - begin, report=report, choose=not ending)
            metrics = found if report else metrics
            if failure is not None and not ending:  # at a boundary hooks come first: it fails again before the next step
                raise EnvironmentFailedError(str(failure), env_step + 1 - done) from failure
        return metrics

    def _begin_episodes(self) -> ConfigError | None:
        """Begin new episodes where the last have ended; return the failure of an environment."""
        try:
            self.collector.begin_episodes()
        except ConfigError as error:
            return error
        return None

    def _choose(self, env_step: int) -> None:
        """Have the actions of a step chosen, unless they are random."""
        if self.interaction.is_random(env_step):
            return
        self.interaction.inbox.wait()
        self.interaction.look(self.collector.observations(), env_step)
        self.interaction.inbox.send()
        if self.knobs.change_acting:  # which a graph would not notice
            self.interaction.choose()
        else:
            first = self.plan.first_gradient_step + self.plan.rhythm.gradient_steps(env_step)
            self.steps.run(first, 0, after=self.interaction.choose)
        self.interaction.fetch()

    def _write(self, transition: Mapping[str, NDArray[Any]], next_step: int) -> None:
        """Write the transition, and what is observed before the next step, into the inbox."""
        interaction, buffer = self.interaction, self.buffer
        interaction.inbox.wait()
        interaction.pack(transition)
        interaction.look(self.collector.observations(), next_step)
        if buffer.waits:  # rows that are completed by this transition are read back now
            interaction.inbox.send()
            interaction.store()
        buffer.count(transition, self.collector.frozen)

    def _learn(self, env_step: int, done: int, count: int, *, report: bool, choose: bool) -> Metrics:
        """Store the transition, take a round of updates, and have the next actions chosen; with `report`, return metrics."""
        interaction, share, moving = self.interaction, self.plan.share, None
        if count:
            self.batches.refresh(0 if share is None else share.rows(env_step, self.plan.batch_size))
            rates = self.rates(env_step)
            moving = (lambda _offset: rates) if any(rate != 1.0 for rate in rates.values()) else None
        interaction.inbox.send()
        before = None if self.buffer.waits else interaction.store
        choose = choose and not interaction.is_random(env_step + 1) and not self.knobs.change_acting
        first = self.plan.first_gradient_step + done
        metrics = self.steps.run(
            first, count, moving, report=report, before=before, after=interaction.choose if choose else None
        )
        interaction.fetch()
        return metrics

    def counters(self, done: int) -> dict[str, int]:
        """Return environment steps and gradient steps."""
        return {"env_step": done, "step": self.plan.first_gradient_step + self.plan.rhythm.gradient_steps(done)}

    def member_metrics(self, member: int) -> dict[str, float]:
        """Return the metrics of a member's last complete episode."""
        return self.collector.metrics(member)

    def freeze(self, members: Collection[int]) -> None:
        """Stop stepping the environments of stopped members."""
        self.collector.freeze(members)

    def tensors(self) -> dict[str, Tensor]:
        """Return the current episodes, and the transitions that may still change when their episode ends."""
        pending = self.buffer.rows(self._settled(), self.buffer.added)
        return {**self.collector.tensors(), "online/pending": torch.from_numpy(pending)}

    def _settled(self) -> int:
        """The number of transitions that will not change any more for any member."""
        return max(int(self.buffer.ready.min()), self.buffer.oldest)

    def write_files(self) -> dict[str, Any]:
        """Write the transitions that are new since the last checkpoint; return the segments of all the buffer holds."""
        return {"replay": self.store.save(self.buffer, self._settled())}

    def state(self) -> dict[str, Any]:
        """Return the episodes, how many transitions of each member may be sampled, and which were forgotten."""
        forgotten = {"replay_from": self.buffer.first} if self.buffer.first else {}
        return {"episodes": self.collector.state(), "replay_ready": self.buffer.ready.tolist(), **forgotten}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore replay and environments."""
        if "episodes" not in checkpoint.state or checkpoint.env_step is None:
            raise CheckpointError(f"{checkpoint.path}: is not the checkpoint of an online run")
        if checkpoint.forget_replay:
            self._collect_anew(checkpoint, checkpoint.env_step)
        else:
            self._restore_replay(checkpoint, checkpoint.env_step)
        self.knobs.apply(max(checkpoint.env_step - 1, 0))  # the last step's, for hooks that are pending

    def _collect_anew(self, checkpoint: Checkpoint, env_step: int) -> None:
        """Fill the replay by the policy as it is, in place of one that is lost; the steps count for nothing else."""
        count = min(env_step, self.buffer.capacity, max(self.plan.rhythm.starts, self.plan.batch_size))
        self.collector.begin_anew(checkpoint.state["episodes"], checkpoint.tensors)
        self.buffer.begin_at(env_step - count)
        for step in range(env_step - count, env_step):
            self.knobs.apply(step)
            self._choose(step)
            transition = self.collector.step(self.interaction.actions(step))
            self.collector.begin_episodes()
            self._write(transition, step + 1)
            self._learn(step, self.plan.rhythm.gradient_steps(step), 0, report=False, choose=False)
        self.warn(
            f"not bit-exact from {self.label(env_step)} on: the replay was forgotten (--forget-replay), "
            f"and {count:,} transitions were collected anew"
        )

    def _restore_replay(self, checkpoint: Checkpoint, env_step: int) -> None:
        rows = self._stored_rows(checkpoint, env_step)
        self.buffer.restore(rows, env_step, checkpoint.state["replay_ready"], checkpoint.state.get("replay_from", 0))
        lost = self.collector.restore(checkpoint.state["episodes"], checkpoint.tensors, self.warn)
        for member in lost:
            self.buffer.cut(member)
        if not lost:  # otherwise the rows have changed, and the next save rewrites them
            self.store.adopt(checkpoint)

    def _stored_rows(self, checkpoint: Checkpoint, added: int) -> NDArray[np.float32]:
        """The transitions of a checkpoint, settled and pending; raise unless they are exactly those the buffer held."""
        try:
            pending, segments = checkpoint.tensors["online/pending"].numpy(), checkpoint.state["replay"]
            settled = read_replay(checkpoint)
            rows = np.concatenate((settled, pending), axis=1) if segments else pending
            first = segments[0]["first"] if segments else added - pending.shape[1]
            shape = (self.buffer.members, added - first, self.buffer.layout.width)
            kept = added - checkpoint.state.get("replay_from", 0)
            if rows.shape != shape or rows.shape[1] < min(kept, self.buffer.capacity):
                raise CheckpointError(f"{checkpoint.path}: its replay is {rows.shape}, {shape} is needed")
            if len(checkpoint.state["replay_ready"]) != self.buffer.members:
                raise CheckpointError(f"{checkpoint.path}: its replay has another number of members")
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{checkpoint.path}: its replay is described in an unknown way ({error})") from error
        return rows

    def prune_files(self, referenced: Callable[[], Collection[str] | None]) -> None:
        """Remove the segments that no checkpoint refers to; keep all if a checkpoint cannot be read."""
        if (names := referenced()) is not None:
            self.store.prune(names)

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()
