"""A second opinion: a model of the plant, fitted on the same rows, in which every policy is run from where episodes begin.

It errs elsewhere than fitted Q evaluation: by what accumulates in a rollout, not by actions that differ from the logged ones.
What a network cannot predict is drawn from how it erred nearby, at rows that it was not trained on: noise of one size
everywhere would set a plant in motion that stands still, and Gaussian noise would open a tap a little that is open or shut.
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
from rl_training.data.row_blocks import spread_evenly
from rl_training.ope.episodes import Act, Behaviour, Episodes
from rl_training.ope.horizon import steps_that_count
from rl_training.ope.networks import Networks, batches, episode_weights

_HELD_OUT = 10  # of so many episodes one is never trained on
_MARGIN = 0.2  # of the range in the data, by which a rollout may leave it
_NARROWEST, _WIDEST = math.log(1e-3), math.log(3.0)  # predicted deviations, in units of that of the outcomes
_JUDGED = 2000  # rows whose errors are kept, of each network
_NEAR = 20  # of so many of these one is drawn, and of those the nearest taken
_KEPT = 50  # of so many steps of rollouts one is kept, to ask whether anybody was there
_STILL = 1e-6  # a change of a column, without units, below which it does not change
_LEAST = float(np.finfo(np.float64).tiny)  # instead of 0, in any unit
_CHANCE = 1.645  # standard deviations of an average that chance explains
_CPU = torch.device("cpu")


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
    visited: Tensor  # (some steps, observations and actions), without units
    counted: Tensor  # (some steps,): how much each of these counts

    @property
    def miss(self) -> float:
        """By how much the model may be wrong."""
        return float(np.hypot(self.more, self.std))

    @property
    def surely(self) -> float:
        """By how much it is wrong beyond chance, as a share of the spread of the episodes."""
        return max(0.0, abs(self.more) - _CHANCE * self.std) / max(self.spread, _LEAST)


class Dynamics:
    """An ensemble of networks that predict the next observation, the reward and whether the episode ends."""

    def __init__(self, episodes: Episodes, gamma: float, options: DynamicsOptions, device: torch.device) -> None:
        self.episodes, self.gamma, self.options, self.device = episodes, gamma, options, device
        scaled = episodes.of_observations
        here, following = (torch.from_numpy(scaled(rows)) for rows in (episodes.observations, episodes.next_observations))
        margin = _MARGIN * (here.amax(0) - here.amin(0))
        self._low, self._high = here.amin(0) - margin, here.amax(0) + margin
        self._unit = float(np.abs(episodes.rewards).max()) or 1.0  # rewards lose theirs, as observations have
        earned = torch.from_numpy(episodes.rewards / self._unit).float().unsqueeze(-1)
        outcomes = torch.cat((following - here, earned), dim=-1)
        self._mean, spread = outcomes.mean(0), outcomes.std(0)
        self._std = torch.where(spread < _STILL, 0.0, spread)  # a set-point that no episode changes does not drift
        self._inputs = torch.cat((here, Behaviour.logged(episodes).here), dim=-1).to(device)
        self._outcomes = ((outcomes - self._mean) / self._std.clamp(min=_STILL)).to(device)
        self._ends = torch.from_numpy(episodes.terminals).float().to(device)
        self._ending = bool(episodes.terminals.any())
        shape = (options.ensemble, self._inputs.shape[1], options.widths, 2 * outcomes.shape[1] + 1)
        self._networks = Networks(*shape, rate=options.rate, seed=options.seed, device=device)
        self._weights = self._sampled()
        self.explained = np.zeros(outcomes.shape[1])

    def fit(self) -> None:
        """Train the networks, each on its bootstrap sample of all but some held-out episodes; then see how they err."""
        options = self.options
        weights, episode = self._weights.to(self.device), torch.from_numpy(self.episodes.episode).to(self.device)
        drawn = batches(options.seed, "ope/dynamics", options.steps, options.batch_size, len(self.episodes), self.device)
        for step, rows in enumerate(drawn):
            loss = self._loss(rows) * weights[:, episode[rows]]
            self._networks.step(loss.mean(-1).sum(), 1.0 - step / options.steps)
        self._judge()

    def _sampled(self) -> Tensor:
        """How often each network has each episode, (ensemble, episodes); every tenth, or of few the last, it never has."""
        options, count = self.options, len(self.episodes.lengths)
        found = episode_weights(options.seed, "ope/dynamics/bootstrap", options.ensemble, count)
        found[:, _HELD_OUT - 1 :: _HELD_OUT] = 0.0
        found[:, -1] = 0.0 if count < _HELD_OUT else found[:, -1]
        return found

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
    def _judge(self) -> None:
        """See how each network errs at rows that it was not trained on, and what of each variance is explained."""
        unseen = [np.flatnonzero(own) for own in (self._weights == 0.0).numpy()[:, self.episodes.episode]]
        count = min(_JUDGED, *(len(own) for own in unseen))
        rows = torch.from_numpy(np.stack([own[spread_evenly(len(own), count)] for own in unseen]))
        self._judged, self._of = self._inputs[rows.to(self.device)], torch.from_numpy(self.episodes.episode)[rows]
        happened = torch.cat((self._outcomes, self._ends.unsqueeze(-1)), dim=-1)[rows.to(self.device)]
        self._erred = (happened - self._expected(self._networks.each(self._judged))).cpu()
        self._judged = self._judged.cpu()
        self.explained = 1.0 - self._erred[..., :-1].square().mean((0, 1)).double().numpy()

    @torch.no_grad()
    def followed(self, usual: Callable[[Tensor], Tensor]) -> Followed:
        """Return by how much more episodes earn in the model, by networks that do not know them, if the same is done.

        What is done is the usual action of the log where the model is, and what was logged beyond that: a controller that
        reacts to the model as it did to the plant.
        """
        episodes, unseen = self.episodes, [np.flatnonzero(own) for own in (self._weights == 0.0).numpy()]
        count = min(self.options.rollouts, *(len(own) for own in unseen))
        chosen = np.stack([own[spread_evenly(len(own), count)] for own in unseen])  # (ensemble, episodes)
        lengths, starts = episodes.lengths[chosen], episodes.starts[chosen]
        logged = torch.from_numpy(episodes.of_observations(episodes.observations))
        actions, seen = Behaviour.logged(episodes).here, logged[starts]
        alive = torch.ones(seen.shape[:2], dtype=torch.float64)
        more = torch.zeros_like(alive)
        visited, weights = [], []
        for step in range(min(int(lengths.max()), self.options.longest, steps_that_count(self.gamma))):
            rows = starts + np.minimum(step, lengths - 1)
            beyond = actions[rows] - self._usual(usual, logged[rows])
            inputs = torch.cat((seen, self._usual(usual, seen) + beyond), dim=-1)
            found = self._networks.each(inputs.to(self.device)).cpu()
            happened = self._expected(found) + self._noise(step, inputs, torch.from_numpy(chosen))
            counted = self.gamma**step * torch.from_numpy(lengths > step)
            more += counted * (alive * self._reward(happened) - torch.from_numpy(episodes.rewards[rows]))
            visited.append(_some(step, inputs))
            weights.append(_some(step, counted * alive))
            seen = self._moved(seen, happened)[1]
            alive = self._still_alive(alive, happened)
        spread = float(episodes.returns(self.gamma).std(ddof=1))
        error = float(more.std(correction=0)) / np.sqrt(len(np.unique(chosen)))
        return Followed(float(more.mean()), error, spread, torch.cat(visited), torch.cat(weights))

    @staticmethod
    def _usual(usual: Callable[[Tensor], Tensor], seen: Tensor) -> Tensor:
        return usual(seen.flatten(0, 1)).view(*seen.shape[:2], -1)

    def _expected(self, found: Tensor) -> Tensor:
        """What networks expect of each outcome and of an end, (ensemble, rows, outcomes + 1)."""
        return torch.cat((self._predicted(found)[0], found[..., -1:].sigmoid()), dim=-1)

    def _reward(self, happened: Tensor) -> Tensor:
        return self._unit * (self._mean[-1] + self._std[-1] * happened[..., -2]).double()

    def _moved(self, seen: Tensor, happened: Tensor) -> tuple[Tensor, Tensor]:
        """Where observations go, and the same inside the range of the data with a margin."""
        moved = seen + self._mean[:-1] + self._std[:-1] * happened[..., :-2]
        return moved, torch.minimum(torch.maximum(moved, self._low), self._high)

    def _still_alive(self, alive: Tensor, happened: Tensor) -> Tensor:
        return alive * (1.0 - happened[..., -1].clamp(0.0, 1.0).double()) if self._ending else alive

    @torch.no_grad()
    def rollouts(self, act: Act) -> Rollouts:
        """Return the discounted returns of a policy from where episodes begin, with the errors that rows nearby have."""
        options = self.options
        starts = self.episodes.observations[self.episodes.starts]
        chosen = np.linspace(0, len(starts) - 1, options.ensemble * options.rollouts).round().astype(np.int64)
        own = self.episodes.of_observations(starts[chosen]).reshape(options.rollouts, options.ensemble, -1)
        seen = torch.from_numpy(own).transpose(0, 1).contiguous()  # each network has starts of its own
        alive = torch.ones(seen.shape[:2], dtype=torch.float64)
        values = torch.zeros_like(alive)
        outside = total = 0.0
        visited, weights = [], []
        length = min(options.longest, steps_that_count(self.gamma))
        for step in range(length):
            inputs = torch.cat((seen, self._acting(act, seen)), dim=-1)
            found = self._networks.each(inputs.to(self.device)).cpu()
            expected, counted = self._expected(found), self.gamma**step * alive
            happened = expected + self._noise(step, inputs)
            values += counted * self._reward(happened)
            visited.append(_some(step, inputs))
            weights.append(_some(step, counted))
            moved, seen = self._moved(seen, happened)
            outside, total = outside + float((counted * (moved != seen).any(-1)).sum()), total + float(counted.sum())
            alive = self._still_alive(alive, happened)
        # as if the last reward, as it was expected, went on
        values += alive * self.gamma**length * self._reward(expected) / (1.0 - self.gamma)
        return Rollouts(values.numpy(), outside / max(total, 1e-12), torch.cat(visited), torch.cat(weights))

    def _noise(self, step: int, inputs: Tensor, of: Tensor | None = None) -> Tensor:
        """Errors at rows near each place, (ensemble, rollouts, outcomes + 1), none of them of the episode `of` it.

        Of a random twentieth of the rows that are kept each rollout has the error of the nearest, so it meets what happened
        there as often as it did: a tap is open or shut, never a little open.
        """
        count, few = self._judged.shape[1], -(-self._judged.shape[1] // _NEAR)
        drawn = rng.integers([self.options.seed], "ope/rollouts", step, (inputs.shape[1], few), high=count, device=_CPU)[0]
        apart = torch.cdist(inputs.unsqueeze(2), self._judged[:, drawn]).squeeze(2)  # (ensemble, rollouts, few)
        if of is not None:
            apart[self._of[:, drawn] == of.unsqueeze(-1)] = torch.inf
        nearest = drawn.expand(len(apart), -1, -1).gather(2, apart.argmin(-1, keepdim=True)).squeeze(-1)
        return self._erred[torch.arange(len(nearest))[:, None], nearest]

    def _acting(self, act: Act, seen: Tensor) -> Tensor:
        """The unitless actions of a policy for unitless observations."""
        actions = act(self.episodes.of_observations.real(seen.flatten(0, 1).numpy()))
        return torch.from_numpy(self.episodes.of_actions(actions)).view(*seen.shape[:2], -1)


def _some(step: int, values: Tensor) -> Tensor:
    """What is kept of a step of all rollouts, others in every step."""
    return values.flatten(0, 1)[step % _KEPT :: _KEPT]
