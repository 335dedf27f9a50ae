"""TD3+BC (Fujimoto and Gu: "A minimalist approach to offline reinforcement learning", 2021).

TD3 whose policy also clones the data. The weight of the critic, alpha / mean |Q|, makes the balance independent of the scale
of the rewards; it is a constant per member, without gradient. The published alpha of 2.5 suits data that is worth cloning;
on random data it clones noise, so choose alpha for the data. Policy and targets are updated every `actor_interval` steps.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss, td_target
from rl_training.algorithms.learner import Learner, Metrics, Step, gradients_if
from rl_training.algorithms.per_member import Knob, per_member
from rl_training.config.algorithms.td3_bc import TD3BCKnobs
from rl_training.data.batch import Batch
from rl_training.models.td3 import MLPTD3Model

_SMALLEST_SCALE = 1e-8  # lower bound of mean |Q|, so that critics that are exactly zero give a finite weight


def smoothed_actions(actions: Tensor, noise: Tensor, std: Knob, limit: Knob) -> Tensor:
    """Return the target policy's actions plus clipped Gaussian noise, clamped to [-1, 1]."""
    limit = per_member(limit, noise)
    clipped = (noise * per_member(std, noise)).clamp(-limit, limit)  # type: ignore[arg-type] # both limits have the same type
    return (actions + clipped).clamp(-1.0, 1.0)


def q_weight(q: Tensor, alpha: Knob) -> Tensor:
    """Equation 5: lambda = alpha / mean |Q|, (members,), without gradient."""
    scale = q.detach().abs().mean(-1).clamp(min=_SMALLEST_SCALE)
    return per_member(alpha, scale) / scale


def td3_bc_loss(model: MLPTD3Model, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return TD3+BC's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `TD3BC`."""
    return TD3BC(model, **knobs).pure_loss(batch, step)


class TD3BC(Learner[MLPTD3Model, TD3BCKnobs]):
    """TD3 with behaviour cloning on a model of stacked members."""

    knobs_type = TD3BCKnobs
    metric_names = ("critic_loss", "actor_loss", "bc_loss", "q_mean")

    def due_groups(self, step: int) -> Collection[str]:
        """Return the critics always, the policy every `actor_interval` steps."""
        return ("critic", "actor") if self.targets_due(step) else ("critic",)

    def targets_due(self, step: int) -> bool:
        """Return whether policy and targets are updated at a step."""
        return (step + 1) % self.knobs.actor_interval == 0

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of critic and actor losses over members, and metrics (members, ...)."""
        model = self.model
        with torch.no_grad():
            target = td_target(batch, self.next_values(batch, step), self.knobs.gamma)
        q = model.q_values(model.online, batch.observations, batch.actions)
        loss = td_loss(q, target)
        metrics = {"critic_loss": loss.detach(), "q_mean": q.detach()}
        train_actor = "actor" in step.due
        if train_actor or step.report:
            with gradients_if(train_actor):
                actor, cloning = self.actor_loss(batch)
            loss = loss + actor if train_actor else loss
            metrics |= {"actor_loss": actor.detach(), "bc_loss": cloning.detach()}
        return loss.sum(), metrics

    def next_values(self, batch: Batch, step: Step) -> Tensor:
        """Return the minimum of the target critics at the smoothed action of the target policy."""
        model, knobs = self.model, self.knobs
        actions = model.actions(model.target, batch.next_observations)
        noise = step.draws.normals("target_noise", actions.shape[1:])
        actions = smoothed_actions(actions, noise, knobs.target_noise, knobs.target_noise_clip)
        return model.q_values(model.target, batch.next_observations, actions).amin(1)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return -lambda mean Q1(s, pi(s)) + mean (pi(s) - a)^2, and its second term, (members,)."""
        actions = self.model.actions(self.model.online, batch.observations)
        q = self.model.frozen_first_q(batch.observations, actions)
        cloning = (actions - batch.actions).square().mean((-2, -1))
        return cloning - q_weight(q, self.knobs.alpha) * q.mean(-1), cloning
