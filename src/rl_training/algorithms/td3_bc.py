"""TD3+BC (Fujimoto and Gu: "A minimalist approach to offline reinforcement learning", 2021).

TD3 whose policy also clones the data. The weight of the critic, alpha / mean |Q|, makes the balance independent of the scale
of the rewards; it is a constant per member, without gradient. The published alpha of 2.5 suits data that is worth cloning;
on random data it clones noise, so choose alpha for the data. Policy and targets are updated every `actor_interval` steps.
"""

from typing import Any, ClassVar

from torch import Tensor

from rl_training.algorithms.learner import Metrics
from rl_training.algorithms.per_member import Knob, per_member
from rl_training.algorithms.td3 import TD3
from rl_training.config.algorithms.td3_bc import TD3BCKnobs
from rl_training.data.batch import Batch
from rl_training.models.td3 import MLPTD3Model

_SMALLEST_SCALE = 1e-8  # lower bound of mean |Q|, so that critics that are exactly zero give a finite weight


def q_weight(q: Tensor, alpha: Knob) -> Tensor:
    """Equation 5: lambda = alpha / mean |Q|, (members,), without gradient."""
    scale = q.detach().abs().mean(-1).clamp(min=_SMALLEST_SCALE)
    return per_member(alpha, scale) / scale


def td3_bc_loss(model: MLPTD3Model, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return TD3+BC's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `TD3BC`."""
    return TD3BC(model, **knobs).pure_loss(batch, step)


class TD3BC(TD3):
    """TD3 with behaviour cloning; the metric `bc_loss` is the cloning term."""

    knobs_type: ClassVar[type[TD3BCKnobs]] = TD3BCKnobs
    knobs: TD3BCKnobs
    metric_names = (*TD3.metric_names, "bc_loss")

    @property
    def mixes_rows(self) -> bool:
        """Return True: the weight of the critic is by the mean |Q| of the batch."""
        return True

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return -lambda mean Q1(s, pi(s)) + mean (pi(s) - a)^2, (members,), and its second term as a metric."""
        actions = self.model.actions(self.model.online, batch.observations)
        q = self.model.frozen_first_q(batch.observations, actions)
        cloning = (actions - batch.actions).square().mean((-2, -1))
        return cloning - q_weight(q, self.knobs.alpha) * q.mean(-1), {"bc_loss": cloning.detach()}
