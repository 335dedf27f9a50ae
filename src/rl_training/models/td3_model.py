"""The networks of TD3+BC: a deterministic policy and an ensemble of critics, both with targets."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.knobs import TD3NetworkKnobs
from rl_training.models.base import Parameters, StackedModel
from rl_training.models.initializers import Initialization
from rl_training.models.layers import StackedMLP
from rl_training.models.parameters import SegmentValues

EXPLORATION_STD = 0.1  # of a sampled action, TD3's exploration noise


class MLPTD3Model(StackedModel):
    """Critics Q(s, a) and a policy tanh(net(s)); a sampled action is the policy's plus clipped Gaussian noise."""

    knobs_type = TD3NetworkKnobs

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        *,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        critic_layer_norm: bool = False,
        initialization: Initialization = "uniform",
        seeds: Sequence[int] = (0,),
        device: torch.device | str = "cpu",
    ) -> None:
        shape = self.knobs_type.checked(
            {
                "hidden_sizes": tuple(hidden_sizes),
                "num_critics": num_critics,
                "critic_layer_norm": critic_layer_norm,
                "initialization": initialization,
            }
        )
        sizes, init, norm = shape.hidden_sizes, shape.initialization, shape.critic_layer_norm
        width = observation_dim + action_dim
        self._critic = StackedMLP("critic", "critic", width, sizes, 1, shape.num_critics, norm, init, True)
        self._first_critic = StackedMLP("critic", "critic", width, sizes, 1, None, norm, init, True)
        self._actor = StackedMLP("actor", "actor", observation_dim, sizes, action_dim, None, False, init)
        super().__init__(
            [self._critic.parameters, self._actor.parameters],
            target_groups=("critic", "actor"),
            observation_dim=observation_dim,
            action_dim=action_dim,
            seeds=seeds,
            device=device,
        )
        frozen = self.frozen["critic"]
        self._frozen_first = SegmentValues(frozen.columns, [tensor[:, 0] for tensor in frozen.tensors])

    def frozen_first_q(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return Q of the first critic alone, (members, batch), with a gradient for the actions only."""
        return self._first_critic(self._frozen_first, torch.cat((observations, actions), dim=-1))

    def actions(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Return the policy's actions, (members, batch, actions), inside (-1, 1)."""
        return self._actor(parameters["actor"], observations).tanh()

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1]: the policy's own, or with exploration noise, clipped to the bounds."""
        with torch.no_grad():
            actions = self.actions(self.frozen, observations)
            return actions if noise is None else (actions + EXPLORATION_STD * noise).clamp(-1.0, 1.0)
