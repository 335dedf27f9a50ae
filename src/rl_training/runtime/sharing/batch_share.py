"""Every batch split over the ranks of a run: each computes the gradients of its rows, and all take the step of their mean."""

import torch
import torch.distributed as dist
from torch import Tensor

from rl_training.algorithms.learner import Metrics, summarize
from rl_training.runtime.sharing.ranks import BatchRanks, ended_if_it_fails


class BatchShare:
    """The rows of each batch that this rank has; parts are equal, so the mean of their means is that of the batch."""

    def __init__(self, ranks: BatchRanks, device: torch.device) -> None:
        self.part = ranks.rank, ranks.count
        self._group = dist.new_group(backend="nccl") if device.type == "cuda" else None

    def rows(self, batch: Tensor) -> Tensor:
        """Return the own rows of (members, batch, width)."""
        number, parts = self.part
        return batch.tensor_split(parts, dim=1)[number]

    def gradients(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean of the ranks' gradients, the same bits on all of them; one exchange for all segments."""
        total = self._sum(torch.cat(list(own.values()), dim=1))
        parts = torch.split_with_sizes(total.div_(self.part[1]), [value.shape[1] for value in own.values()], dim=1)
        return dict(zip(own, parts, strict=True))

    def metrics(self, own: Metrics) -> Metrics:
        """Return the mean of the ranks' metrics, (members,); NaN on one rank is NaN on all."""
        if not own:
            return own
        total = self._sum(torch.stack(list(summarize(own).values())).contiguous())
        return dict(zip(own, total.div_(self.part[1]), strict=True))

    def _sum(self, values: Tensor) -> Tensor:
        with ended_if_it_fails():
            dist.all_reduce(values, group=self._group)
        return values
