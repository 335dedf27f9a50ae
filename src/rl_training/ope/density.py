"""How likely an action was in the log: a mixture of Gaussians around centres that depend on the observation."""

import math

import torch
from torch import Tensor

from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.networks import Networks, batches

_CENTRES = 4
_NARROWEST, _WIDEST = math.log(0.03), math.log(3.0)  # deviations, in units of that of the logged actions
_PART = 16_384


class LoggedDensity:
    """The density of logged actions at the observations of logged rows, fitted by maximum likelihood."""

    def __init__(self, episodes: Episodes, steps: int, seed: int, device: torch.device) -> None:
        self._seen = torch.from_numpy(episodes.of_observations(episodes.observations)).to(device)
        self._actions = Behaviour.logged(episodes).here.to(device)
        self._steps, self._seed, self.dims = steps, seed, self._actions.shape[1]
        outputs = _CENTRES * (1 + 2 * self.dims)
        self._networks = Networks(1, self._seen.shape[1], (64, 64), outputs, rate=1e-3, seed=seed, device=device)

    def fit(self) -> None:
        """Train the network."""
        drawn = batches(self._seed, "ope/density", self._steps, 256, len(self._seen), self._seen.device)
        for step, rows in enumerate(drawn):
            loss = -self._log_density(*self._parts(self._seen[rows]), self._actions[rows]).mean()
            self._networks.step(loss, 1.0 - step / self._steps)

    def _parts(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights (rows, centres), centres and log deviations (rows, centres, dims)."""
        found = self._networks(seen)[0].view(len(seen), _CENTRES, 1 + 2 * self.dims)
        weights, centres, deviations = torch.split(found, [1, self.dims, self.dims], dim=-1)
        return weights.squeeze(-1).log_softmax(-1), centres, deviations.clamp(_NARROWEST, _WIDEST)

    @staticmethod
    def _log_density(weights: Tensor, centres: Tensor, deviations: Tensor, actions: Tensor) -> Tensor:
        apart = (actions.unsqueeze(1) - centres) / deviations.exp()
        each = -0.5 * apart.square() - deviations - 0.5 * math.log(2.0 * math.pi)
        return (weights + each.sum(-1)).logsumexp(-1)

    @torch.no_grad()
    def mean(self, seen: Tensor) -> Tensor:
        """Return the mean of the logged actions for unitless observations (rows, dims), on the CPU."""
        weights, centres, _ = self._parts(seen.to(self._seen.device))
        return (weights.exp().unsqueeze(-1) * centres).sum(1).cpu()

    @torch.no_grad()
    def log_densities(self) -> tuple[Tensor, Tensor]:
        """Return the log density of each logged action, (rows,), and the usual deviation of each column, (dims,)."""
        found, squares = [], torch.zeros(self.dims, device=self._seen.device)
        for first in range(0, len(self._seen), _PART):
            rows = slice(first, first + _PART)
            weights, centres, deviations = self._parts(self._seen[rows])
            found.append(self._log_density(weights, centres, deviations, self._actions[rows]))
            squares += (weights.exp().unsqueeze(-1) * (2.0 * deviations).exp()).sum((0, 1))
        return torch.cat(found).double().cpu(), (squares / len(self._seen)).sqrt().double().cpu()
