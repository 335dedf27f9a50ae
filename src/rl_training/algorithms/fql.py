"""Flow Q-learning (Park, Li, Levine: "Flow Q-learning", 2025).

A flow of many small steps clones the data, whatever its shape; a policy of one step is distilled from it while it maximises
the critics, so that no gradient passes through the many steps, and acting takes one. As in the official code, all losses
use the parameters from before the step and all networks are updated at each, the critics' loss is the mean over the
ensemble, the distance to the flow is measured before the policy's action is clipped, and the critics see it clipped.

Three things are ours. The targets follow the critics from after the step (theirs follow those from before it), LayerNorm adds
1e-5 to the variance (theirs 1e-6), and there is a deterministic action: that of z = 0. The official evaluation draws z, which
is what acting with `deterministic=False` does. The action of z = 0 is the middle of what the policy does, and where the data
holds two ways to act, a middle is neither; `action_candidates` lets the critics choose among several fixed draws.

`alpha` must suit the data and the scale of the rewards: the paper's values lie between 3 and 1000 on most tasks. For tasks of
one's own its authors recommend `normalize_q`, and an `alpha` between 0.03 and 10.
"""

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss, td_target
from rl_training.algorithms.learner import Learner, Metrics, Step
from rl_training.algorithms.per_member import per_member
from rl_training.algorithms.td3_bc import q_weight
from rl_training.config.algorithms.fql import FQLKnobs
from rl_training.data.batch import Batch
from rl_training.models.fql import MLPFQLModel


def squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """Return the mean of the squared difference over batch and dimensions, (members,)."""
    return (left - right).square().mean((-2, -1))


def straight_path(noise: Tensor, actions: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points (1 - t) x0 + t x1 on the line from noise to action, and its velocity x1 - x0."""
    velocity = actions - noise
    return noise + times * velocity, velocity


def fql_loss(model: MLPFQLModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return FQL's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `FQL`."""
    return FQL(model, **knobs).pure_loss(batch, step)


class FQL(Learner[MLPFQLModel, FQLKnobs]):
    """Flow Q-learning on a model of stacked members."""

    knobs_type = FQLKnobs
    metric_names = ("critic_loss", "actor_loss", "flow_loss", "distill_loss", "q_mean")

    @property
    def mixes_rows(self) -> bool:
        """Whether the critic is weighted by the mean |Q| of the batch."""
        return self.knobs.normalize_q or super().mixes_rows

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of critic, flow and policy losses over members, and metrics (members, ...)."""
        model = self.model
        with torch.no_grad():
            target = td_target(batch, self.next_values(batch, step), self.knobs.gamma)
        q = model.q_values(model.online, batch.observations, batch.actions)
        critic = td_loss(q, target) / q.shape[1]
        flow = self.flow_loss(batch, step)
        distance, q_loss = self.policy_losses(batch, step)
        actor = flow + per_member(self.knobs.alpha, distance) * distance + q_loss
        metrics = {
            "critic_loss": critic.detach(),
            "actor_loss": actor.detach(),
            "flow_loss": flow.detach(),
            "distill_loss": distance.detach(),
            "q_mean": q.detach(),
        }
        return (critic + actor).sum(), metrics

    def next_values(self, batch: Batch, step: Step) -> Tensor:
        """Algorithm 1, critic: return the mean (or minimum) of the target critics at an action of mu, (members, batch)."""
        model = self.model
        noise = step.draws.normals("next_noise", batch.actions.shape[1:])
        actions = model.actions(model.frozen, batch.next_observations, noise).clamp(-1.0, 1.0)
        q = model.q_values(model.target, batch.next_observations, actions)
        return q.amin(1) if self.knobs.q_aggregation == "min" else q.mean(1)

    def flow_loss(self, batch: Batch, step: Step) -> Tensor:
        """Algorithm 1, vector field: the distance of v(s, x_t, t) to the velocity from noise to the logged action."""
        shape = batch.actions.shape[1:]
        noise, times = step.draws.normals("flow_noise", shape), step.draws.uniforms("flow_times", (*shape[:-1], 1))
        points, velocity = straight_path(noise, batch.actions, times)
        return squared_distance(self.model.velocities(self.model.online, batch.observations, points, times), velocity)

    def policy_losses(self, batch: Batch, step: Step) -> tuple[Tensor, Tensor]:
        """Algorithm 1, one-step policy: return the distance of mu(s, z) to the flow of z, and -mean Q(s, mu(s, z))."""
        model = self.model
        noise = step.draws.normals("policy_noise", batch.actions.shape[1:])
        with torch.no_grad():
            cloned = model.flow_actions(model.frozen, batch.observations, noise, self.knobs.flow_steps)
        actions = model.actions(model.online, batch.observations, noise)
        q = model.q_values(model.frozen, batch.observations, actions.clamp(-1.0, 1.0)).mean(1)
        weight = q_weight(q, 1.0) if self.knobs.normalize_q else 1.0
        return squared_distance(actions, cloned), -weight * q.mean(-1)
