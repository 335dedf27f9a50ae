"""ReBRAC (Tarasov and others: "Revisiting the minimalist approach to offline reinforcement learning", 2023).

TD3+BC with a weight for the policy's distance to the data and another for that of the target's action: the next value is
lowered by the distance of the smoothed action to the logged next action. Both distances are sums over the dimensions, not
means as in TD3+BC, the policy maximises the minimum of the critics, and these have LayerNorm after each activation. The
defaults are the authors' for locomotion, but for the weights: the paper chooses them for each dataset, from 0.001 to 0.1 for
the policy and from 0 to 0.5 for the target; a run's default for the policy follows the spread of the logged actions.

Ours: all losses use the parameters from before the step, where the authors' code trains the policy through the critics it has
just updated; the target policy follows the policy from after the step, theirs that from before it; LayerNorm adds 1e-5 to the
variance (theirs 1e-6). A next action that is unknown, because an episode was cut or the row was collected, has no distance;
their code leaves out the last row of a cut episode.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.learner import Metrics
from rl_training.algorithms.per_member import per_member
from rl_training.algorithms.td3 import TD3
from rl_training.algorithms.td3_bc import q_weight
from rl_training.config.algorithms.rebrac import ReBRACKnobs
from rl_training.data.batch import Batch
from rl_training.errors import ConfigError
from rl_training.models.td3 import MLPTD3Model


def cloning_distance(actions: Tensor, logged: Tensor) -> Tensor:
    """Return the squared distance summed over dimensions, (members, batch); 0 where the logged action is unknown (NaN)."""
    return torch.where(logged.isnan(), 0.0, (actions - logged).square()).sum(-1)


def rebrac_loss(model: MLPTD3Model, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return ReBRAC's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `ReBRAC`."""
    return ReBRAC(model, **knobs).pure_loss(batch, step)


class ReBRAC(TD3):
    """TD3 with behaviour cloning in policy and target; the metric `bc_loss` is the policy's distance to the data."""

    knobs_type: ClassVar[type[ReBRACKnobs]] = ReBRACKnobs
    knobs: ReBRACKnobs
    metric_names = (*TD3.metric_names, "bc_loss")

    @property
    def mixes_rows(self) -> bool:
        """Whether the critic is weighted by the mean |Q| of the batch."""
        return self.knobs.normalize_q or super().mixes_rows

    def next_values(self, batch: Batch, actions: Tensor) -> Tensor:
        """Return min Q(s', a') less the weighted distance of a' to the logged next action, (members, batch)."""
        if batch.next_actions is None:
            raise ConfigError(
                "ReBRAC needs `next_actions` in the batch: train with train_rebrac, which derives them, "
                "or fill them, with NaN where they are unknown"
            )
        distance = cloning_distance(actions, batch.next_actions)
        return super().next_values(batch, actions) - self.knobs.critic_bc_coef * distance

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the weighted mean distance of pi(s) to a less lambda mean min Q(s, pi(s)), (members,), and the distance."""
        model = self.model
        actions = model.actions(model.online, batch.observations)
        q = model.q_values(model.frozen, batch.observations, actions).amin(1)
        cloning = (actions - batch.actions).square().sum(-1).mean(-1)
        weight = q_weight(q, 1.0) if self.knobs.normalize_q else 1.0
        return per_member(self.knobs.actor_bc_coef, cloning) * cloning - weight * q.mean(-1), {"bc_loss": cloning.detach()}
