"""Fitted Q evaluation: what each policy would earn from where the episodes begin, by the Bellman equation on logged rows.

A network has learned features and one output for each policy. With the features fixed, the Bellman equation of a policy is
linear, so the last layer is computed; with the values fixed, the network is a regression, by which the features learn. The
two take turns. All policies share the features, so that their differences are not those of networks. The equations also say
what an estimate rests on: the weight of each row in it, from which follow its variance over episodes and the effective
number of rows, and whether repeated evaluation would converge at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.importance import RowValues
from rl_training.ope.linear import Equations, Solution, solve
from rl_training.ope.networks import Networks, batches, episode_weights

_PART = 32_768  # rows of the linear equations at once, divided by the number of policies
_TURN_ROWS = 20_000  # rows of the equations between two turns


@dataclass(frozen=True)
class FQEOptions:
    """The budget of fitted Q evaluation."""

    steps: int = 3000
    turns: int = 6
    ensemble: int = 4
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
        seen, following = (
            torch.from_numpy(episodes.of_observations(rows)).to(device)
            for rows in (episodes.observations, episodes.next_observations)
        )
        starts = torch.from_numpy(episodes.starts)
        self._seen, self._next = seen, following
        self._here = torch.cat((seen, Behaviour.logged(episodes).here.to(device)), dim=-1)
        self._following = torch.stack([one.following for one in behaviours]).to(device)  # (policies, rows, actions)
        first = torch.stack([one.here[starts] for one in behaviours]).to(device)
        self._first = torch.cat((seen[starts.to(device)].expand(len(first), -1, -1), first), dim=-1)
        self._episode = torch.from_numpy(episodes.episode).to(device)
        self._weights = episode_weights(options.seed, "ope/bootstrap", options.ensemble, len(episodes.lengths)).to(device)
        self._scale_values()
        shape = (options.ensemble, self._here.shape[1], options.widths, len(behaviours))
        self._networks = Networks(*shape, rate=options.rate, seed=options.seed, device=device)
        self._last_layer = torch.zeros(options.ensemble, len(behaviours), options.widths[-1] + 1, device=device)

    def _scale_values(self) -> None:
        """Fix the units of the networks: a value is centre + spread * output. A true end is worth 0, whatever the centre."""
        rewards, ends = self.episodes.rewards, self.episodes.terminals
        lasts = self.gamma * (1.0 - float(ends.mean()))  # the chance that there is a next row, discounted
        usual = max(float(rewards.std()), 1e-6 * abs(float(rewards.mean()))) or 1.0
        self._centre, self._spread = float(rewards.mean()) / (1.0 - lasts), usual / (1.0 - lasts) ** 0.5
        goes_on = self.gamma * (1.0 - ends)
        earned = (rewards - self._centre + goes_on * self._centre) / self._spread
        self._goes_on = torch.from_numpy(goes_on).float().to(self.device)
        self._earned = torch.from_numpy(earned).float().to(self.device)

    def fit(self) -> FittedValues:
        """Train the networks, the last layer and the others in turns; return the values."""
        options = self.options
        drawn = batches(options.seed, "ope/batches", options.steps, options.batch_size, len(self.episodes), self.device)
        per_turn = -(-options.steps // options.turns)
        for step, rows in enumerate(drawn):
            if step % per_turn == 0:
                self._solve_last_layer(max(1, len(self.episodes) // _TURN_ROWS))
            self._regress(rows, 1.0 - step / options.steps)
        return self._values(self._solve_last_layer(1))

    def _regress(self, rows: Tensor, factor: float) -> None:
        """Move the networks towards the reward and the value of what follows, in each network's bootstrap sample."""
        with torch.no_grad():
            values = torch.einsum("epnf,epf->epn", self._following_features(rows), self._last_layer)
            wanted = self._earned[rows] + self._goes_on[rows] * values
        apart = self._networks(self._here[rows]).mT - wanted
        weight = self._weights[:, self._episode[rows]].unsqueeze(1)
        self._networks.step((apart.square() * weight).mean(-1).sum(), factor)

    def _following_features(self, rows: Tensor | slice) -> Tensor:
        """The features where rows lead under each policy, (ensemble, policies, rows, features)."""
        following = self._following[:, rows]
        inputs = torch.cat((self._next[rows].expand(len(following), -1, -1), following), dim=-1)
        features = self._networks.features(inputs.flatten(0, 1))
        return features.view(len(features), *following.shape[:2], -1)

    def _parts(self, every: int = 1) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Every so many rows, in parts: their episodes, features, discounted features of what follows, what is earned."""
        size = max(1, _PART // len(self._following)) * every
        for first in range(0, len(self.episodes), size):
            rows = slice(first, first + size, every)
            here, following = self._networks.features(self._here[rows]), self._following_features(rows)
            yield self._episode[rows], here, following * self._goes_on[rows, None], self._earned[rows]

    @torch.no_grad()
    def _solve_last_layer(self, every: int) -> Solution:
        """Compute the last layer from every so many rows."""
        total = Equations(*(torch.zeros((), dtype=torch.float64, device=self.device) for _ in range(3)))
        for _, here, following, earned in self._parts(every):
            moved = torch.stack([here.mT @ one for one in following.unbind(1)], dim=1)
            sums = ((here.mT @ here).unsqueeze(1), moved, (here.mT @ earned).unsqueeze(1))
            total = total + Equations(*(one.double() for one in sums))
        solution = solve(total)
        self._last_layer = solution.weights.float()
        self._networks.set_last_layer(self._last_layer)
        return solution

    @torch.no_grad()
    def _values(self, solution: Solution) -> FittedValues:
        """The values at the first observations, and what they rest on."""
        policies, episodes = self._first.shape[:2]
        first = self._networks.features(self._first.flatten(0, 1)).double()
        first = first.view(len(first), policies, episodes, -1)
        values = torch.einsum("epnf,epf->epn", first, solution.weights)
        rested = solution.weighing(first.mean(2))
        influence = (values - values.mean(-1, keepdim=True)) / episodes
        total, square = torch.zeros_like(rested[..., 0]), torch.zeros_like(rested[..., 0])
        for episode, here, following, earned in self._parts():
            weight = torch.einsum("enf,epf->epn", here.double(), rested)
            expected = torch.einsum("enf,epf->epn", here.double(), solution.weights)
            apart = earned + torch.einsum("epnf,epf->epn", following.double(), solution.weights) - expected
            influence.index_add_(2, episode, weight * apart)
            total, square = total + weight.abs().sum(-1), square + weight.square().sum(-1)
        found = (self._real(values.mean(-1)), self._spread * influence, total.square() / square)
        return FittedValues(*(one.cpu() for one in (*found, solution.growth, solution.stable)))

    def _real(self, outputs: Tensor) -> Tensor:
        return torch.add(outputs * self._spread, self._centre)

    @torch.no_grad()
    def at_rows(self, number: int, behaviour: Behaviour) -> RowValues:
        """Return the values of a policy, by its number, in every row."""
        own = torch.cat((self._seen, behaviour.here.to(self.device)), dim=-1)
        following = torch.cat((self._next, self._following[number]), dim=-1)
        layer = self._last_layer[:, number].unsqueeze(-1)
        found = []
        for inputs in (self._here, own, following):
            parts = [(self._networks.features(part) @ layer).mean(0)[:, 0] for part in torch.split(inputs, _PART)]
            found.append(self._real(torch.cat(parts).double()).cpu().numpy())
        return RowValues(*found)
