"""Soft actor-critic (Haarnoja, Zhou, Abbeel, Levine: "Soft actor-critic", 2018; "... algorithms and applications", 2018).

The critics regress on the reward plus the soft value of the next state, the policy maximises the smaller critic with a bonus
for its entropy, and the temperature of that bonus is learned so that the entropy stays at its target. The temperature's loss
is -log(alpha) (log pi + H), as in rlkit and CORL. All losses use the parameters from before the step.
"""

from collections.abc import Collection
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss, td_target
from rl_training.algorithms.learner import Learner, Metrics, Step, gradients_if
from rl_training.algorithms.per_member import Knob
from rl_training.config.algorithms.sac import SACKnobs
from rl_training.data.batch import Batch
from rl_training.models.sac import MLPSACModel, TanhGaussian


def actor_loss(alpha: Tensor, log_prob: Tensor, q: Tensor) -> Tensor:
    """Equation 7 of the second paper: batch mean of alpha log pi(a | s) - Q(s, a)."""
    return (alpha * log_prob - q).mean(-1)


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: Knob) -> Tensor:
    """Equation 18 with log(alpha) for alpha: batch mean of -log(alpha) (log pi(a | s) + H), without gradient for log pi."""
    return -log_alpha * (log_prob.detach() + target_entropy).mean(-1)


def sac_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return SAC's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `SAC`."""
    return SAC(model, **knobs).pure_loss(batch, step)


class SAC(Learner[MLPSACModel, SACKnobs]):
    """Soft actor-critic on a model of stacked members, with any number of critics.

    Variants override `aggregate` (how the values of an ensemble become one) and `critic_loss`.
    """

    knobs_type: ClassVar[type[SACKnobs]] = SACKnobs
    metric_names: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_mean")

    @property
    def critic_groups(self) -> tuple[str, ...]:
        """The groups that every step trains."""
        return ("critic",)

    @property
    def learned_groups(self) -> Collection[str]:
        """Critics, policy, and a learned temperature."""
        policy = ("actor", "temperature") if self.knobs.trains_alpha else ("actor",)
        return (*self.critic_groups, *policy)

    def due_groups(self, step: int) -> Collection[str]:
        """Return the critics always, the others every `actor_interval` steps, or with the last update of each round."""
        interval = self.knobs.actor_interval
        due = self.rounds.ends(step) if interval is None else (step + 1) % interval == 0
        return self.learned_groups if due else self.critic_groups

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of critic, actor and temperature losses over members, and metrics (members, ...)."""
        alpha = self.alpha()
        with torch.no_grad():
            next_policy = self.model.policy(self.model.frozen, batch.next_observations)
            target = td_target(batch, self.next_values(batch, next_policy, alpha, step), self.knobs.gamma)
        loss, metrics = self.critic_loss(batch, target, next_policy, step)
        train_actor = "actor" in step.due
        if train_actor or step.report:
            with gradients_if(train_actor):
                actor, actor_metrics = self.actor_and_temperature_loss(batch, alpha, step)
            loss = loss + actor if train_actor else loss
            metrics |= actor_metrics
        return loss.sum(), metrics

    @property
    def target_entropy(self) -> Knob:
        """The entropy at which a learned temperature holds the policy."""
        entropy = self.knobs.target_entropy
        return -self.knobs.target_entropy_multiplier * self.model.action_dim if entropy is None else entropy

    def alpha(self) -> Tensor:
        """Return the temperature without gradient, (members, 1)."""
        log_alpha = self.model.log_alpha(self.model.frozen).unsqueeze(1)
        alpha = self.knobs.alpha
        return log_alpha.exp() if isinstance(alpha, str) else torch.ones_like(log_alpha) * alpha

    def next_values(self, batch: Batch, next_policy: TanhGaussian, alpha: Tensor, step: Step) -> Tensor:
        """Return V(s') = Q(s', a') - alpha log pi(a' | s'), where a' is the best by Q of `backup_actions` draws from pi."""
        shape = (self.knobs.backup_actions, *next_policy.mean.shape[1:])
        actions, log_prob = next_policy.sample(step.draws.normals("next_actions", shape))
        q = self.model.q_values(self.model.target, batch.next_observations, actions)
        values, best = self.aggregate(q, purpose="target", step=step).max(1, keepdim=True)
        if self.knobs.backup_entropy:
            values = values - alpha.unsqueeze(1) * log_prob.gather(1, best)
        return values.squeeze(1)

    def aggregate(self, q: Tensor, *, purpose: Literal["target", "actor"], step: Step) -> Tensor:
        """Return one value from the critics on axis 1: their minimum, for the target and for the policy."""
        del purpose, step
        return q.amin(1)

    def critic_loss(self, batch: Batch, target: Tensor, next_policy: TanhGaussian, step: Step) -> tuple[Tensor, Metrics]:
        """Return the squared error to the target, summed over critics, (members,), and metrics."""
        del next_policy, step
        q = self.model.q_values(self.model.online, batch.observations, batch.actions)
        loss = td_loss(q, target)
        return loss, {"critic_loss": loss.detach(), "q_mean": q.detach()}

    def actor_and_temperature_loss(self, batch: Batch, alpha: Tensor, step: Step) -> tuple[Tensor, Metrics]:
        """Return the loss of the policy plus that of a learned temperature, (members,), and metrics."""
        model = self.model
        policy = model.policy(model.online, batch.observations)
        actions, log_prob = policy.sample(step.draws.normals("actions", policy.mean.shape[1:]))
        actor = actor_loss(alpha, log_prob, self.policy_goal(batch, policy, actions, step))
        temperature = torch.zeros_like(actor)
        if self.knobs.trains_alpha:
            temperature = temperature_loss(model.log_alpha(model.online), log_prob, self.target_entropy)
        metrics = {
            "actor_loss": actor.detach(),
            "alpha": alpha.squeeze(1),
            "alpha_loss": temperature.detach(),
            "entropy": -log_prob.detach(),
        }
        return actor + temperature, metrics

    def policy_goal(self, batch: Batch, policy: TanhGaussian, actions: Tensor, step: Step) -> Tensor:
        """Return what the policy raises besides its entropy: the critics' value of its actions, (members, batch)."""
        del policy
        q = self.model.q_values(self.model.frozen, batch.observations, actions)
        return self.aggregate(q, purpose="actor", step=step)
