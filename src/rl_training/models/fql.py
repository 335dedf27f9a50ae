"""The networks of flow Q-learning: a flow that clones the data, a one-step policy, an ensemble of critics."""

from functools import cached_property

import torch
from torch import Tensor

from rl_training import rng
from rl_training.config.algorithms.fql import FQLNetworkKnobs
from rl_training.models.base import ActingParts, CriticModel, Parameters
from rl_training.models.parameters import Segment


class MLPFQLModel(CriticModel):
    """Critics Q(s, a), a one-step policy mu(s, z) and the velocities v(s, x, t) of a flow from noise to logged actions.

    Both policies turn standard normal noise into actions and are trained in the group `actor`. Neither is squashed: an action
    is clipped to [-1, 1], the bounds of normalised actions.
    """

    knobs_type = FQLNetworkKnobs
    target_groups = ("critic",)

    def build_networks(self, shape: FQLNetworkKnobs) -> list[Segment]:
        """Make critics, one-step policy and flow."""
        self._num_candidates = shape.action_candidates
        self._critic = self._make_critic(shape)
        self._actor = self._make_actor(shape, self.action_dim, more_inputs=self.action_dim)
        self._flow = self._make_actor(shape, self.action_dim, more_inputs=self.action_dim + 1, name="flow")
        return [self._critic.parameters, self._actor.parameters, self._flow.parameters]

    def actions(self, parameters: Parameters, observations: Tensor, noise: Tensor) -> Tensor:
        """Return the one-step policy's actions mu(s, z), (members, batch, actions), which may leave [-1, 1]."""
        return self._actor(parameters["actor"], observations, noise)

    def velocities(self, parameters: Parameters, observations: Tensor, points: Tensor, times: Tensor) -> Tensor:
        """Return v(s, x, t), (members, batch, actions), at points x of the same shape and times t (members, batch, 1)."""
        return self._flow(parameters["flow"], observations, torch.cat((points, times), -1))

    def flow_actions(self, parameters: Parameters, observations: Tensor, noise: Tensor, steps: int) -> Tensor:
        """Return where the flow takes the noise in `steps` Euler steps from t = 0 to 1, clipped to [-1, 1]."""
        points, times = noise, torch.zeros_like(noise[..., :1])
        for number in range(steps):
            points = points + self.velocities(parameters, observations, points, times + number / steps) / steps
        return points.clamp(-1.0, 1.0)

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1] of the one-step policy: a sample, or without noise the best of `action_candidates`."""
        with torch.no_grad():
            if noise is None:
                return self._best_actions(observations)
            return self.actions(self.frozen, observations, noise).clamp(-1.0, 1.0)

    def acting_parts(self) -> ActingParts:
        """Return what `act` computes a deterministic action from."""
        return ActingParts(self._actor, squashed=False, candidates=self._candidates, critic=self._critic)

    def _best_actions(self, observations: Tensor) -> Tensor:
        """The actions of the candidates that the smallest critic prefers."""
        members, batch, _ = observations.shape
        noise = self._candidates.repeat_interleave(batch, 0).expand(members, -1, -1)
        actions = self.actions(self.frozen, observations, noise).clamp(-1.0, 1.0)
        actions = actions.view(members, -1, batch, self.action_dim)
        best = self.q_values(self.frozen, observations, actions).amin(1).argmax(1)
        return actions.gather(1, best[:, None, :, None].expand(-1, 1, -1, self.action_dim)).squeeze(1)

    @cached_property
    def _candidates(self) -> Tensor:
        """Noise of the candidates, (candidates, actions): z = 0, then draws that are the same for all members and runs."""
        noise = rng.normals([0], "candidates", 0, (self._num_candidates, self.action_dim), device=torch.device("cpu"))[0]
        noise[0] = 0.0
        return noise.to(self.device)
