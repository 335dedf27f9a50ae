"""Randomized ensembled double Q-learning (Chen, Wang, Zhou, Ross: "Randomized ensembled double Q-learning", 2021).

SAC with N critics: the target is the minimum over a random subset of M of them, drawn anew for every update, and the policy
maximises the mean of all N. That keeps the bias small enough for many updates per environment step; the policy is updated
once per round of them, with the last. The number of updates per environment step is handled by the trainer.
"""

from typing import Any, ClassVar, Literal

from torch import Tensor

from rl_training.algorithms.learner import Metrics, Step
from rl_training.algorithms.sac import SAC
from rl_training.config.algorithms.redq import REDQKnobs
from rl_training.config.shared_knobs import check_subset
from rl_training.data.batch import Batch
from rl_training.errors import ConfigError
from rl_training.models.sac import MLPSACModel


def random_subsets(uniforms: Tensor, size: int) -> Tensor:
    """Return `size` distinct critics per member, (members, size), given one uniform per critic (members, critics)."""
    return uniforms.argsort(dim=1)[:, :size]


def subset_minimum(q: Tensor, subset: Tensor) -> Tensor:
    """Line 7 of algorithm 1: the minimum over the chosen critics (members, size) on axis 1 of q."""
    index = subset.reshape(*subset.shape, *(1 for _ in q.shape[2:])).expand(-1, -1, *q.shape[2:])
    return q.gather(1, index).amin(1)


def redq_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return REDQ's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `REDQ`."""
    return REDQ(model, **knobs).pure_loss(batch, step)


class REDQ(SAC):
    """SAC with random subset targets and a policy on the ensemble mean."""

    knobs_type: ClassVar[type[REDQKnobs]] = REDQKnobs
    knobs: REDQKnobs

    def __init__(self, model: MLPSACModel, **knobs: Any) -> None:
        super().__init__(model, **knobs)
        try:
            check_subset(self.knobs.subset_size, model.num_critics)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def aggregate(self, q: Tensor, *, purpose: Literal["target", "actor"], step: Step) -> Tensor:
        """Return the minimum of a random subset of critics for the target, the mean of all for the policy."""
        if purpose == "actor":
            return q.mean(1)
        uniforms = step.draws.uniforms("critic_subset", (self.model.num_critics,))
        return subset_minimum(q, random_subsets(uniforms, self.knobs.subset_size))
