"""Held-out rows: a learner's losses on episodes it never trains on, and what its policy does there."""

from typing import Any

import torch

from rl_training.algorithms.learner import Learner, Step
from rl_training.data.batch import Batch
from rl_training.data.processing import RunData, spread_rows
from rl_training.rng import Draws
from rl_training.runtime.validating.policy_check import PolicyCheck

_TRAINING_ROWS = 5_120  # most training rows that held-out losses are compared with


class Validation:
    """Rows that are never trained on; every evaluation uses the same rows and the same random numbers."""

    def __init__(self, data: RunData, batch_size: int, max_rows: int, training: RunData, policy: PolicyCheck) -> None:
        self._rows = spread_rows(data, max_rows)
        self._training_rows = spread_rows(training, min(len(self._rows), _TRAINING_ROWS))
        self._layout, self._batch_size = data.layout, batch_size
        self.policy = policy

    def __len__(self) -> int:
        return len(self._rows)

    def losses(self, learner: Learner[Any, Any]) -> dict[str, list[float]]:
        """Return each member's mean of every metric of the learner over the rows; without side effects."""
        return self._means(learner, self._rows)

    def training_losses(self, learner: Learner[Any, Any]) -> dict[str, list[float]]:
        """Return the same means over some of the rows it trains on, for comparison."""
        return self._means(learner, self._training_rows)

    @torch.no_grad()
    def _means(self, learner: Learner[Any, Any], rows: torch.Tensor) -> dict[str, list[float]]:
        model, parts = learner.model, torch.split(rows, self._batch_size)
        draws = Draws.of_steps(model.seed_tensor, 0, len(parts))
        sums: dict[str, torch.Tensor] = {}
        for number, part in enumerate(parts):
            batch = self._batch(part.to(model.device), model.members)
            _, metrics = learner.loss(batch, Step(draws.at(number), model.trained.groups, True))
            for name, values in metrics.items():
                mean = values.double().reshape(model.members, -1).mean(1) * len(part)
                sums[name] = sums[name] + mean if name in sums else mean
        return {name: (total / len(rows)).tolist() for name, total in sums.items()}

    def _batch(self, rows: torch.Tensor, members: int) -> Batch:
        return self._layout.batch(rows.expand(members, *rows.shape))
