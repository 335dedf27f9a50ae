"""What the loop knows of an algorithm: it can update, act, and give or take its state."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from rl_training.algorithms.adam import GroupedAdam, GroupOptions
from rl_training.data.batch import Batch
from rl_training.errors import CheckpointError
from rl_training.knobs import LearnerKnobs
from rl_training.models.base import StackedModel

Metrics = dict[str, Tensor]
"""Detached tensors by name, (members, ...); their mean over all but the first axis is taken when somebody reads them."""
KnobsT = TypeVar("KnobsT", bound=LearnerKnobs)
ModelT = TypeVar("ModelT", bound=StackedModel)


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one call of `update` did."""

    gradient_steps: int
    metrics: Metrics


def summarize(metrics: Metrics) -> Metrics:
    """Return the mean of each metric per member, (members,)."""
    return {name: value.flatten(1).mean(1) if value.ndim > 1 else value for name, value in metrics.items()}


def solo_shapes(metrics: Metrics) -> Metrics:
    """Return summarized metrics, as scalars where there is one member."""
    return {name: value[0] if len(value) == 1 else value for name, value in summarize(metrics).items()}


class Learner(ABC, Generic[ModelT, KnobsT]):
    """One gradient step at a time: every loss at the parameters from before the step, one backward, Adam, then polyak.

    A subclass gives `loss` (the sum over members and networks, with metrics per member) and `group_options`.
    """

    metric_names: tuple[str, ...]

    def __init__(self, model: ModelT, knobs: KnobsT) -> None:
        self.model = model
        self.knobs = knobs
        self.optimizer = GroupedAdam(model.trained, self.group_options())
        self.step = 0

    @abstractmethod
    def group_options(self) -> dict[str, GroupOptions]:
        """Return how each parameter group is trained."""

    @abstractmethod
    def loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the scalar to minimise and detached metrics (members, ...)."""

    def due_groups(self, step: int) -> Collection[str]:
        """Return the groups trained at a step; all of them unless an algorithm delays some."""
        del step
        return self.optimizer.options

    def train_step(self, batch: Batch, rates: Mapping[str, float] | None = None) -> Metrics:
        """Take one gradient step on a batch with a members axis; return metrics (members, ...)."""
        loss, metrics = self.loss(batch)
        gradients = self.model.gradients(loss)
        due = self.due_groups(self.step)
        self.optimizer.step(gradients, due, rates if rates is not None else dict.fromkeys(due, 1.0))
        self.model.update_targets(self.knobs.tau)
        self.step += 1
        return metrics

    def update(self, batch: Batch) -> UpdateResult:
        """Take one gradient step; a solo learner takes and gives shapes without the members axis."""
        metrics = self.train_step(batch.with_members(self.model.members))
        return UpdateResult(gradient_steps=1, metrics=solo_shapes(metrics))

    def act(self, observations: Tensor, *, deterministic: bool = True, step: int = 0) -> Tensor:
        """Return actions in [-1, 1] for observations (members, batch, dim); solo also (batch, dim) or (dim,)."""
        solo_rank = observations.ndim if self.model.members == 1 and observations.ndim < 3 else 0
        stacked = observations.reshape(1, -1, observations.shape[-1]) if solo_rank else observations
        actions = self.model.act(stacked, deterministic=deterministic, step=step)
        return actions.reshape(*observations.shape[:-1], -1) if solo_rank else actions

    def buffers(self) -> list[Tensor]:
        """Return every tensor that training changes, each with a leading members axis, without copying."""
        return [self.model.trained.flat, self.model.targets.flat, *self.optimizer.buffers()]

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of networks, targets, moments and counts by logical name, each with a members axis."""
        return {**self.model.tensors(), **self.optimizer.tensors()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a state into the allocated buffers; names and shapes must match exactly."""
        expected = self.state_dict()
        for name in sorted({*expected, *state}):
            if name not in state:
                raise CheckpointError(f"tensor `{name}` is missing from the checkpoint")
            if name not in expected:
                raise CheckpointError(f"tensor `{name}` of the checkpoint is not part of this learner")
            if state[name].shape != expected[name].shape or state[name].dtype != expected[name].dtype:
                raise CheckpointError(
                    f"tensor `{name}` is {state[name].dtype} {tuple(state[name].shape)} in the checkpoint, "
                    f"{expected[name].dtype} {tuple(expected[name].shape)} in this learner"
                )
        self.model.load_tensors(state)
        self.optimizer.load_tensors(state)
