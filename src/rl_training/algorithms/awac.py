"""AWAC (Nair, Gupta, Dalal, Levine: "AWAC: accelerating online reinforcement learning with offline datasets", 2020).

The policy clones the data weighted by exp(advantage); the critics evaluate that policy: their target is the value of an
action that it samples at s', without an entropy. The advantage of a logged action is its value less that of one sampled
action, both the minimum of the trained critics. Weights are clipped, as in CORL, and not normalised over the batch. Ours: all
losses use the parameters from before the step, where CORL trains the policy with the critics it has just updated.
"""

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss, td_target
from rl_training.algorithms.iql import actor_loss, advantage_weights
from rl_training.algorithms.learner import Learner, Metrics, Step
from rl_training.config.algorithms.awac import AWACKnobs
from rl_training.data.batch import Batch
from rl_training.models.awac import MLPAWACModel


def awac_loss(model: MLPAWACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return AWAC's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `AWAC`."""
    return AWAC(model, **knobs).pure_loss(batch, step)


class AWAC(Learner[MLPAWACModel, AWACKnobs]):
    """Advantage-weighted actor-critic on a model of stacked members."""

    knobs_type = AWACKnobs
    metric_names = ("critic_loss", "actor_loss", "q_mean", "advantage_mean", "weight_mean")

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of critic and actor losses over members, and metrics (members, ...)."""
        model, knobs = self.model, self.knobs
        with torch.no_grad():
            target = td_target(batch, self.next_values(batch, step), knobs.gamma)
        q = model.q_values(model.online, batch.observations, batch.actions)
        critic = td_loss(q, target)

        mean = model.mean_actions(model.online, batch.observations)
        advantage = q.detach().amin(1) - self.values(batch, mean.detach(), step)
        weights = advantage_weights(advantage, 1.0 / knobs.awac_lambda, knobs.max_advantage_weight)
        actor = actor_loss(weights, model.log_density(model.online, mean, batch.actions))

        metrics = {
            "critic_loss": critic.detach(),
            "actor_loss": actor.detach(),
            "q_mean": q.detach(),
            "advantage_mean": advantage,
            "weight_mean": weights,
        }
        return (critic + actor).sum(), metrics

    def next_values(self, batch: Batch, step: Step) -> Tensor:
        """Return the minimum of the target critics at s' and an action that the policy samples there, (members, batch)."""
        model = self.model
        mean = model.mean_actions(model.frozen, batch.next_observations)
        actions = model.sampled(model.frozen, mean, step.draws.normals("next_actions", mean.shape[1:]))
        return model.q_values(model.target, batch.next_observations, actions).amin(1)

    @torch.no_grad()
    def values(self, batch: Batch, mean: Tensor, step: Step) -> Tensor:
        """Return V(s), the minimum of the trained critics at s and an action sampled around `mean`, (members, batch)."""
        model = self.model
        actions = model.sampled(model.frozen, mean, step.draws.normals("actions", mean.shape[1:]))
        return model.q_values(model.frozen, batch.observations, actions).amin(1)
