"""A second opinion: a model of the plant, fitted on the same rows, in which every policy is run from where episodes begin.

It errs elsewhere than fitted Q evaluation: by what accumulates in a rollout, not by actions that differ from the logged ones.
The networks also predict how wrong they are, state by state: noise of one size everywhere would set a plant in motion that
stands still.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rl_training import rng
from rl_training.ope.episodes import Act, Behaviour, Episodes
from rl_training.ope.horizon import steps_that_count
from rl_training.ope.networks import Networks, batches, episode_weights

_HELD_OUT = 10  # of so many episodes one is never trained on
_MARGIN = 0.2  # of the range in the data, by which a rollout may leave it
_NARROWEST, _WIDEST = math.log(1e-3), math.log(3.0)  # predicted deviations, in units of that of the outcomes
_KEPT = 50  # of so many steps of rollouts one is kept, to ask whether anybody was there
_STILL = 1e-6  # a change of a column, without units, below which it does not change
_PART = 8192


@dataclass(frozen=True)
class DynamicsOptions:
    """The budget of the model and of its rollouts."""

    steps: int = 4000
    ensemble: int = 4
    widths: tuple[int, ...] = (128, 128)
    batch_size: int = 256
    rate: float = 1e-3
    rollouts: int = 100  # of each network, from where episodes begin
    longest: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Discounted returns of a policy in each network of the ensemble."""

    values: NDArray[np.float64]  # (ensemble, rollouts)
    outside: float  # share of the steps that left the range of the data, discounted
    visited: Tensor  # (some steps, observations and actions), without units
    counted: Tensor  # (some steps,): how much each of these counts in the value


@dataclass(frozen=True)
class Followed:
    """How well a model earns what logged episodes earned."""

    more: float  # that it earns, on average, discounted
    std: float  # of that average
    spread: float  # of what logged episodes earned

    @property
    def miss(self) -> float:
        """By how much the model may be wrong."""
        return float(np.hypot(self.more, self.std))


