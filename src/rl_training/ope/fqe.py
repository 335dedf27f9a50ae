"""Fitted Q evaluation: what each policy would earn from where the episodes begin, by the Bellman equation on logged rows.

A network has learned features and one output for each policy. With the features fixed, the Bellman equation of a policy is
linear, so the last layer is computed; with the values fixed, the network is a regression, by which the features learn. The
two take turns. All policies share the features, so that their differences are not those of networks. The equations also say
what an estimate rests on: the weight of each row in it, from which follow its variance over episodes and the effective
number of rows, and whether repeated evaluation would converge at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.ope.episodes import Behaviour, Episodes, stacked
from rl_training.ope.linear import Equations, Solution, solve
from rl_training.ope.networks import Networks, Progress, batches, episode_weights

_PART = 2048  # rows of the linear equations at once
_TURN_ROWS = 20_000  # rows of the equations between two turns

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class FQEOptions:
    """The budget of fitted Q evaluation."""

    steps: int = 3000
    turns: int = 6
    ensemble: int = 3
    widths: tuple[int, ...] = (128, 128)
    batch_size: int = 256
    rate: float = 1e-3
    seed: int = 0


@dataclass(frozen=True, eq=False)
class FittedValues:
    """What fitted Q evaluation found, for every network of the ensemble (first axis) and policy."""

    values: Tensor  # (ensemble, policies): at the first observations, on average
    influence: Tensor  # (ensemble, policies, episodes): of each episode on the value; their squares add up to its variance
    effective: Tensor  # (ensemble, policies): number of rows that the value rests on
    growth: Tensor  # (ensemble, policies): of an error under repeated evaluation; from 1 on it diverges
    stable: Tensor  # (ensemble, policies): whether some ridge made it converge


class FittedQ:
    """Q of several policies, fitted on the same rows."""

    def __init__(
        self, episodes: Episodes, behaviours: Sequence[Behaviour], gamma: float, options: FQEOptions, device: torch.device
    ) -> None:
        self.episodes, self.gamma, self.options, self.device = episodes, gamma, options, device
        scaled = episodes.of_observations
        logged = Behaviour.logged(episodes).here
        self._here = torch.cat((torch.from_numpy(scaled(episodes.observations)), logged), dim=-1).to(device)
        self._next = torch.from_numpy(scaled(episodes.next_observations)).to(device)
        self._following = stacked(behaviours, "following").to(device)  # (policies, rows, actions)
        starts = torch.from_numpy(episodes.starts)
        first = torch.stack([one.here[starts] for one in behaviours])
        seen = torch.from_numpy(scaled(episodes.observations))[starts]
        self._first = torch.cat((seen.expand(len(first), -1, -1), first), dim=-1).to(device)  # (policies, episodes, inputs)
        self._episode = torch.from_numpy(episodes.episode).to(device)
        self._weights = episode_weights(options.seed, "ope/bootstrap", options.ensemble, len(episodes.lengths)).to(device)
        self._scale_values()
        shape = (options.ensemble, self._here.shape[1], options.widths, len(behaviours))
        self.networks = Networks(*shape, rate=options.rate, seed=options.seed, device=device)

    def _scale_values(self) -> None:
        """Fix the units of the networks: a value is centre + spread * output. A true end is worth 0, whatever the centre."""
        rewards, ends = self.episodes.rewards, self.episodes.terminals
        lasts = self.gamma * (1.0 - ends.mean())  # the chance that there is a next row, discounted
        self.centre = float(rewards.mean() / (1.0 - lasts))
        usual = max(float(rewards.std()), 1e-6 * abs(float(rewards.mean()))) or 1.0
        self.spread = usual / (1.0 - lasts) ** 0.5
        goes_on = self.gamma * (1.0 - ends)
        earned = (rewards - self.centre + goes_on * self.centre) / self.spread
        self._goes_on = torch.from_numpy(goes_on).float().to(self.device)
        self._earned = torch.from_numpy(earned).float().to(self.device)

    def fit(self, progress: Progress = lambda done, of: None) -> FittedValues:
        """Train the networks, the last layer and the others in turns; return the values."""
        options = self.options
        drawn = batches(options.seed, "ope/batches", options.steps, options.batch_size, len(self.episodes), self.device)
        per_turn = -(-options.steps // options.turns)
        for step, rows in enumerate(drawn):
            if step % per_turn == 0:
                self._solve_last_layer(max(1, len(self.episodes) // _TURN_ROWS))
            self._regress(rows, 1.0 - step / options.steps)
            progress(step + 1, options.steps)
        return self._values(self._solve_last_layer(1))

    @torch.no_grad()
    def at_rows(self, number: int, behaviour: Behaviour) -> tuple[Numbers, Numbers, Numbers]:
        """Return a policy's values of the logged action, of its own, and of its own in the row after, in every row."""
        seen = self._here[:, : self._next.shape[1]]
        own = torch.cat((seen, behaviour.here.to(self.device)), dim=-1)
        following = torch.cat((self._next, self._following[number]), dim=-1)
        layer = self._frozen_layer[:, number].unsqueeze(-1)
        found = []
        for inputs in (self._here, own, following):
            parts = [(self.networks.features(part) @ layer).mean(0)[:, 0] for part in inputs.split(_PART)]
            found.append(self.centre + self.spread * torch.cat(parts).double().cpu().numpy())
        return found[0], found[1], found[2]

    def _regress(self, rows: Tensor, factor: float) -> None:
        """Move the networks towards the reward and the value of what follows, in each network's bootstrap sample."""
        with torch.no_grad():
            values = torch.einsum("epnf,epf->epn", self._following_features(rows, self.networks), self._frozen_layer)
            wanted = self._earned[rows] + self._goes_on[rows] * values
        apart = self.networks(self._here[rows]).mT - wanted
        weight = self._weights[:, self._episode[rows]].unsqueeze(1)
        self.networks.step((apart.square() * weight).mean(-1).sum(), factor)

    def _following_features(self, rows: Tensor | slice, networks: Networks) -> Tensor:
        """The features where rows lead under each policy, (ensemble, policies, rows, features)."""
        following = self._following[:, rows]
        inputs = torch.cat((self._next[rows].expand(len(following), -1, -1), following), dim=-1)
        features = networks.features(inputs.flatten(0, 1))
        return features.view(len(features), *following.shape[:2], -1)

    @torch.no_grad()
    def _solve_last_layer(self, every: int) -> Solution:
        """Compute the last layer from every so many rows."""
        total = None
        for _, here, following, earned in self._parts(every):
            moved = torch.stack([here.mT @ one for one in following.unbind(1)], dim=1)
            part = Equations((here.mT @ here).unsqueeze(1).double(), moved.double(), (here.mT @ earned).unsqueeze(1).double())
            total = part if total is None else total + part
        solution = solve(total)
        self.networks.set_last_layer(solution.weights)
        self._frozen_layer = solution.weights.float()
        return solution

    def _parts(self, every: int = 1) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Rows in parts: their episodes, features, discounted features of what follows, and what is earned."""
        for first in range(0, len(self.episodes), _PART * every):
            rows = slice(first, first + _PART * every, every)
            here = self.networks.features(self._here[rows])
            following = self._following_features(rows, self.networks) * self._goes_on[rows, None]
            yield self._episode[rows], here, following, self._earned[rows]

    @torch.no_grad()
    def _values(self, solution: Solution) -> FittedValues:
        """The values at the first observations, and what they rest on."""
        policies, episodes = self._first.shape[:2]
        first = (
            self.networks.features(self._first.flatten(0, 1))
            .view(-1, policies, episodes, solution.weights.shape[-1])
            .double()
        )
        values = torch.einsum("epnf,epf->epn", first, solution.weights)
        rested = solution.weighing(first.mean(2))
        influence = (values - values.mean(-1, keepdim=True)) / episodes
        total, square = torch.zeros_like(rested[..., 0]), torch.zeros_like(rested[..., 0])
        for episode, here, following, earned in self._parts():
            weight = torch.einsum("enf,epf->epn", here.double(), rested)
            apart = (
                earned
                + torch.einsum("epnf,epf->epn", following.double(), solution.weights)
                - torch.einsum("enf,epf->epn", here.double(), solution.weights)
            )
            influence.index_add_(2, episode, weight * apart)
            total, square = total + weight.abs().sum(-1), square + weight.square().sum(-1)
        effective = total.square() / square
        return FittedValues(
            self.centre + self.spread * values.mean(-1), self.spread * influence, effective, solution.growth, solution.stable
        )
