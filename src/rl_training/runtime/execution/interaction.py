"""What an environment step does on the device beside gradient steps: it stores the new transitions and chooses actions.

Everything the device needs for that arrives in one copy, and the actions leave in one; random numbers are drawn for many
steps together. What is launched reads fixed memory, so that it can be captured in a CUDA graph with the gradient steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from rl_training import rng
from rl_training.algorithms.learner import Learner
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.models.base import StackedModel
from rl_training.runtime.batches.inbox import Inbox, Mark
from rl_training.runtime.execution.steps import Executor
from rl_training.runtime.execution.tracing import trace_acting

_STEPS_AHEAD, _NUMBERS_AHEAD = 1000, 2**20  # the most that is drawn at once


class Interaction:
    """The device's part of environment steps; actions are uniform for `random_steps`, then samples of the policy."""

    def __init__(self, learner: Learner[Any, Any], buffer: ReplayBuffer, random_steps: int) -> None:
        model = learner.model
        self._model: StackedModel = model
        self._buffer, self._random_steps = buffer, random_steps
        self._executor: Executor | None = None
        self._traced: fx.GraphModule | None = None
        members = model.members
        self.inbox = Inbox(
            {
                "slots": (torch.int64, (members,)),
                "offset": (torch.int64, (1,)),
                "available": (torch.int64, (members, 1)),
                "oldest": (torch.int64, ()),
                "share": (torch.int64, ()),
                "rows": (torch.float32, (members, buffer.layout.width)),
                "observations": (torch.float32, (members, model.observation_dim)),
            },
            model.device,
        )
        self._ahead = max(1, min(_STEPS_AHEAD, _NUMBERS_AHEAD // (members * model.action_dim)))
        self._drawn_from = -1  # the first step whose random numbers are at hand
        self._noise = torch.zeros(members, self._ahead, 1, model.action_dim, device=model.device)
        self._uniform = np.zeros((members, self._ahead, model.action_dim), dtype=np.float32)
        self._chosen = torch.zeros(members, model.action_dim, device=model.device)
        on_gpu = model.device.type == "cuda"
        self._outbox = torch.zeros_like(self._chosen, device="cpu").pin_memory() if on_gpu else self._chosen
        self._left = Mark(model.device) if on_gpu else None

    def execute_with(self, executor: Executor) -> None:
        """Trace the policy where steps are compiled for a GPU; called once, before the first step."""
        self._executor = executor

    def pack(self, transition: Mapping[str, NDArray[Any]]) -> None:
        """Write the transition of every member into the inbox, where `store` finds it."""
        self.inbox.host["slots"][:] = self._buffer.next_slots
        self._buffer.pack(transition, self.inbox.host["rows"])

    def look(self, observations: NDArray[np.float32], env_step: int) -> None:
        """Write what every member observes before an environment step into the inbox, where `choose` finds it."""
        self._draw(env_step)
        self.inbox.host["observations"][:] = observations
        self.inbox.host["offset"][0] = env_step - self._drawn_from

    def store(self) -> None:
        """Store the transitions on the device."""
        with _any_order():
            self._buffer.storage.index_copy_(0, self.inbox.device["slots"], self.inbox.device["rows"])

    def choose(self) -> None:
        """Choose an action for every member on the device."""
        noise = self._noise.index_select(1, self.inbox.device["offset"]).squeeze(1)
        self._chosen.copy_(self._act(self.inbox.device["observations"].unsqueeze(1), noise).squeeze(1))

    def fetch(self) -> None:
        """Have the actions sent back as soon as they are chosen."""
        if self._left is not None:
            self._outbox.copy_(self._chosen, non_blocking=True)
            self._left.set()

    def actions(self, env_step: int) -> NDArray[np.float32]:
        """Return the actions of an environment step in [-1, 1], (members, action_dim), valid until the next are chosen."""
        if self.is_random(env_step):
            self._draw(env_step)
            return self._uniform[:, env_step - self._drawn_from]
        if self._left is not None:
            self._left.wait()
        return self._outbox.numpy()

    def is_random(self, env_step: int) -> bool:
        """Return whether the actions of an environment step are random, so that none need to be chosen."""
        return env_step < self._random_steps

    def _draw(self, env_step: int) -> None:
        """Draw the random numbers of the steps from this one on, unless they are at hand."""
        first = env_step - env_step % self._ahead
        if first == self._drawn_from:
            return
        steps = torch.arange(first, first + self._ahead, device=self._model.device)
        seeds, width = self._model.seed_tensor, self._model.action_dim
        self._noise.copy_(rng.normals(seeds, "collect/normal", steps, (1, width)))
        if self.is_random(first):
            self._uniform = (rng.uniforms(seeds, "collect/uniform", steps, (width,)) * 2.0 - 1.0).cpu().numpy()
        self._drawn_from = first

    def _act(self, observations: Tensor, noise: Tensor) -> Tensor:
        if self._executor is None or not self._executor.on_gpu:
            return self._model.act(observations, noise)
        if self._traced is None:
            self._traced = trace_acting(self._model, observations, noise, self._executor.execution.precision)
        actions: Tensor = self._traced(self._model.trained.flat, observations, noise)
        return actions


@contextmanager
def _any_order() -> Iterator[None]:
    """Allow torch to write rows in any order, because each has a slot of its own; in order it would have to sort them."""
    before = torch.are_deterministic_algorithms_enabled()
    if before:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        if before:
            torch.use_deterministic_algorithms(True)
