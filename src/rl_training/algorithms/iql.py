"""Implicit Q-learning (Kostrikov, Nair, Levine: "Offline reinforcement learning with implicit Q-learning", 2021).

The value network regresses on an upper expectile of the target critics over the actions in the data, the critics regress on
that value, and the policy clones the data weighted by exp(advantage): no action outside the data is ever evaluated.
All three losses use the parameters from before the step, as in CORL; the official code updates V first.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss, td_target
from rl_training.algorithms.learner import Learner, Metrics, Step
from rl_training.algorithms.per_member import Knob
from rl_training.config.algorithms.iql import IQLKnobs
from rl_training.data.batch import Batch
from rl_training.models.iql import MLPIQLModel


def expectile_loss(residual: Tensor, expectile: Knob) -> Tensor:
    """Equation 5: squared error, weighted `expectile` where Q exceeds V and `1 - expectile` elsewhere; batch mean."""
    weight = (residual.detach() < 0.0).to(residual.dtype).sub_(expectile).abs_()
    return (weight * residual.square()).mean(-1)


def advantage_weights(advantage: Tensor, beta: Knob, max_advantage_weight: Knob) -> Tensor:
    """Return min(exp(beta A), max_advantage_weight)."""
    return (beta * advantage).exp().clamp(max=max_advantage_weight)


def actor_loss(weights: Tensor, log_prob: Tensor) -> Tensor:
    """Equation 7: weighted behaviour cloning, batch mean of -w log pi(a | s)."""
    return -(weights * log_prob).mean(-1)


def iql_loss(model: MLPIQLModel, batch: Batch, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return IQL's loss and metrics for a batch, without side effects; `knobs` as for `IQL`."""
    return IQL(model, **knobs).pure_loss(batch)


class IQL(Learner[MLPIQLModel, IQLKnobs]):
    """Implicit Q-learning on a model of stacked members; variants override `value_loss`."""

    knobs_type: ClassVar[type[IQLKnobs]] = IQLKnobs
    metric_names = ("value_loss", "critic_loss", "actor_loss", "q_mean", "v_mean", "advantage_mean", "weight_mean")

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of value, critic and actor losses over members, and metrics (members, ...)."""
        del step  # no random numbers, and every group is always due
        model, knobs, online = self.model, self.knobs, self.model.online
        with torch.no_grad():
            target_q = model.q_values(model.target, batch.observations, batch.actions).amin(1)
            next_v = model.values(model.frozen, batch.next_observations)
            target = td_target(batch, next_v, knobs.gamma)

        v = model.values(online, batch.observations)
        residual = target_q - v
        value = self.value_loss(residual)

        q = model.q_values(online, batch.observations, batch.actions)
        critic = td_loss(q, target, knobs.huber_delta)

        advantage = residual.detach()
        weights = advantage_weights(advantage, knobs.beta, knobs.max_advantage_weight)
        actor = actor_loss(weights, self.log_likelihood(batch))

        metrics = {
            "value_loss": value.detach(),
            "critic_loss": critic.detach(),
            "actor_loss": actor.detach(),
            "q_mean": q.detach(),
            "v_mean": v.detach(),
            "advantage_mean": advantage,
            "weight_mean": weights,
        }
        return (value + critic + actor).sum(), metrics

    def log_likelihood(self, batch: Batch) -> Tensor:
        """Return log pi(a | s), (members, batch); for a deterministic policy minus its squared distance to a, as in CORL."""
        model = self.model
        mean = model.mean_actions(model.online, batch.observations)
        if model.deterministic:
            return -(mean - batch.actions).square().sum(-1)
        return model.log_density(model.online, mean, batch.actions)

    def value_loss(self, residual: Tensor) -> Tensor:
        """Return the regression of V on the target critics from Q - V, (members,)."""
        return expectile_loss(residual, self.knobs.expectile)

    def state_values(self, observations: Tensor) -> Tensor:
        """Return V(s) of the value network, (members, batch), without gradient."""
        with torch.no_grad():
            return self.model.values(self.model.frozen, observations)
