"""The base of every model: trainable parameters, target rounded, seeds, and named state."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.config.shared_knobs import CriticNetworkKnobs, NetworkKnobs
from rl_training.errors import ConfigError
from rl_training.models.mlp.network import StackedMLP
from rl_training.models.parameters import Dropper, ParameterBank, Segment, SegmentValues
from rl_training.rng import Draws

Parameters = Mapping[str, SegmentValues]


@dataclass(frozen=True)
class ActingParts:
    """What a deterministic action is computed from: enough to compute it elsewhere, without this package.

    The action is the first outputs of `actor`, one for each action column, through tanh if `squashed`, and otherwise clipped
    to [-1, 1]. With `candidates` (candidates, action_dim), the actor also takes one of them as further inputs, and the action
    is that of the candidate with the highest value of the smallest critic.
    """

    actor: StackedMLP
    squashed: bool
    candidates: Tensor | None = None
    critic: StackedMLP | None = None


class StackedModel(ABC):
    """Networks of all members on two flat buffers: one trained, one for targets, which change only by polyak averaging.

    `online` holds the parameters that carry gradients; `frozen` the same values without, for networks a loss must not train;
    `target` the target rounded. All three map a network's name to its segment and share the buffers' memory.
    """

    knobs_type: ClassVar[type[NetworkKnobs]]
    target_groups: ClassVar[tuple[str, ...]] = ()  # groups that have target rounded

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        *,
        seeds: Sequence[int] = (0,),
        device: torch.device | str = "cpu",
        **shape: Any,
    ) -> None:
        """Make the networks of one member per seed; `shape` holds the fields of `knobs_type` (hidden_sizes, ...)."""
        if observation_dim < 1 or action_dim < 1:
            raise ConfigError(f"observation_dim {observation_dim} and action_dim {action_dim} must be at least 1")
        self.observation_dim, self.action_dim = observation_dim, action_dim
        segments = self.build_networks(self.knobs_type.checked(shape))
        self.device = torch.device(device)
        self.seeds = tuple(int(seed) for seed in seeds)
        self.members = len(self.seeds)
        self.seed_tensor = torch.tensor(self.seeds, dtype=torch.int64, device=self.device)
        self.trained = ParameterBank(segments, self.members, self.device)
        self.trained.initialize(self.seeds)
        self.targets = ParameterBank([s for s in segments if s.group in self.target_groups], self.members, self.device)
        self.online: Parameters = self.trained.values(self.trained.flat, trainable=True)
        self.frozen: Parameters = self.trained.values(self.trained.flat)
        self.target: Parameters = self.targets.values(self.targets.flat)
        self._followed = [(self.trained.groups[group], self.targets.groups[group]) for group in self.target_groups]
        self.update_targets(1.0)

    @abstractmethod
    def build_networks(self, shape: Any) -> list[Segment]:
        """Make the networks for checked knobs; return their parameters, with each group contiguous."""

    @property
    def networks(self) -> list[StackedMLP]:
        """The perceptrons of the model."""
        return [value for value in vars(self).values() if isinstance(value, StackedMLP)]

    def _make_actor(self, shape: NetworkKnobs, outputs: int, more_inputs: int = 0, name: str = "actor") -> StackedMLP:
        """The policy network, or another of its group, of observations and `more_inputs` other columns."""
        return StackedMLP(
            *(name, "actor", self.observation_dim + more_inputs, shape.actor_widths, outputs),
            norm=shape.layer_norm_position if shape.actor_layer_norm else "none",
            dropout=shape.actor_dropout,
            **self._common(shape),
        )

    @staticmethod
    def _common(shape: NetworkKnobs) -> dict[str, Any]:
        """The options that all networks share."""
        start = {"initialization": shape.initialization, "last_layer_gain": shape.last_layer_gain}
        return {"activation": shape.activation, **start}

    @abstractmethod
    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1], (members, batch, actions): the mean, or with standard normal `noise` a sample."""

    @abstractmethod
    def acting_parts(self) -> ActingParts:
        """Return what `act` computes a deterministic action from."""

    def gradients(self, loss: Tensor, groups: Collection[str] | None = None) -> dict[str, Tensor]:
        """Return the gradient of a scalar loss for each segment of the groups (default: all), (members, segment size)."""
        names = [segment.name for segment in self.trained.segments if groups is None or segment.group in groups]
        leaves = [self.online[name].columns for name in names]
        # not ones_like(loss), which would make every network of a traced backward pass wait for the whole loss
        unit = torch.ones(loss.shape, dtype=loss.dtype, device=loss.device)
        gradients = torch.autograd.grad(loss, leaves, unit, allow_unused=True, materialize_grads=True)
        return dict(zip(names, gradients, strict=True))

    @contextmanager
    def on_buffers(self, trained: Tensor, targets: Tensor, rounded: Sequence[Tensor | None] = (None, None)) -> Iterator[None]:
        """Make the networks use other buffers of the same layout inside the block, with rounded parameters of both."""
        kept = self.online, self.frozen, self.target
        self.online = self.trained.values(trained, rounded[0], trainable=True)
        self.frozen, self.target = self.trained.values(trained, rounded[0]), self.targets.values(targets, rounded[1])
        try:
            yield
        finally:
            self.online, self.frozen, self.target = kept

    @cached_property
    def drops(self) -> bool:
        """Whether any network has dropout."""
        return any(network.dropout for network in self.networks)

    @contextmanager
    def dropping(self, draws: Draws) -> Iterator[None]:
        """Apply dropout to networks that a loss trains inside the block, with masks drawn from `draws`."""
        kept = self.online
        if self.drops:
            dropper = Dropper(draws)
            self.online = {name: replace(values, dropper=dropper) for name, values in kept.items()}
        try:
            yield
        finally:
            self.online = kept

    def update_targets(self, tau: float) -> None:
        """Update each target by polyak averaging: target <- target + tau * (online - target)."""
        with torch.no_grad():
            for source, target in self._followed:
                self.targets.flat[:, target].lerp_(self.trained.flat[:, source], tau)

    def tensors(self) -> dict[str, Tensor]:
        """Return rounded of all network values by logical name."""
        return {
            **self.trained.export(self.trained.flat),
            **self.targets.export(self.targets.flat, "target/"),
        }

    def load_tensors(self, values: Mapping[str, Tensor]) -> None:
        """Copy network values into the allocated buffers."""
        self.trained.load(self.trained.flat, values)
        self.targets.load(self.targets.flat, values, "target/")


