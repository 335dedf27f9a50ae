"""The interface between the loop and an algorithm: it can update, act, and save or load its state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from rl_training.algorithms.per_member import swept_knobs
from rl_training.config.shared_knobs import CriticKnobs, LearnerKnobs
from rl_training.data.batch import Batch
from rl_training.errors import CheckpointError
from rl_training.models.adam import GroupedAdam, GroupOptions
from rl_training.models.base import CriticModel, StackedModel
from rl_training.rng import Draws, normals

Metrics = dict[str, Tensor]
"""Detached tensors by name, (members, ...); the mean over all axes but the first is taken when they are reported."""
Average = Callable[[dict[str, Tensor]], dict[str, Tensor]]
KnobsT = TypeVar("KnobsT", bound=LearnerKnobs)
ModelT = TypeVar("ModelT", bound=StackedModel)


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The outcome of one call of `update`."""

    gradient_steps: int
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Step:
    """What a loss needs to know about the gradient step it is computed for."""

    draws: Draws  # the random numbers of the step
    due: Collection[str]  # the groups that will be trained; the others need no gradient
    report: bool = True  # whether the metrics will be read
    stage: str = ""  # which of its losses an algorithm uses; see `Learner.stage`


@dataclass(frozen=True, slots=True)
class Rounds:
    """How gradient steps are grouped: rounds of `length` of them from step `first` on; by default each step is a round."""

    first: int = 0
    length: int = 1

    def ends(self, step: int) -> bool:
        """Return whether a step is the last of its round."""
        return (step - self.first + 1) % self.length == 0


def gradients_if(wanted: bool) -> AbstractContextManager[object]:
    """Return a context that disables gradients unless they are wanted; inside `no_grad` they stay disabled either way."""
    return nullcontext() if wanted else torch.no_grad()


def summarize(metrics: Metrics) -> Metrics:
    """Return the mean of each metric per member, (members,)."""
    return {name: value.flatten(1).mean(1) if value.ndim > 1 else value for name, value in metrics.items()}


def solo_shapes(metrics: Metrics) -> Metrics:
    """Return summarized metrics, as scalars where there is one member."""
    return {name: value[0] if len(value) == 1 else value for name, value in summarize(metrics).items()}


