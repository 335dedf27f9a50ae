"""Conservative Q-learning (Kumar, Zhou, Tucker, Levine: "Conservative Q-learning for offline RL", 2020), variant CQL(H).

SAC whose critics are pushed down on actions outside the data and up on those in it. The log-sum-exp over all actions is
estimated by importance sampling (appendix F) from three sources: uniform actions, the policy at s, and the policy at s'. All
are evaluated at s; evaluating the third at s' is a common bug. As in the authors' code, the sum is not divided by the number
of samples. The target leaves out the entropy unless `backup_entropy` is set.

Where JaxCQL and CORL differ from the authors' code, the defaults follow them and an option has the authors' form: the weight
learned to hold a gap (`lagrange_form`), the best of several next actions (`max_backup_form`). `min_q_version: 2` estimates
the log-sum-exp without importance sampling, and `bc_steps` clones the data first.
"""

from math import log
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss
from rl_training.algorithms.learner import Metrics, Step
from rl_training.algorithms.per_member import Knob, per_member
from rl_training.algorithms.sac import SAC
from rl_training.config.algorithms.cql import CQLKnobs
from rl_training.data.batch import Batch
from rl_training.models.sac import MLPSACModel, TanhGaussian

MAX_MULTIPLIER = 1e6


def importance_log_sum_exp(q: Tensor, log_density: Tensor, temperature: Knob = 1.0) -> Tensor:
    """Return T log sum exp((q - log density) / T) over the samples on axis -2, q (members, critics, samples, batch)."""
    temperature = per_member(temperature, q)
    return (temperature * torch.logsumexp((q - log_density.unsqueeze(1)) / temperature, dim=-2, keepdim=True)).squeeze(-2)


def clipped(difference: Tensor, lowest: Knob | None, highest: Knob | None) -> Tensor:
    """Return each row's difference clamped to the limits that are given; no gradient flows where it is clamped."""
    if lowest is not None:
        difference = difference.clamp(min=per_member(lowest, difference))
    if highest is not None:
        difference = difference.clamp(max=per_member(highest, difference))
    return difference


def cql_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return CQL's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `CQL`."""
    return CQL(model, **knobs).pure_loss(batch, step)


class CQL(SAC):
    """SAC with a conservative penalty on the critics; `critic_loss` includes it, and `conservative_loss` reports it alone."""

    knobs_type: ClassVar[type[CQLKnobs]] = CQLKnobs
    knobs: CQLKnobs
    metric_names: ClassVar[tuple[str, ...]] = (*SAC.metric_names, "conservative_loss")

    @property
    def critic_groups(self) -> tuple[str, ...]:
        """The groups that every step trains: the critics, and a learned weight of their penalty."""
        return ("critic", "multiplier") if self.knobs.trains_multiplier else ("critic",)

    def stage(self, step: int) -> str:
        """Return `cloning` for the first `bc_steps` steps."""
        return "cloning" if step < self.knobs.bc_steps else ""

    def aggregate(self, q: Tensor, *, purpose: Literal["target", "actor"], step: Step) -> Tensor:
        """Return the minimum over critics; for the target, the authors' form takes each critic's best action first."""
        if purpose == "target" and self.knobs.max_backup_form == "min_of_max":
            q = q.amax(2, keepdim=True)
        return super().aggregate(q, purpose=purpose, step=step)

    def policy_goal(self, batch: Batch, policy: TanhGaussian, actions: Tensor, step: Step) -> Tensor:
        """Return the critics' value of the policy's actions; while cloning, the log-probability of the data's actions."""
        if step.stage == "cloning":
            return policy.log_prob(batch.actions)
        return super().policy_goal(batch, policy, actions, step)

    def critic_loss(self, batch: Batch, target: Tensor, next_policy: TanhGaussian, step: Step) -> tuple[Tensor, Metrics]:
        """Return squared error plus penalty, (members,); data and sampled actions are evaluated in one product."""
        samples = self.knobs.num_cql_samples
        actions, log_density = self.sampled_actions(batch, next_policy, step)
        scored = torch.cat((batch.actions.unsqueeze(1), actions), dim=1)
        q = self.model.q_values(self.model.online, batch.observations, scored)
        q_data, q_uniform, q_policy = torch.split_with_sizes(q, (1, samples, 2 * samples), dim=2)
        q_data = q_data.squeeze(2)
        q_policy, metrics = self.policy_values(q_policy, batch)
        sampled = torch.cat((q_uniform, q_policy), dim=2)
        if self.knobs.min_q_version == 2:
            sampled, log_density = torch.cat((sampled, q_data.unsqueeze(2)), dim=2), torch.zeros_like(log_density[:, :1])
        everywhere = importance_log_sum_exp(sampled, log_density, self.knobs.cql_temperature)
        difference = clipped(everywhere - q_data, self.knobs.cql_clip_diff_min, self.knobs.cql_clip_diff_max)
        penalty, dual = self.weighted_penalty(difference.mean(-1))
        loss = td_loss(q_data, target) + penalty
        metrics |= {"critic_loss": loss.detach(), "q_mean": q_data.detach(), "conservative_loss": penalty.detach()}
        return loss + dual, metrics

    @torch.no_grad()
    def sampled_actions(self, batch: Batch, next_policy: TanhGaussian, step: Step) -> tuple[Tensor, Tensor]:
        """Return uniform actions in [-1, 1], then those of pi(s) and pi(s'), and their log densities, samples on axis 1."""
        shape = (self.knobs.num_cql_samples, *batch.actions.shape[1:])
        uniform = step.draws.uniforms("cql/uniform", shape) * 2.0 - 1.0
        policy = self.model.policy(self.model.frozen, batch.observations)
        here, here_density = policy.sample(step.draws.normals("cql/here", shape))
        there, there_density = next_policy.sample(step.draws.normals("cql/there", shape))
        uniform_density = torch.full_like(here_density, -self.model.action_dim * log(2.0))
        return torch.cat((uniform, here, there), dim=1), torch.cat((uniform_density, here_density, there_density), dim=1)

    def policy_values(self, q: Tensor, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the values of policy-sampled actions for the penalty, unchanged in CQL, and extra metrics."""
        del batch
        return q, {}

    def weighted_penalty(self, difference: Tensor) -> tuple[Tensor, Tensor]:
        """Return the penalty and the loss of an automatic weight, (members,), given each critic's mean difference."""
        knobs = self.knobs
        if knobs.lagrange_gap is None:
            total = difference.sum(1)
            return per_member(knobs.cql_alpha, total) * total, torch.zeros_like(total)
        log_multiplier = self.model.log_multiplier(self.model.online)
        excess = knobs.cql_alpha * (difference - knobs.lagrange_gap)
        if knobs.lagrange_form == "authors":
            excess = knobs.cql_alpha * difference - knobs.lagrange_gap
            log_multiplier = log_multiplier - 1.0  # the parameter starts at 1, the authors' at 0
        multiplier = log_multiplier.exp().clamp(max=MAX_MULTIPLIER)
        # the weight grows while the gap, averaged over all critics, exceeds `lagrange_gap`
        return multiplier.detach() * excess.sum(1), -multiplier * excess.detach().mean(1)
