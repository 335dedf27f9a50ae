"""Held-out losses: a learner's losses on episodes it never trains on."""

from typing import Any

import numpy as np
import torch

from rl_training.algorithms.learner import Learner, Step
from rl_training.data.batch import Batch
from rl_training.data.processing import RunData
from rl_training.rng import Draws


class Validation:
    """Rows that are never trained on; every evaluation uses the same rows and the same random numbers."""

    def __init__(self, data: RunData, batch_size: int, max_rows: int) -> None:
        count = min(len(data), max_rows)
        rows = np.unique(np.linspace(0, len(data) - 1, count).astype(np.int64))
        self._rows = torch.from_numpy(np.ascontiguousarray(data.fetch(rows)))
        self._layout, self._batch_size = data.layout, batch_size
        self.rows_available = len(data)

    def __len__(self) -> int:
        return len(self._rows)

    @torch.no_grad()
    def losses(self, learner: Learner[Any, Any]) -> dict[str, list[float]]:
        """Return each member's mean of every metric of the learner over the rows; without side effects."""
        model, parts = learner.model, torch.split(self._rows, self._batch_size)
        draws = Draws.of_steps(model.seed_tensor, 0, len(parts))
        sums: dict[str, torch.Tensor] = {}
        for number, part in enumerate(parts):
            batch = self._batch(part.to(model.device), model.members)
            _, metrics = learner.loss(batch, Step(draws.at(number), model.trained.groups, True))
            for name, values in metrics.items():
                mean = values.double().reshape(model.members, -1).mean(1) * len(part)
                sums[name] = sums[name] + mean if name in sums else mean
        return {name: (total / len(self._rows)).tolist() for name, total in sums.items()}

    def _batch(self, rows: torch.Tensor, members: int) -> Batch:
        return self._layout.batch(rows.expand(members, *rows.shape))
