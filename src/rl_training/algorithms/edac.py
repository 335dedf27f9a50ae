"""EDAC (An, Moon, Kim, Song: "Uncertainty-based offline reinforcement learning with diversified Q-ensemble", 2021).

SAC-N whose critics are kept apart: their gradients at the action of the data should not be aligned, for aligned critics agree
on the same actions outside the data. With that 10 to 50 critics do what SAC-N needs up to 500 for. The term is weighted
by `eta` and divided by N - 1 only, as in the official code and CORL, so it grows with the ensemble.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.bellman import td_loss
from rl_training.algorithms.learner import Metrics, Step
from rl_training.algorithms.per_member import per_member
from rl_training.algorithms.sac_n import SACN
from rl_training.config.algorithms.edac import EDACKnobs
from rl_training.data.batch import Batch
from rl_training.errors import ConfigError
from rl_training.models.sac import MLPSACModel, TanhGaussian

_SMALLEST_NORM = 1e-10  # added to the norm of a gradient, so that one of zero has a direction of zero


def diversity_loss(gradients: Tensor) -> Tensor:
    """J_ES of the paper: batch mean of sum_(i != j) cos(grad_a Q_i, grad_a Q_j) / (N - 1), (members,).

    `gradients` are (members, critics, batch, actions). The sum over pairs is that over all, |sum_i e_i|^2, less that of each
    direction e_i with itself.
    """
    norm: Tensor = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    directions = gradients / (norm + _SMALLEST_NORM)
    pairs = directions.sum(1).square().sum(-1) - directions.square().sum((1, -1))
    return pairs.mean(-1) / (gradients.shape[1] - 1)


def edac_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return EDAC's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `EDAC`."""
    return EDAC(model, **knobs).pure_loss(batch, step)


class EDAC(SACN):
    """SAC-N with diversified critics; the metric `diversity_loss` is the term before its weight."""

    knobs_type: ClassVar[type[EDACKnobs]] = EDACKnobs
    knobs: EDACKnobs
    metric_names: ClassVar[tuple[str, ...]] = (*SACN.metric_names, "diversity_loss")

    def __init__(self, model: MLPSACModel, **knobs: Any) -> None:
        if model.num_critics < 2:
            raise ConfigError("EDAC compares its critics with one another: `num_critics` must be at least 2")
        super().__init__(model, **knobs)

    def critic_loss(self, batch: Batch, target: Tensor, next_policy: TanhGaussian, step: Step) -> tuple[Tensor, Metrics]:
        """Return the squared error to the target plus the weighted diversity term, (members,), and metrics."""
        del next_policy, step
        q, gradients = self.model.q_values_and_gradients(self.model.online, batch.observations, batch.actions)
        diversity = diversity_loss(gradients)
        loss = td_loss(q, target) + per_member(self.knobs.eta, diversity) * diversity
        return loss, {"critic_loss": loss.detach(), "q_mean": q.detach(), "diversity_loss": diversity.detach()}