class CriticModel(StackedModel):
    """A model with an ensemble of critics Q(s, a)."""

    _critic: StackedMLP  # set by `build_networks`

    def _make_critic(self, shape: CriticNetworkKnobs) -> StackedMLP:
        """The ensemble Q(s, a)."""
        return self._make_scalar("critic", shape, self.action_dim, shape.critic_layer_norm, shape.num_critics)

    def _make_scalar(
        self, name: str, shape: CriticNetworkKnobs, actions: int, normalised: bool, ensemble: int | None = None
    ) -> StackedMLP:
        """A network with one output, of observations and, if any, actions; its name is also its group."""
        return StackedMLP(
            *(name, name, self.observation_dim + actions, shape.critic_widths, 1, ensemble),
            norm=shape.layer_norm_position if normalised else "none",
            dropout=shape.critic_dropout if name == "critic" else 0.0,
            scalar=True,
            **self._common(shape),
        )

    def q_values(self, parameters: Parameters, observations: Tensor, actions: Tensor) -> Tensor:
        """Return Q of every critic, (members, critics, batch).

        Several actions per observation, (members, samples, batch, actions), are evaluated in one product and give
        (members, critics, samples, batch).
        """
        if actions.ndim == 3:
            return self._critic(parameters["critic"], observations, actions)
        members, samples, batch, _ = actions.shape
        values = self._critic(parameters["critic"], observations, actions.flatten(1, 2))
        return values.view(members, -1, samples, batch)

    def q_values_and_gradients(self, parameters: Parameters, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return Q of every critic, (members, critics, batch), and its gradient at the action, (..., actions).

        Both are differentiable in the parameters, and not in observations and actions.
        """
        return self._critic.with_gradients(parameters["critic"], observations, actions)
