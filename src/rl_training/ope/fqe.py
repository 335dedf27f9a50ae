"""Fitted Q evaluation: what each policy would earn from where the episodes begin, by the Bellman equation on logged rows.

A network has features, learned and random ones, and one output for each policy. With the features fixed, the Bellman equation
of a policy is linear, so the last layer is computed; with the values fixed, the network is a regression, by which the
features learn. The two take turns. All policies share the features, so that their differences are not those of networks. The
equations also say what an estimate rests on: the weight of each row in it, from which follow its variance over episodes and
the effective number of rows, and whether repeated evaluation would converge at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.importance import RowValues
from rl_training.ope.linear import Equation, Solution, solve
from rl_training.ope.networks import SolvedNetworks, batches, episode_weights

_TURN_ROWS = 10_000  # rows of a turn: of its equations, and of the regression that follows
_NORMAL_MAD = 1.4826  # standard deviations of a normal distribution for one median of absolute deviations
_ROWS = 25_000  # rows of a network's last equations, other ones for each; neighbours in time tell nearly the same


@dataclass(frozen=True)
class FQEOptions:
    """The budget of fitted Q evaluation."""

    steps: int = 2000
    turns: int = 5
    ensemble: int = 12  # chance between networks decides the order of policies that are close
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

    def middle(self, number: int) -> tuple[float, float, float]:
        """Return the value of a policy and its standard deviations between networks and over episodes.

        All three are medians, since now and then a single network is far off.
        """
        each, squares = self.values[:, number].numpy(), self.influence[:, number].square().sum(-1).numpy()
        value = np.median(each)
        return float(value), _NORMAL_MAD * float(np.median(np.abs(each - value))), float(np.sqrt(np.median(squares)))


class Yardstick:
    """Values of policies by features that were learned from what was logged alone.

    The value of a policy is then a function of the policy and the data, whoever is evaluated beside it. Features that are
    learned for the policies themselves, as by `FittedQ.fit`, compare only what they were learned for.
    """

    def __init__(self, episodes: Episodes, gamma: float, options: FQEOptions, device: torch.device) -> None:
        self._given = (gamma, options, device)
        self._episodes = episodes
        self._networks = FittedQ(episodes, [Behaviour.logged(episodes)], *self._given).trained()

    def values(self, behaviours: Sequence[Behaviour]) -> FittedValues:
        """Return the values of policies."""
        return FittedQ(self._episodes, behaviours, *self._given, self._networks).values()


class FittedQ:
    """Q of several policies, fitted on the same rows; of `networks` that are given, trained ones, the last layers alone."""

    def __init__(
        self,
        episodes: Episodes,
        behaviours: Sequence[Behaviour],
        gamma: float,
        options: FQEOptions,
        device: torch.device,
        networks: SolvedNetworks | None = None,
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
        self._networks = networks or SolvedNetworks(*shape, rate=options.rate, seed=options.seed, device=device)
        self._layers = torch.zeros(options.ensemble, len(behaviours), self._networks.count, device=device)

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
        self.trained()
        return self.values()

    def trained(self) -> SolvedNetworks:
        """Train the networks, the last layer and the others in turns; return them."""
        options, every = self.options, self._every(_TURN_ROWS)
        per_turn = -(-options.steps // options.turns)
        for turn, done in enumerate(range(0, options.steps, per_turn)):
            rows = slice(turn % every, None, every)  # other rows in every turn
            wanted, here, weights = self._wanted(rows), self._here[rows], self._weights[:, self._episode[rows]]
            steps = min(per_turn, options.steps - done)
            drawn = batches(options.seed, f"ope/batches/{turn}", steps, options.batch_size, len(here), self.device)
            for step, chosen in enumerate(drawn, done):
                self._regress(here[chosen], wanted[..., chosen], weights[:, chosen], 1.0 - step / options.steps)
        return self._networks

    def _every(self, rows: int) -> int:
        """Of so many rows one is used where at most about `rows` are enough."""
        return max(1, round(len(self.episodes) / rows))

    def _regress(self, inputs: Tensor, wanted: Tensor, weights: Tensor, factor: float) -> None:
        """Move the networks towards what is wanted of them, each in its bootstrap sample of the episodes."""
        apart = self._networks(inputs).mT - wanted
        self._networks.step((apart.square() * weights.unsqueeze(1)).mean(-1).sum(), factor)

    @torch.no_grad()
    def _wanted(self, rows: slice) -> Tensor:
        """Solve the last layers on some rows; return what their learned part should be there, (ensemble, policies, rows).

        That is the reward and the value of what follows, less what the random features give. Until the next turn it stays as
        it is, so the steps of a turn need no value of what follows.
        """
        found, fixed = [], self._networks.fixed
        for number in range(self.options.ensemble):
            layers = []
            for here, following, solution in self._solved(number, rows):
                layers.append(solution.weights.float())
                found.append(self._earned[rows] + following @ layers[-1] - here[:, :fixed] @ layers[-1][:fixed])
            self._networks.set_last_layer(number, torch.stack(layers))
        return torch.stack(found).view(self.options.ensemble, len(self._following), -1)

    def _solved(self, number: int, rows: slice) -> Iterator[tuple[Tensor, Tensor, Solution]]:
        """Solve the last layer of one network for each policy in turn.

        Yields the features of the rows, the discounted ones of what follows, in memory that the next policy reuses, and the
        solution.
        """
        here, goes_on = self._networks.features(number, self._here[rows]), self._goes_on[rows, None]
        gram, earned = (here.mT @ here).double(), (here.mT @ self._earned[rows]).double()
        following = torch.empty_like(here)
        for actions in self._following:
            inputs = torch.cat((self._next[rows], actions[rows]), dim=-1)
            self._networks.features(number, inputs, following).mul_(goes_on)
            yield here, following, solve(Equation(gram, (here.mT @ following).double(), earned))

    @torch.no_grad()
    def values(self) -> FittedValues:
        """Return the values at the first observations and what they rest on; each network solves them on rows of its own."""
        found, shape, every = [], (self.options.ensemble, len(self._following)), self._every(_ROWS)
        for number in range(self.options.ensemble):
            rows = slice(number % every, None, every)
            for policy, (here, following, solution) in enumerate(self._solved(number, rows)):
                self._layers[number, policy] = weights = solution.weights.float()
                apart = self._earned[rows] + following @ weights - here @ weights
                first = self._networks.features(number, self._first[policy]).double()
                values, weight = first @ solution.weights, here @ solution.weighing(first.mean(0)).float()
                influence = (values - values.mean()) / len(values)
                influence.index_add_(0, self._episode[rows], (weight * apart).double())
                effective = weight.abs().sum().square() / weight.square().sum() * (len(self.episodes) / len(here))
                each = (self._real(values.mean()), self._spread * influence, effective, solution.growth, solution.stable)
                found.append([torch.as_tensor(one).cpu() for one in each])
        columns = (torch.stack(column) for column in zip(*found, strict=True))
        return FittedValues(*(column.view(*shape, *column.shape[1:]) for column in columns))

    def _real(self, outputs: Tensor) -> Tensor:
        return torch.add(outputs * self._spread, self._centre)

    @torch.no_grad()
    def at_rows(self, number: int, behaviour: Behaviour) -> RowValues:
        """Return the values of a policy, by its number, in every row."""
        own = torch.cat((self._seen, behaviour.here.to(self.device)), dim=-1)
        following = torch.cat((self._next, self._following[number]), dim=-1)
        found = []
        for inputs in (self._here, own, following):
            outputs = [self._networks.features(one, inputs) @ layers[number] for one, layers in enumerate(self._layers)]
            found.append(self._real(torch.stack(outputs).quantile(0.5, dim=0).double()).cpu().numpy())
        return RowValues(*found)
