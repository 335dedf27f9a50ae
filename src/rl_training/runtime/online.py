"""Online training: collect a transition per member, then take the gradient steps that are due."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.algorithms.learner import Learner, Metrics
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError
from rl_training.rng import Draws
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.collector import Collector
from rl_training.runtime.engine import CHUNK_LIMIT, Engine, chunk_length
from rl_training.runtime.replay_store import ReplayStore, read_replay
from rl_training.runtime.settings import RunSettings


class UpdateRhythm:
    """Which environment steps are followed by updates: every `frequency` steps once `starts` are taken, `updates` each."""

    def __init__(self, starts: int, frequency: int, updates: int) -> None:
        self.starts, self.frequency, self.updates = max(starts, 1), frequency, updates

    def gradient_steps(self, env_step: int) -> int:
        """Return the gradient steps taken once `env_step` environment steps are done."""
        rounds = env_step // self.frequency - (self.starts - 1) // self.frequency
        return max(0, rounds) * self.updates

    def env_steps(self, gradient_steps: int) -> int:
        """Return the environment steps after which no further round fits into a budget of gradient steps."""
        rounds = gradient_steps // self.updates
        return ((self.starts - 1) // self.frequency + rounds) * self.frequency


class OnlineEngine(Engine):
    """Interaction and gradient steps in a fixed rhythm; a position is an environment step."""

    unit = "env step"

    def __init__(
        self,
        learner: Learner[Any, Any],
        settings: RunSettings,
        spaces: Spaces,
        transforms: Transforms,
        replay_dir: Path,
        warn: Callable[[str], None],
    ) -> None:
        kwargs, model = settings.algo_kwargs, learner.model
        self.rhythm = UpdateRhythm(kwargs.learning_starts, kwargs.train_frequency, kwargs.gradient_updates_per_step)
        total = settings.total_timesteps
        if settings.max_updates is not None:
            total = min(total, self.rhythm.env_steps(settings.max_updates))
        updates_per_step = kwargs.gradient_updates_per_step / kwargs.train_frequency
        chunk = max(1, min(CHUNK_LIMIT, int(chunk_length(learner, kwargs.batch_size) / updates_per_step)))
        super().__init__(learner, settings.schedules, total, chunk)
        self.batch_size, self.learning_starts, self.warn = kwargs.batch_size, kwargs.learning_starts, warn
        capacity = min(kwargs.buffer_capacity, total)
        self.buffer = ReplayBuffer(
            capacity, model.observation_dim, model.action_dim, members=model.members, device=model.device
        )
        self.store = ReplayStore(replay_dir)
        self.collector = Collector(str(settings.env_id), model.seeds, spaces, transforms)
        self.collector.start()

    def run(self, first: int, count: int) -> Metrics:
        """Take `count` environment steps and the updates that belong to them."""
        seeds = self.learner.model.seed_tensor
        acting = Draws.of_steps(seeds, first, count)
        done = self.rhythm.gradient_steps(first)
        updates = self.rhythm.gradient_steps(first + count) - done
        slots, learning = self._slots(first, count), Draws.of_steps(seeds, done, updates)
        metrics: Metrics = {}
        taken = 0
        for env_step in range(first, first + count):
            actions = self._actions(env_step, acting.at(env_step - first))
            self.buffer.add(self.collector.step(actions))
            rates = self.rates(env_step)
            while taken < self.rhythm.gradient_steps(env_step + 1) - done:
                batch = self.buffer.batch(slots[:, taken])
                metrics = self.learner.train_step(batch, learning.at(taken), rates, report=taken == updates - 1)
                taken += 1
        return metrics

    def _actions(self, env_step: int, draws: Draws) -> NDArray[np.float32]:
        """Actions in [-1, 1], (members, action_dim): uniform at the start, then samples of the policy."""
        model = self.learner.model
        if env_step < self.learning_starts:
            return (draws.uniforms("collect/uniform", (model.action_dim,)) * 2.0 - 1.0).cpu().numpy()
        observations = torch.from_numpy(self.collector.observations()).to(model.device).unsqueeze(1)
        actions: Tensor = model.act(observations, draws.normals("collect/normal", (1, model.action_dim)))
        return actions[:, 0].cpu().numpy()

    def _slots(self, first: int, count: int) -> Tensor:
        """The slots of every update of a chunk, (members, updates, batch), each among what is held by then."""
        held = [
            min(env_step, self.buffer.capacity)
            for env_step in range(first + 1, first + count + 1)
            for _ in range(self.rhythm.gradient_steps(env_step) - self.rhythm.gradient_steps(env_step - 1))
        ]
        model, start = self.learner.model, self.rhythm.gradient_steps(first)
        steps = torch.arange(start, start + len(held), device=model.device)
        high = torch.tensor(held, dtype=torch.int64, device=model.device)
        return rng.integers(model.seed_tensor, "batches", steps, (self.batch_size,), high=high)

    def counters(self, position: int) -> dict[str, int]:
        """Return environment steps and gradient steps."""
        return {"env_step": position, "step": self.rhythm.gradient_steps(position)}

    def member_metrics(self, member: int) -> dict[str, float]:
        """Return what the last whole episode of a member gave."""
        return self.collector.metrics(member)

    def freeze(self, members: Collection[int]) -> None:
        """Let the environments of stopped members stand still."""
        self.collector.freeze(members)

    def tensors(self) -> dict[str, Tensor]:
        """Return the current episodes."""
        return self.collector.tensors()

    def state(self) -> dict[str, Any]:
        """Write the transitions that are new since the last checkpoint; return them and the episodes by reference."""
        return {"episodes": self.collector.state(), "replay": self.store.save(self.buffer)}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take back replay and environments."""
        if "episodes" not in checkpoint.state or checkpoint.env_step is None:
            raise CheckpointError(f"{checkpoint.path}: is not the checkpoint of an online run")
        self.buffer.restore(read_replay(checkpoint), checkpoint.env_step)
        self.store.adopt(checkpoint)
        self.collector.restore(checkpoint.state["episodes"], checkpoint.tensors, self.warn)

    def forget(self, referenced: Collection[str]) -> None:
        """Remove the segments that no checkpoint refers to."""
        self.store.prune(referenced)

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()
