"""What every critic here shares: the one-step target and the squared error to it."""

import torch
from torch import Tensor

from rl_training.data.batch import Batch


def td_target(batch: Batch, next_values: Tensor, gamma: float) -> Tensor:
    """Return r + gamma (1 - d) V(s'), (members, batch); a timeout is no end and still counts V(s')."""
    return torch.addcmul(batch.rewards, 1.0 - batch.terminals, next_values, value=gamma)


def td_loss(q: Tensor, target: Tensor) -> Tensor:
    """Return the sum over critics (members, critics, batch) of the mean squared error to one target (members, batch)."""
    return (q - target.unsqueeze(1)).square().mean(-1).sum(-1)
