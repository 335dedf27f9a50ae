"""Calibrated Q-learning (Nakamoto and others: "Cal-QL: calibrated offline RL pre-training for efficient fine-tuning", 2023).

CQL whose penalty does not push the value of a policy action below the return that the data reached from that state: the
sampled value is floored at the Monte-Carlo return of s before it enters the log-sum-exp. No gradient flows where the floor
applies. Uniform actions and the actions in the data are not floored.
"""

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.cql import CQL
from rl_training.algorithms.learner import Metrics
from rl_training.config.algorithms.cal_ql import CalQLKnobs
from rl_training.data.batch import Batch
from rl_training.errors import ConfigError
from rl_training.models.sac import MLPSACModel


def cal_ql_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return Cal-QL's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `CalQL`."""
    return CalQL(model, **knobs).pure_loss(batch, step)


class CalQL(CQL):
    """CQL with policy-sampled values floored at `returns_to_go`; `calibrated_fraction` is the share that was floored."""

    knobs_type = CalQLKnobs
    knobs: CalQLKnobs
    metric_names = (*CQL.metric_names, "calibrated_fraction")

    def policy_values(self, q: Tensor, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return max(Q, return of s) for q (members, critics, samples, batch)."""
        if batch.returns_to_go is None:
            raise ConfigError(
                "Cal-QL needs `returns_to_go` in the batch: train with train_cal_ql, which derives them, "
                "or fill them with compute_returns_to_go"
            )
        floor = batch.returns_to_go[:, None, None, :]
        return torch.maximum(q, floor), {"calibrated_fraction": (q.detach() < floor).to(q.dtype)}
