"""Held-out rows: a learner's losses on episodes it never trains on, and what its policy does there."""

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import torch

from rl_training.algorithms.learner import Learner, Step
from rl_training.data.batch import Batch
from rl_training.data.processing import RunData, spread_rows
from rl_training.rng import Draws
from rl_training.runtime.validating.policy_check import PolicyCheck

_COMPARED_ROWS = 5_120  # most rows of either kind whose losses are compared
_PARTS = 16  # that these rows are cut into, at least: how far the losses of parts differ tells how sure their mean is

Columns = dict[str, list[float]]  # by metric and member


class Sampled(NamedTuple):
    """Means of metrics over some rows, and their standard errors: what other rows of the same kind might have said."""

    means: Columns
    errors: Columns


class Validation:
    """Rows that are never trained on; every evaluation uses the same rows and the same random numbers."""

    def __init__(self, data: RunData, batch_size: int, max_rows: int, training: RunData, policy: PolicyCheck) -> None:
        self._rows = spread_rows(data, max_rows)
        self._compared = [spread_rows(rows, min(max_rows, _COMPARED_ROWS)) for rows in (data, training)]
        self._layout, self._batch_size = data.layout, batch_size
        self.policy = policy

    def __len__(self) -> int:
        return len(self._rows)

    def losses(self, learner: Learner[Any, Any]) -> Columns:
        """Return each member's mean of every metric of the learner over the rows; without side effects."""
        parts = torch.split(self._rows, self._batch_size)
        means = {}
        for name, scored in self._scored(learner, parts).items():
            total = sum((mean * len(part) for mean, part in zip(scored, parts, strict=True)), torch.zeros(()))
            means[name] = (total / len(self._rows)).tolist()
        return means

    def compared(self, learner: Learner[Any, Any]) -> tuple[Sampled, Sampled]:
        """Return the same metrics on held-out rows and on training rows, enough of either to know how sure they are."""
        held_out, training = (self._sampled(learner, rows) for rows in self._compared)
        return held_out, training

    def _sampled(self, learner: Learner[Any, Any], rows: torch.Tensor) -> Sampled:
        """Neighbouring rows are in one part, since rows of an episode are alike; of a single row nothing is sure."""
        count = min(len(rows), max(_PARTS, ceil(len(rows) / self._batch_size)))
        scored = {name: torch.stack(means) for name, means in self._scored(learner, rows.tensor_split(count)).items()}
        errors = {name: (means.var(0, correction=0) / (count - 1)).sqrt().tolist() for name, means in scored.items()}
        return Sampled({name: means.mean(0).tolist() for name, means in scored.items()}, errors)

    @torch.no_grad()
    def _scored(self, learner: Learner[Any, Any], parts: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """Every metric of each part of some rows, (members,)."""
        model = learner.model
        draws = Draws.of_steps(model.seed_tensor, 0, len(parts))
        found: dict[str, list[torch.Tensor]] = {}
        for number, part in enumerate(parts):
            batch = self._batch(part.to(model.device), model.members)
            _, metrics = learner.loss(batch, Step(draws.at(number), model.trained.groups, True))
            for name, values in metrics.items():
                found.setdefault(name, []).append(values.double().reshape(model.members, -1).mean(1))
        return found

    def _batch(self, rows: torch.Tensor, members: int) -> Batch:
        return self._layout.batch(rows.expand(members, *rows.shape))
