"""Batches of a fixed dataset whose rows are stored on the training device: one gather per batch."""

import torch
from torch import Tensor

from rl_training import rng
from rl_training.data.processing import ProcessedDataset
from rl_training.runtime.batches.base import Batches, Bits


class DatasetBatches(Batches):
    """Uniform batches of all rows; with `prior` every row is marked as prior data."""

    def __init__(
        self, data: ProcessedDataset, seeds: Tensor, batch_size: int, device: torch.device, *, prior: bool = False
    ) -> None:
        super().__init__(data.layout, seeds, batch_size)
        self.rows = torch.from_numpy(data.rows).to(device)
        self._prior = prior

    def indices(self, bits: Bits, steps: int) -> tuple[Tensor, Tensor | None]:
        """Return row indices, uniform over the dataset."""
        del steps
        found = rng.bounded(bits("batches"), len(self.rows), 1).transpose(0, 1).contiguous()
        return found, torch.ones_like(found, dtype=torch.float32) if self._prior else None

    def gather(self, indices: Tensor) -> Tensor:
        """Return the packed rows."""
        return self.rows.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)
