"""Networks that are fitted side by side on shared batches, one for each member of an ensemble."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rl_training import rng
from rl_training.models.adam import GroupedAdam, GroupOptions
from rl_training.models.mlp import eager
from rl_training.models.mlp.network import StackedMLP
from rl_training.models.parameters import ParameterBank

_DRAWN = 100  # steps whose batches are drawn at once
_AT_ONCE = 4096  # rows, so that what is between two layers stays in the cache
_GROUP = "network"


class Networks:
    """An ensemble of perceptrons that are trained by Adam."""

    def __init__(
        self,
        ensemble: int,
        inputs: int,
        widths: tuple[int, ...],
        outputs: int,
        *,
        rate: float,
        seed: int,
        device: torch.device,
    ) -> None:
        self.mlp = StackedMLP(_GROUP, _GROUP, inputs, widths, outputs, ensemble)
        self.bank = ParameterBank([self.mlp.parameters], 1, device)
        self.bank.initialize([seed])
        self._trained = self.bank.values(self.bank.flat, trainable=True)[_GROUP]
        self._adam = GroupedAdam(self.bank, {_GROUP: GroupOptions(rate)})

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return outputs (ensemble, rows, outputs) for inputs (rows, inputs), with gradients for the parameters."""
        found: Tensor = self.mlp(self._trained, inputs.unsqueeze(0))
        return found[0]

    def step(self, loss: Tensor, factor: float = 1.0) -> None:
        """Take one step of Adam down a loss that is summed over the networks."""
        (gradient,) = torch.autograd.grad(loss, [self._trained.columns])
        self._adam.step({_GROUP: gradient}, [_GROUP], {_GROUP: factor})

    @torch.no_grad()
    def each(self, inputs: Tensor) -> Tensor:
        """Return outputs (ensemble, rows, outputs) for inputs (ensemble, rows, inputs), each network's own."""
        layout = self.mlp.layout
        return eager.forward(layout, layout.stacks(self.bank.flat), inputs)


class SolvedNetworks(Networks):
    """Networks whose last layer is computed from outside, on two kinds of features: learned ones, and those they began with.

    Learned features alone are few where training has no use for more, and then the equations of the last layer amplify their
    errors; random ones keep them well conditioned. Only the learned part is a network that is trained.
    """

    def __init__(self, ensemble: int, inputs: int, widths: tuple[int, ...], outputs: int, **options: Any) -> None:
        super().__init__(ensemble, inputs, widths, outputs, **options)
        self._first = self.bank.flat.clone()
        self.fixed = widths[-1]  # features that stay as they began; they come first
        self.count = self.fixed + widths[-1] + 1

    @torch.no_grad()
    def features(self, number: int, inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """Return what the last layer of one network multiplies, (rows, count): random, learned, and 1; in `out` if given."""
        found = torch.empty(len(inputs), self.count, device=inputs.device) if out is None else out
        for first in range(0, len(inputs), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            found[rows, : self.fixed] = self._hidden(self._first, number, inputs[rows])
            found[rows, self.fixed : -1] = self._hidden(self.bank.flat, number, inputs[rows])
        found[:, -1] = 1.0
        return found

    def _hidden(self, flat: Tensor, number: int, inputs: Tensor) -> Tensor:
        """The last hidden layer of one network; `eager.forward` gives the same bits with outputs, in a quarter more time."""
        *hidden, _, _ = [stack[number] for stack in self.mlp.layout.stacks(flat)]
        for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
            inputs = torch.addmm(bias, inputs, weight).relu_()
        return inputs

    @torch.no_grad()
    def set_last_layer(self, number: int, weights: Tensor) -> None:
        """Replace the learned part of one network's last layer by weights (outputs, count), of which the last is the bias."""
        views, last = self.bank.views(self.bank.flat), self.mlp.hidden_layers
        views[f"{_GROUP}/{last}/weight"][0, number].copy_(weights[:, self.fixed : -1].mT)
        views[f"{_GROUP}/{last}/bias"][0, number].copy_(weights[:, -1])


def batches(seed: int, stream: str, steps: int, size: int, rows: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the row numbers of each step's batch, (size,), drawn uniformly."""
    for first in range(0, steps, _DRAWN):
        numbers = torch.arange(first, min(first + _DRAWN, steps), device=device)
        yield from rng.integers([seed], stream, numbers, (size,), high=rows, device=device)[0]


def episode_weights(seed: int, stream: str, ensemble: int, episodes: int) -> Tensor:
    """Return how often each episode is drawn into each member's bootstrap sample, (ensemble, episodes)."""
    drawn = rng.integers(range(seed, seed + ensemble), stream, 0, (episodes,), high=episodes, device=torch.device("cpu"))
    return torch.stack([torch.bincount(row, minlength=episodes) for row in drawn]).float()
