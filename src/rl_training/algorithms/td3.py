"""TD3 (Fujimoto, van Hoof, Meger: "Addressing function approximation error in actor-critic methods", 2018).

DDPG with three remedies against overestimated values: the target is the minimum of two critics, the target's action is
smoothed by clipped noise, and policy and targets are updated every `actor_interval` steps only. The policy maximises the
first critic. Ours: all losses use the parameters from before the step, where the official code trains the policy through the
critics it has just updated; the sizes are those of the official code (two layers of 256, batches of 256, Adam at 3e-4), not
the paper's 400 and 300, 100 and 1e-3.
"""

from collections.abc import Collection
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss, td_target
from rl_training.algorithms.learner import Learner, Metrics, Step, gradients_if
from rl_training.algorithms.per_member import Knob, per_member
from rl_training.config.algorithms.td3 import TD3Knobs
from rl_training.data.batch import Batch
from rl_training.models.td3 import MLPTD3Model


def smoothed_actions(actions: Tensor, noise: Tensor, std: Knob, limit: Knob) -> Tensor:
    """Equation 14: the target policy's actions plus clipped Gaussian noise, clamped to [-1, 1]."""
    limit = per_member(limit, noise)
    clipped = (noise * per_member(std, noise)).clamp(-limit, limit)  # type: ignore[arg-type] # both limits have the same type
    return (actions + clipped).clamp(-1.0, 1.0)


def td3_loss(model: MLPTD3Model, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return TD3's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `TD3`."""
    return TD3(model, **knobs).pure_loss(batch, step)


class TD3(Learner[MLPTD3Model, TD3Knobs]):
    """TD3 on a model of stacked members; variants override `actor_loss` and `next_values`."""

    knobs_type: ClassVar[type[TD3Knobs]] = TD3Knobs
    metric_names: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q_mean")

    def due_groups(self, step: int) -> Collection[str]:
        """Return the critics always, the policy every `actor_interval` steps."""
        return ("critic", "actor") if self.targets_due(step) else ("critic",)

    def targets_due(self, step: int) -> bool:
        """Return whether policy and targets are updated at a step."""
        return (step + 1) % self.knobs.target_interval == 0

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of critic and actor losses over members, and metrics (members, ...)."""
        model = self.model
        with torch.no_grad():
            next_values = self.next_values(batch, self.next_actions(batch, step))
            target = td_target(batch, next_values, self.knobs.gamma)
        q = model.q_values(model.online, batch.observations, batch.actions)
        loss = td_loss(q, target)
        metrics = {"critic_loss": loss.detach(), "q_mean": q.detach()}
        train_actor = "actor" in step.due
        if train_actor or step.report:
            with gradients_if(train_actor):
                actor, actor_metrics = self.actor_loss(batch)
            loss = loss + actor if train_actor else loss
            metrics |= {"actor_loss": actor.detach(), **actor_metrics}
        return loss.sum(), metrics

    def next_actions(self, batch: Batch, step: Step) -> Tensor:
        """Return the smoothed actions of the target policy at s', (members, batch, actions)."""
        actions = self.model.actions(self.model.target, batch.next_observations)
        noise = step.draws.normals("target_noise", actions.shape[1:])
        return smoothed_actions(actions, noise, self.knobs.target_noise, self.knobs.target_noise_clip)

    def next_values(self, batch: Batch, actions: Tensor) -> Tensor:
        """Return the minimum of the target critics at s' and the given actions, (members, batch)."""
        return self.model.q_values(self.model.target, batch.next_observations, actions).amin(1)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return -mean Q1(s, pi(s)), (members,), and metrics beside `actor_loss`."""
        actions = self.model.actions(self.model.online, batch.observations)
        return -self.model.frozen_first_q(batch.observations, actions).mean(-1), {}
