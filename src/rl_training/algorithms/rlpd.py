"""RL with prior data (Ball, Smith, Kostrikov, Levine: "Efficient online reinforcement learning with offline data", 2023).

Online SAC whose batches hold a fixed share of prior data. The learner is REDQ's: an ensemble of critics, a random subset of
them in the target, the mean of all for the policy, which is updated once per round of updates. What makes it RLPD are
its batches (`runtime/batches/replay.py`): each, also with many updates per environment step, has exactly
`round(offline_batch_ratio * batch_size)` prior rows. Options: LayerNorm critics and the ensemble size (of the model),
`alpha: auto` (as in the paper; fixed by default), `backup_entropy`, `offline_pretrain_updates` (the paper has none). Left
out: pixels and weight decay of the critics.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.learner import Metrics, Step
from rl_training.algorithms.redq import REDQ
from rl_training.config.algorithms.rlpd import RLPDKnobs
from rl_training.data.batch import Batch
from rl_training.models.sac import MLPSACModel


def rlpd_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return RLPD's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `RLPD`."""
    return RLPD(model, **knobs).pure_loss(batch, step)


class RLPD(REDQ):
    """REDQ on mixed batches; the metrics `prior_samples` and `online_samples` count each update's rows of either kind."""

    knobs_type: ClassVar[type[RLPDKnobs]] = RLPDKnobs
    knobs: RLPDKnobs
    metric_names: ClassVar[tuple[str, ...]] = (*REDQ.metric_names, "prior_samples", "online_samples")

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return REDQ's loss and metrics, plus the number of prior and online rows; an unmarked batch is online."""
        loss, metrics = super().loss(batch, step)
        prior = torch.zeros_like(batch.rewards) if batch.prior is None else batch.prior
        return loss, {**metrics, "prior_samples": prior.sum(-1), "online_samples": (1.0 - prior).sum(-1)}
