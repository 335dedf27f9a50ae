"""The networks of SAC, REDQ, CQL, Cal-QL and RLPD: a tanh-Gaussian policy, an ensemble of critics, dual variables."""

from dataclasses import dataclass
from math import log, pi
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rl_training.config.algorithms.sac import SACNetworkKnobs
from rl_training.models.base import ActingParts, CriticModel, Parameters
from rl_training.models.initializers import constant, ones
from rl_training.models.parameters import ParameterSpec, Segment

LARGEST_ACTION = 0.99999  # the density of a squashed policy is unbounded at the bounds
_HALF_LOG_TWO_PI = 0.5 * log(2.0 * pi)


class _TanhSample(torch.autograd.Function):
    """Actions a = tanh(u), u = mean + std * noise, and log pi(a); written by hand because d log pi / du is just 2 a."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        spread = log_std.exp() * noise
        u = mean + spread
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), without the cancellation at large |u|
        log_derivative = (softplus(-2.0 * u) + u).mul_(-2.0).add_(2.0 * log(2.0))
        log_prob = torch.addcmul(log_derivative.add_(log_std), noise, noise, value=0.5).sum(-1)
        actions = u.tanh_()
        ctx.save_for_backward(actions, spread)
        return actions, -log_prob - noise.shape[-1] * _HALF_LOG_TWO_PI

    @staticmethod
    def backward(ctx: Any, to_actions: Tensor, to_log_prob: Tensor) -> tuple[Tensor, Tensor, None]:
        actions, spread = ctx.saved_tensors
        to_log_prob = to_log_prob.unsqueeze(-1)
        to_u = torch.addcmul(to_actions, actions, 2.0 * to_log_prob - to_actions * actions)
        return to_u, to_u * spread - to_log_prob, None


@dataclass(frozen=True, slots=True)
class TanhGaussian:
    """The distribution of tanh(u) for u ~ N(mean, std): a policy on (-1, 1) with an exact density."""

    mean: Tensor  # (members, batch, actions), before the squashing
    log_std: Tensor

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actions for standard normal `noise`, and their log-probability summed over dimensions.

        `noise` is (members, batch, actions), or (members, samples, batch, actions) for several actions per state.
        """
        mean, log_std = self.mean, self.log_std
        if noise.ndim == 4:
            mean, log_std = mean.unsqueeze(1), log_std.unsqueeze(1)
        actions, log_prob = _TanhSample.apply(mean, log_std, noise)  # type: ignore[no-untyped-call]
        return actions, log_prob

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log pi(a | s), (members, batch), of given actions, moved inside the open bounds where they are on them."""
        inside = actions.clamp(-LARGEST_ACTION, LARGEST_ACTION)
        u = inside.atanh()
        squashing = (1.0 - inside.square()).log()
        normal = 0.5 * ((u - self.mean) / self.log_std.exp()).square() + self.log_std + squashing
        return -normal.sum(-1) - actions.shape[-1] * _HALF_LOG_TWO_PI

    def mode(self) -> Tensor:
        """Return the deterministic action tanh(mean)."""
        return self.mean.tanh()


class MLPSACModel(CriticModel):
    """Critics Q(s, a) with targets, a tanh-Gaussian policy, and two dual variables, each a group of its own.

    `temperature/log_alpha` is the log of SAC's temperature and starts at that of `initial_alpha`;
    `temperature/log_multiplier` is the log of CQL's Lagrange multiplier and starts at 1. One that an algorithm does not
    train never changes. The log standard deviation is a function of the state plus `log_std_offset`, clipped to
    `log_std_range`.
    """

    knobs_type = SACNetworkKnobs
    target_groups = ("critic",)

    def build_networks(self, shape: SACNetworkKnobs) -> list[Segment]:
        """Make critics, policy (means and log standard deviations) and dual variables."""
        self.num_critics = shape.num_critics
        self._log_std_range, self._log_std_offset = shape.log_std_range, shape.log_std_offset
        self._critic, self._actor = self._make_critic(shape), self._make_actor(shape, 2 * self.action_dim)
        log_alpha = ParameterSpec("temperature/log_alpha", (1,), constant(log(shape.initial_alpha)))
        log_multiplier = ParameterSpec("temperature/log_multiplier", (1,), ones)
        duals = Segment("temperature", "temperature", (log_alpha,)), Segment("multiplier", "multiplier", (log_multiplier,))
        return [self._critic.parameters, self._actor.parameters, *duals]

    def policy(self, parameters: Parameters, observations: Tensor) -> TanhGaussian:
        """Return the policy at observations (members, batch, dim)."""
        mean, log_std = self._actor(parameters["actor"], observations).chunk(2, dim=-1)
        if self._log_std_offset:
            log_std = log_std + self._log_std_offset
        return TanhGaussian(mean, log_std.clamp(*self._log_std_range))

    def log_alpha(self, parameters: Parameters) -> Tensor:
        """Return the log temperature, (members,)."""
        return parameters["temperature"].columns[:, 0]

    def log_multiplier(self, parameters: Parameters) -> Tensor:
        """Return the log of the Lagrange multiplier, (members,)."""
        return parameters["multiplier"].columns[:, 0]

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in (-1, 1): tanh of the mean, or a sample."""
        with torch.no_grad():
            policy = self.policy(self.frozen, observations)
            return policy.mode() if noise is None else policy.sample(noise)[0]

    def acting_parts(self) -> ActingParts:
        """Return what `act` computes a deterministic action from: the actor's first half of outputs is the mean."""
        return ActingParts(self._actor, squashed=True)