class Dynamics:
    """An ensemble of networks that predict the next observation, the reward and whether the episode ends."""

    def __init__(self, episodes: Episodes, gamma: float, options: DynamicsOptions, device: torch.device) -> None:
        self.episodes, self.gamma, self.options, self.device = episodes, gamma, options, device
        scaled = episodes.of_observations
        here, following = (torch.from_numpy(scaled(rows)) for rows in (episodes.observations, episodes.next_observations))
        margin = _MARGIN * (here.amax(0) - here.amin(0))
        self._low, self._high = here.amin(0) - margin, here.amax(0) + margin
        earned = torch.from_numpy(episodes.rewards).float().unsqueeze(-1)
        outcomes = torch.cat((following - here, earned), dim=-1)
        self._mean, spread = outcomes.mean(0), outcomes.std(0)
        self._std = torch.where(spread < _STILL, 0.0, spread)  # a set-point that no episode changes does not drift
        self._inputs = torch.cat((here, Behaviour.logged(episodes).here), dim=-1).to(device)
        self._outcomes = ((outcomes - self._mean) / self._std.clamp(min=_STILL)).to(device)
        self._ends = torch.from_numpy(episodes.terminals).float().to(device)
        self._ending = bool(episodes.terminals.any())
        shape = (options.ensemble, self._inputs.shape[1], options.widths, 2 * outcomes.shape[1] + 1)
        self._networks = Networks(*shape, rate=options.rate, seed=options.seed, device=device)
        self.explained = np.zeros(outcomes.shape[1])
        self._wider = torch.ones(outcomes.shape[1])

    def fit(self) -> None:
        """Train the networks on all but the held-out episodes, each on its bootstrap sample of them."""
        options, held_out = self.options, self._held_out
        weights = episode_weights(options.seed, "ope/dynamics/bootstrap", options.ensemble, len(self.episodes.lengths))
        weights[:, held_out] = 0.0
        weights, episode = weights.to(self.device), torch.from_numpy(self.episodes.episode).to(self.device)
        drawn = batches(options.seed, "ope/dynamics", options.steps, options.batch_size, len(self.episodes), self.device)
        for step, rows in enumerate(drawn):
            loss = self._loss(rows) * weights[:, episode[rows]]
            self._networks.step(loss.mean(-1).sum(), 1.0 - step / options.steps)
        self._judge(torch.from_numpy(np.flatnonzero(np.isin(self.episodes.episode, held_out))).to(self.device))

    @property
    def _held_out(self) -> NDArray[np.int64]:
        """Every tenth episode; of few, the last."""
        found = np.arange(_HELD_OUT - 1, len(self.episodes.lengths), _HELD_OUT)
        return found if len(found) else np.array([len(self.episodes.lengths) - 1])

    def _predicted(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """What networks expect of each outcome, and the logarithm of how wrong they expect to be."""
        expected, deviations = found[..., :-1].chunk(2, dim=-1)
        return expected, deviations.clamp(_NARROWEST, _WIDEST)

    def _loss(self, rows: Tensor) -> Tensor:
        """The error of each network in each row, (ensemble, rows).

        It is the negative log likelihood, times the predicted deviation: by likelihood alone, what is hard to predict would
        be given up (Seitzer et al., 2022).
        """
        found = self._networks(self._inputs[rows])
        expected, deviations = self._predicted(found)
        apart = (expected - self._outcomes[rows]) / deviations.exp()
        loss = ((0.5 * apart.square() + deviations) * deviations.exp().detach()).mean(-1)
        if not self._ending:
            return loss
        ends = self._ends[rows].expand(len(found), -1)
        return loss + binary_cross_entropy_with_logits(found[..., -1], ends, reduction="none")

    @torch.no_grad()
    def _judge(self, rows: Tensor) -> None:
        """Compare predictions with held-out rows: the share of each variance they explain, and how much wider they err."""
        errors = said = torch.zeros(())
        for part in torch.split(rows, _PART):
            expected, deviations = self._predicted(self._networks(self._inputs[part]))
            errors = errors + (expected - self._outcomes[part]).square().mean(0).sum(0).cpu()
            said = said + (2.0 * deviations).exp().mean(0).sum(0).cpu()
        self._wider = (errors / said).sqrt()
        self.explained = 1.0 - (errors / len(rows)).double().numpy()

    @torch.no_grad()
    def followed(self, usual: Callable[[Tensor], Tensor]) -> Followed:
        """Return by how much held-out episodes earn more in the model than in the log, if the same is done.

        What is done is the usual action of the log where the model is, and what was logged beyond that: a controller that
        reacts to the model as it did to the plant.
        """
        episodes, held_out = self.episodes, self._held_out[: self.options.rollouts]
        lengths, starts = episodes.lengths[held_out], episodes.starts[held_out]
        logged = torch.from_numpy(episodes.of_observations(episodes.observations))
        actions = Behaviour.logged(episodes).here
        seen = logged[starts].expand(self.options.ensemble, -1, -1)
        alive = torch.ones(seen.shape[:2], dtype=torch.float64)
        more = torch.zeros_like(alive)
        for step in range(min(int(lengths.max()), self.options.longest, steps_that_count(self.gamma))):
            rows = starts + np.minimum(step, lengths - 1)
            beyond = actions[rows] - usual(logged[rows])
            found = self._networks.each(torch.cat((seen, self._usual(usual, seen) + beyond), dim=-1).to(self.device)).cpu()
            earned = alive * self._reward(found) - torch.from_numpy(episodes.rewards[rows])
            more += self.gamma**step * torch.from_numpy(lengths > step) * earned
            seen = self._moved(seen, found)[1]
            alive = self._still_alive(alive, found)
        each = more.mean(0).numpy()
        spread = float(episodes.returns(self.gamma).std(ddof=1))
        return Followed(float(each.mean()), float(each.std() / np.sqrt(len(each))), spread)

    @staticmethod
    def _usual(usual: Callable[[Tensor], Tensor], seen: Tensor) -> Tensor:
        return usual(seen.flatten(0, 1)).view(*seen.shape[:2], -1)

    def _reward(self, found: Tensor) -> Tensor:
        return (self._mean[-1] + self._std[-1] * self._predicted(found)[0][..., -1]).double()

    def _moved(self, seen: Tensor, found: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Where observations go, and the same inside the range of the data with a margin."""
        change, deviations = (part[..., :-1] for part in self._predicted(found))
        change = change if noise is None else change + noise * deviations.exp() * self._wider[:-1]
        moved = seen + self._mean[:-1] + self._std[:-1] * change
        return moved, torch.minimum(torch.maximum(moved, self._low), self._high)

    def _still_alive(self, alive: Tensor, found: Tensor) -> Tensor:
        return alive * (1.0 - found[..., -1].sigmoid().double()) if self._ending else alive

    @torch.no_grad()
    def rollouts(self, act: Act) -> Rollouts:
        """Return the discounted returns of a policy from where episodes begin, with noise as large as the errors."""
        options = self.options
        starts = self.episodes.observations[self.episodes.starts]
        chosen = np.linspace(0, len(starts) - 1, options.ensemble * options.rollouts).round().astype(np.int64)
        own = self.episodes.of_observations(starts[chosen]).reshape(options.rollouts, options.ensemble, -1)
        seen = torch.from_numpy(own).transpose(0, 1).contiguous()  # each network has starts of its own
        alive = torch.ones(seen.shape[:2], dtype=torch.float64)
        values, reward = torch.zeros_like(alive), torch.zeros_like(alive)
        outside = total = 0.0
        visited, weights = [], []
        length = min(options.longest, steps_that_count(self.gamma))
        for step in range(length):
            inputs = torch.cat((seen, self._acting(act, seen)), dim=-1)
            found = self._networks.each(inputs.to(self.device)).cpu()
            noise = rng.normals([options.seed], "ope/rollouts", step, tuple(seen.shape), device=torch.device("cpu"))[0]
            counted, reward = self.gamma**step * alive, self._reward(found)
            values += counted * reward
            visited.append(inputs.flatten(0, 1)[step % _KEPT :: _KEPT])
            weights.append(counted.flatten()[step % _KEPT :: _KEPT])
            moved, seen = self._moved(seen, found, noise)
            outside, total = outside + float((counted * (moved != seen).any(-1)).sum()), total + float(counted.sum())
            alive = self._still_alive(alive, found)
        values += alive * self.gamma**length * reward / (1.0 - self.gamma)  # as if the last reward went on
        return Rollouts(values.numpy(), outside / max(total, 1e-12), torch.cat(visited), torch.cat(weights))

    def _acting(self, act: Act, seen: Tensor) -> Tensor:
        """The unitless actions of a policy for unitless observations."""
        actions = act(self.episodes.of_observations.real(seen.flatten(0, 1).numpy()))
        return torch.from_numpy(self.episodes.of_actions(actions)).view(*seen.shape[:2], -1)
