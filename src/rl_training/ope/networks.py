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
    errors; random ones keep them well conditioned.
    """

    def __init__(self, ensemble: int, inputs: int, widths: tuple[int, ...], outputs: int, **options: Any) -> None:
        super().__init__(ensemble, inputs, widths, outputs, **options)
        self._first = self.bank.flat.clone()
        self._settled = self.bank.flat.clone()
        self.last_layer = torch.zeros(ensemble, outputs, 2 * widths[-1] + 1, device=self.bank.flat.device)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return outputs (ensemble, rows, outputs) for inputs (rows, inputs), with gradients for the learned part."""
        with torch.no_grad():
            fixed = self._hidden(self._first, inputs) @ self.last_layer[..., : self.mlp.hidden_sizes[-1]].mT
        return super().__call__(inputs) + fixed

    @torch.no_grad()
    def features(self, inputs: Tensor, *, settled: bool = False) -> Tensor:
        """Return what the last layer multiplies, (ensemble, rows, features), as it is or as it was when that was computed."""
        learned = self._hidden(self._settled if settled else self.bank.flat, inputs)
        return torch.cat((self._hidden(self._first, inputs), learned, torch.ones_like(learned[..., :1])), dim=-1)

    def _hidden(self, flat: Tensor, inputs: Tensor) -> Tensor:
        layout, kept = self.mlp.layout, list[list[Tensor]]()
        eager.forward(layout, layout.stacks(flat), inputs.expand(layout.ensemble, *inputs.shape), kept)
        return kept[-1][0]

    @torch.no_grad()
    def set_last_layer(self, weights: Tensor) -> None:
        """Replace the last layer by weights (ensemble, outputs, features), of which the last is the bias."""
        views, last = self.bank.views(self.bank.flat), self.mlp.hidden_layers
        self.last_layer.copy_(weights)
        views[f"{_GROUP}/{last}/weight"][0].copy_(weights[..., self.mlp.hidden_sizes[-1] : -1].mT)
        views[f"{_GROUP}/{last}/bias"][0].copy_(weights[..., -1])
        self._settled.copy_(self.bank.flat)


def batches(seed: int, stream: str, steps: int, size: int, rows: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the row numbers of each step's batch, (size,), drawn uniformly."""
    for first in range(0, steps, _DRAWN):
        numbers = torch.arange(first, min(first + _DRAWN, steps), device=device)
        yield from rng.integers([seed], stream, numbers, (size,), high=rows, device=device)[0]


def episode_weights(seed: int, stream: str, ensemble: int, episodes: int) -> Tensor:
    """Return how often each episode is drawn into each member's bootstrap sample, (ensemble, episodes)."""
    drawn = rng.integers(range(seed, seed + ensemble), stream, 0, (episodes,), high=episodes, device=torch.device("cpu"))
    return torch.stack([torch.bincount(row, minlength=episodes) for row in drawn]).float()