def with_later_counts(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return a state with the count of CQL's multiplier, which was trained with the temperature in the first version."""
    temperature, multiplier = "adam/count/temperature", "adam/count/multiplier"
    return {multiplier: state[temperature], **state} if temperature in state else state


class Learner(ABC, Generic[ModelT, KnobsT]):
    """Takes gradient steps: all losses at the parameters from before the step, one backward pass, Adam, then target updates.

    A subclass defines its knobs, its metrics and `loss`. Invalid knobs are rejected here, by name and range. `member_knobs`
    holds a mapping per member with the knobs in which members differ; such a knob is a column (members, 1) in `knobs`.
    """

    knobs_type: ClassVar[type[Any]]
    metric_names: ClassVar[tuple[str, ...]]

    def __init__(self, model: ModelT, *, member_knobs: Sequence[Mapping[str, float]] = (), **knobs: Any) -> None:
        self.model = model
        self.member_knobs = [dict(own) for own in member_knobs] or [{} for _ in model.seeds]
        self.knobs: KnobsT = swept_knobs(self.knobs_type, knobs, self.member_knobs, model.members, model.device)
        self.moving: dict[str, Tensor] = {}  # knobs whose values change between steps, columns (members, 1)
        self.step = 0
        self.rounds = Rounds()  # set by what takes the steps, since only it knows how they are grouped
        self.averaged: Average | None = None  # likewise: the mean of gradients over ranks that share every batch

    def change_knobs(self, values: Mapping[str, Any], moving: Mapping[str, Tensor] | None = None) -> None:
        """Go on with other knobs than before, checked by the caller; learning rates and what is learned stay.

        `moving` are knobs that the caller changes between steps: columns (members, 1), which it overwrites.
        """
        self.moving = dict(moving or {})
        self.knobs = self.knobs.model_copy(update={**values, **self.moving})
        vars(self).pop("tau", None)  # is derived again
        self.optimizer.change_options({name: self._options(name) for name in self.optimizer.options})

    @contextmanager
    def on_columns(self, columns: Sequence[Tensor]) -> Iterator[None]:
        """Use other columns in place of those of `moving`, in their order, inside the block."""
        kept = self.knobs
        self.knobs = kept.model_copy(update=dict(zip(self.moving, columns, strict=True)))
        try:
            yield
        finally:
            self.knobs = kept

    @cached_property
    def optimizer(self) -> GroupedAdam:
        """Adam over the groups of the model; its moments are allocated on first use."""
        return GroupedAdam(self.model.trained, {name: self._options(name) for name in self.model.trained.groups})

    @cached_property
    def tau(self) -> Tensor:
        """The polyak factor of the targets, (members,), on the model's device."""
        tau = torch.as_tensor(self._tau, dtype=torch.float32, device=self.model.device)
        return tau.reshape(-1).expand(self.model.members).contiguous()

    @property
    def _tau(self) -> Any:
        return self.knobs.tau if isinstance(self.knobs, CriticKnobs) else 1.0  # without critics there are no targets

    def _options(self, group: str) -> GroupOptions:
        """How a group is trained."""
        rate, decay = self.knobs.learning_rate(group), self.knobs.weight_decay(group)
        return GroupOptions(rate, max_grad_norm=self.knobs.max_grad_norm, weight_decay=decay)

    @abstractmethod
    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the scalar to minimise and detached metrics (members, ...).

        The loss of a group that is not due is not part of the scalar, and is computed only if the step reports metrics.
        """

    def training_loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return `loss` with dropout where the networks have any."""
        with self.model.dropping(step.draws):
            return self.loss(batch, step)

    @property
    def mixes_rows(self) -> bool:
        """Whether the loss is more than a mean over rows, so that it is not the mean of the losses of parts of a batch."""
        return self.model.drops  # masks are drawn for layers, not for rows

    @property
    def learned_groups(self) -> Collection[str]:
        """The groups that are trained at all."""
        return self.model.trained.groups

    def stage(self, step: int) -> str:
        """Return the stage of a step, for an algorithm whose losses change during a run; a compiled step has only one."""
        del step
        return ""

    def due_groups(self, step: int) -> Collection[str]:
        """Return the groups trained at a step; all that are trained at all unless an algorithm delays some."""
        del step
        return self.learned_groups

    def targets_due(self, step: int) -> bool:
        """Return whether the targets are updated at a step; always, if there are any, unless an algorithm delays them."""
        del step
        return bool(self.model.target_groups)

    def train_step(
        self, batch: Batch, draws: Draws, rates: Mapping[str, float] | None = None, *, report: bool = True
    ) -> Metrics:
        """Take one gradient step on a batch with a members axis; return metrics (members, ...)."""
        due = self.due_groups(self.step)
        loss, metrics = self.training_loss(batch, Step(draws, due, report, self.stage(self.step)))
        self.apply(self.gradients(loss, due), due, rates if rates is not None else dict.fromkeys(due, 1.0))
        return metrics

    def gradients(self, loss: Tensor, due: Collection[str]) -> dict[str, Tensor]:
        """Return the gradient of each segment of the due groups, (members, segment size), clipped to `max_grad_norm`."""
        found = self.model.gradients(loss, due)
        return self.optimizer.clipped(found if self.averaged is None else self.averaged(found), due)

    def apply(self, gradients: Mapping[str, Tensor], due: Collection[str], rates: Mapping[str, float]) -> None:
        """Update the due groups by their gradients, and the targets if they are due, and count the step."""
        self.move(gradients, due, rates, targets=self.targets_due(self.step))
        self.step += 1

    def move(
        self, gradients: Mapping[str, Tensor], due: Collection[str], rates: Mapping[str, float], *, targets: bool
    ) -> None:
        """Update the due groups by their gradients, and the targets if `targets`; the step is not counted."""
        self.optimizer.step(gradients, due, rates)
        if targets:
            self.model.update_targets(self._tau)

    def update(self, batch: Batch) -> UpdateResult:
        """Take one gradient step; with one member, batch and metrics have no members axis."""
        draws = Draws.of_steps(self.model.seed_tensor, self.step)
        metrics = self.train_step(batch.with_members(self.model.members), draws)
        return UpdateResult(gradient_steps=1, metrics=solo_shapes(metrics))

    def pure_loss(self, batch: Batch, step: int = 0) -> tuple[Tensor, Metrics]:
        """Return the loss with every group due, and its metrics, with the random numbers of a step; without side effects."""
        draws = Draws.of_steps(self.model.seed_tensor, step)
        groups = self.model.trained.groups
        given = Step(draws, groups, stage=self.stage(step))
        loss, metrics = self.training_loss(batch.with_members(self.model.members), given)
        return loss, solo_shapes(metrics)

    def act(self, observations: Tensor, *, deterministic: bool = True, step: int = 0) -> Tensor:
        """Return actions in [-1, 1] for observations (members, batch, dim), with one member also (batch, dim) or (dim,).

        They are the mean of the policy, or a sample with the random numbers of the stream `act` at `step`.
        """
        solo_rank = observations.ndim if self.model.members == 1 and observations.ndim < 3 else 0
        stacked = observations.reshape(1, -1, observations.shape[-1]) if solo_rank else observations
        noise = None
        if not deterministic:
            noise = normals(self.model.seed_tensor, "act", step, (stacked.shape[1], self.model.action_dim))
        actions = self.model.act(stacked, noise)
        return actions.reshape(*observations.shape[:-1], -1) if solo_rank else actions

    def q_values(self, observations: Tensor, actions: Tensor) -> Tensor | None:
        """Return Q(s, a) for actions in [-1, 1], (members, batch), without gradient; None for an algorithm without critics.

        It is the minimum over all trained critics (not their targets), in the units of the transformed rewards.
        """
        if not isinstance(self.model, CriticModel):
            return None
        with torch.no_grad():
            return self.model.q_values(self.model.frozen, observations, actions).amin(1)

    def state_values(self, observations: Tensor) -> Tensor | None:
        """Return V(s), (members, batch), without gradient; None for an algorithm without critics.

        Without a value network it is `q_values` of the policy's mean action.
        """
        return self.q_values(observations, self.model.act(observations))

    def buffers(self) -> list[Tensor]:
        """Return every tensor that training modifies, each with a leading members axis, without copying."""
        return [self.model.trained.flat, self.model.targets.flat, *self.optimizer.buffers()]

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of networks, targets, moments and counts by logical name, each with a members axis."""
        return {**self.model.tensors(), **self.optimizer.tensors()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a state into the allocated buffers; names and shapes must match exactly."""
        expected, state = self.state_dict(), with_later_counts(state)
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
