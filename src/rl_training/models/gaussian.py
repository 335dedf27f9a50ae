"""The plain Gaussian policy that IQL, XQL, AWAC and behaviour cloning share."""

from math import log, pi

import torch
from torch import Tensor

from rl_training.config.shared_knobs import StochasticNetworkKnobs
from rl_training.models.base import ActingParts, Parameters, StackedModel
from rl_training.models.initializers import zeros
from rl_training.models.mlp.network import StackedMLP
from rl_training.models.parameters import ParameterSpec, Segment


class GaussianPolicyModel(StackedModel):
    """A model whose policy is a plain Gaussian around tanh(net(s)) or net(s), or that mean alone.

    The log standard deviation does not depend on the state, starts at 0 and is clipped to `log_std_range`. The distribution
    is not squashed: a sample is clipped to [-1, 1], the bounds of normalised actions, and so is a linear mean.
    """

    _actor: StackedMLP  # set by `build_networks`
    deterministic: bool = False

    def _make_gaussian(self, shape: StochasticNetworkKnobs) -> list[Segment]:
        """The segments of the mean's network and, unless the policy is deterministic, of the log standard deviation."""
        self.deterministic, self._squashed = shape.deterministic, shape.policy_mean == "tanh"
        self._log_std_range = shape.log_std_range
        self._actor = self._make_actor(shape, self.action_dim)
        log_std = ParameterSpec("actor/log_std", (self.action_dim,), zeros)
        return [self._actor.parameters, *([] if self.deterministic else [Segment("log_std", "actor", (log_std,))])]

    def mean_actions(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Return the mean of the policy, (members, batch, actions), inside (-1, 1) unless it is linear."""
        mean = self._actor(parameters["actor"], observations)
        return mean.tanh() if self._squashed else mean

    def log_std(self, parameters: Parameters) -> Tensor:
        """Return the clipped log standard deviation, (members, 1, actions)."""
        columns = parameters["log_std"].columns[:, : self.action_dim]
        return columns.clamp(*self._log_std_range).unsqueeze(1)

    def log_prob(self, parameters: Parameters, observations: Tensor, actions: Tensor) -> Tensor:
        """Return log pi(a | s) of the plain Gaussian, (members, batch)."""
        return self.log_density(parameters, self.mean_actions(parameters, observations), actions)

    def log_density(self, parameters: Parameters, mean: Tensor, actions: Tensor) -> Tensor:
        """Return the log density of actions around given means, (members, batch)."""
        log_std = self.log_std(parameters)
        deviation = (actions - mean) / log_std.exp()
        return -0.5 * deviation.square().sum(-1) - (log_std.sum(-1) + 0.5 * self.action_dim * log(2.0 * pi))

    def sampled(self, parameters: Parameters, mean: Tensor, noise: Tensor) -> Tensor:
        """Return samples around given means for standard normal `noise`, clipped to [-1, 1]."""
        return (mean + self.log_std(parameters).exp() * noise).clamp(-1.0, 1.0)

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1]: the mean, or a sample clipped to the bounds."""
        with torch.no_grad():
            mean = self.mean_actions(self.frozen, observations)
            if noise is None or self.deterministic:
                return mean.clamp(-1.0, 1.0)
            return self.sampled(self.frozen, mean, noise)

    def acting_parts(self) -> ActingParts:
        """Return what `act` computes a deterministic action from."""
        return ActingParts(self._actor, self._squashed)
