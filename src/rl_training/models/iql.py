"""The networks of IQL and XQL: a Gaussian policy with tanh mean, an ensemble of critics, a value network."""

from math import log, pi

import torch
from torch import Tensor

from rl_training.knobs import IQLNetworkKnobs
from rl_training.models.base import Parameters, StackedModel
from rl_training.models.initializers import zeros
from rl_training.models.layers import StackedMLP
from rl_training.models.parameters import ParameterSpec, Segment

LOG_STD_RANGE = (-5.0, 2.0)


class MLPIQLModel(StackedModel):
    """Critics Q(s, a), value V(s) and a plain Gaussian policy whose mean is tanh(net(s)).

    The log standard deviation does not depend on the state, starts at 0 and is clipped to [-5, 2]. The distribution is not
    squashed: a sample is clipped to [-1, 1], the bounds of normalised actions.
    """

    knobs_type = IQLNetworkKnobs
    target_groups = ("critic",)

    def build_networks(self, shape: IQLNetworkKnobs) -> list[Segment]:
        """Make critics, value network and policy."""
        self._critic, self._actor = self._make_critic(shape), self._make_actor(shape, self.action_dim)
        normalised, start = shape.value_layer_norm, shape.initialization
        self._value = StackedMLP(
            "value", "value", self.observation_dim, shape.hidden_sizes, 1, None, normalised, start, scalar=True
        )
        log_std = ParameterSpec("actor/log_std", (self.action_dim,), zeros)
        return [
            self._critic.parameters,
            self._value.parameters,
            self._actor.parameters,
            Segment("log_std", "actor", (log_std,)),
        ]

    def values(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Return V, (members, batch)."""
        return self._value(parameters["value"], observations)

    def mean_actions(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Return the mean of the policy, (members, batch, actions), inside (-1, 1)."""
        return self._actor(parameters["actor"], observations).tanh()

    def log_std(self, parameters: Parameters) -> Tensor:
        """Return the clipped log standard deviation, (members, 1, actions)."""
        columns = parameters["log_std"].columns[:, : self.action_dim]
        return columns.clamp(*LOG_STD_RANGE).unsqueeze(1)

    def log_prob(self, parameters: Parameters, observations: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a | s) of the plain Gaussian, (members, batch)."""
        log_std = self.log_std(parameters)
        deviation = (actions - self.mean_actions(parameters, observations)) / log_std.exp()
        return -0.5 * deviation.square().sum(-1) - (log_std.sum(-1) + 0.5 * self.action_dim * log(2.0 * pi))

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1]: the mean, or a sample clipped to the bounds."""
        with torch.no_grad():
            mean = self.mean_actions(self.frozen, observations)
            return mean if noise is None else (mean + self.log_std(self.frozen).exp() * noise).clamp(-1.0, 1.0)
