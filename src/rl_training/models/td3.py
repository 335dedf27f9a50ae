"""The networks of TD3 and its variants: a deterministic policy and an ensemble of critics, both with targets."""

import torch
from torch import Tensor

from rl_training.config.algorithms.td3 import TD3NetworkKnobs
from rl_training.models.base import ActingParts, CriticModel, Parameters
from rl_training.models.parameters import Segment


class MLPTD3Model(CriticModel):
    """Critics Q(s, a) and a policy tanh(net(s)); a sampled action is the policy's plus clipped Gaussian noise."""

    knobs_type = TD3NetworkKnobs
    target_groups = ("critic", "actor")

    def build_networks(self, shape: TD3NetworkKnobs) -> list[Segment]:
        """Make critics and policy."""
        self.exploration_noise = shape.exploration_noise
        self._critic, self._actor = self._make_critic(shape), self._make_actor(shape, self.action_dim)
        return [self._critic.parameters, self._actor.parameters]

    def frozen_first_q(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return Q of the first critic only, (members, batch), with gradients for the actions but not the parameters."""
        return self._critic.first(self.frozen["critic"], observations, actions)

    def actions(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Return the policy's actions, (members, batch, actions), inside (-1, 1)."""
        return self._actor(parameters["actor"], observations).tanh()

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1]: the policy's, or those plus exploration noise, clipped to the bounds."""
        with torch.no_grad():
            actions = self.actions(self.frozen, observations)
            return actions if noise is None else (actions + self.exploration_noise * noise).clamp(-1.0, 1.0)

    def acting_parts(self) -> ActingParts:
        """Return what `act` computes a deterministic action from."""
        return ActingParts(self._actor, squashed=True)
