"""The target of a transition and the loss to it, which all critics share."""

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from rl_training.algorithms.per_member import Knob
from rl_training.data.batch import Batch


def td_target(batch: Batch, next_values: Tensor, gamma: Knob) -> Tensor:
    """Return r + gamma (1 - d) V(s'), (members, batch); d is 0 at a timeout, which still bootstraps from V(s').

    Over m steps r is their discounted reward, s' the state after them, and gamma^m, in the batch, replaces gamma.
    """
    discounts = gamma if batch.discounts is None else batch.discounts
    return torch.addcmul(batch.rewards, (1.0 - batch.terminals).mul_(discounts), next_values)


def td_loss(q: Tensor, target: Tensor, huber_delta: float | None = None) -> Tensor:
    """Return the sum over critics (members, critics, batch) of the mean squared error to one target (members, batch).

    With `huber_delta` it is the mean Huber loss: half the square up to delta, linear beyond.
    """
    if huber_delta is None:
        return (q - target.unsqueeze(1)).square().mean(-1).sum(-1)
    return huber_loss(q, target.unsqueeze(1).expand_as(q), reduction="none", delta=huber_delta).mean(-1).sum(-1)
