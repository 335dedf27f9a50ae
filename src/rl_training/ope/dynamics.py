"""A second opinion: a model of the plant, fitted on the same rows, in which every policy is run from where episodes begin.

It errs elsewhere than fitted Q evaluation: its errors grow with the length of a rollout, not with the distance of actions
from those of the data at every row. How well it follows logged episodes under their own actions says how far it is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.ope.episodes import Act, Behaviour, Episodes
from rl_training.ope.networks import Networks, Progress, batches, episode_weights

_HELD_OUT = 10  # of so many episodes one is never trained on
_MARGIN = 0.2  # of the range in the data, by which a rollout may leave it
_FORGOTTEN = 0.01  # rewards that count less than this share are not rolled out
_PART = 8192


@dataclass(frozen=True)
class DynamicsOptions:
    """The budget of the model and of its rollouts."""

    steps: int = 4000
    ensemble: int = 4
    widths: tuple[int, ...] = (128, 128)
    batch_size: int = 256
    rate: float = 1e-3
    rollouts: int = 100
    longest: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Discounted returns of a policy in each model of the ensemble."""

    values: NDArray[np.float64]  # (ensemble, rollouts)
    outside: float  # share of the steps that left the range of the data


class Dynamics:
    """An ensemble of networks that predict the next observation, the reward and whether the episode ends."""

    def __init__(self, episodes: Episodes, gamma: float, options: DynamicsOptions, device: torch.device) -> None:
        self.episodes, self.gamma, self.options, self.device = episodes, gamma, options, device
        scaled = episodes.of_observations
        here, following = (torch.from_numpy(scaled(rows)) for rows in (episodes.observations, episodes.next_observations))
        self._low, self._high = _range(here)
        logged = Behaviour.logged(episodes).here
        change = following - here
        self._change_mean, self._change_std = change.mean(0), change.std(0).clamp(min=1e-6)
        rewards = torch.from_numpy(episodes.rewards)
        self._reward_mean, self._reward_std = float(rewards.mean()), float(rewards.std()) or 1.0
        earned = ((rewards - self._reward_mean) / self._reward_std).float()
        self._inputs = torch.cat((here, logged), dim=-1).to(device)
        outcome = ((change - self._change_mean) / self._change_std, earned[:, None])
        self._outcomes = torch.cat(outcome, dim=-1).to(device)
        self._ends = torch.from_numpy(episodes.terminals).float().to(device)
        self.ending = bool(episodes.terminals.any())
        shape = (options.ensemble, self._inputs.shape[1], options.widths, self._outcomes.shape[1] + 1)
        self._networks = Networks(*shape, rate=options.rate, seed=options.seed, device=device)
        self._noise = torch.zeros(self._outcomes.shape[1])

    def fit(self, progress: Progress = lambda done, of: None) -> None:
        """Train the networks on all but the held-out episodes, each on its bootstrap sample of them."""
        options, count = self.options, len(self.episodes.lengths)
        weights = episode_weights(options.seed, "ope/dynamics/bootstrap", options.ensemble, count)
        weights[:, _held_out(count)] = 0.0
        weights, episode = weights.to(self.device), torch.from_numpy(self.episodes.episode).to(self.device)
        drawn = batches(options.seed, "ope/dynamics", options.steps, options.batch_size, len(self.episodes), self.device)
        for step, rows in enumerate(drawn):
            found = self._networks(self._inputs[rows])
            loss = (found[..., :-1] - self._outcomes[rows]).square().mean(-1)
            if self.ending:
                ends = self._ends[rows].expand(len(found), -1)
                loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(found[..., -1], ends, reduction="none")
            self._networks.step((loss * weights[:, episode[rows]]).mean(-1).sum(), 1.0 - step / options.steps)
            progress(step + 1, options.steps)
        self._noise = self._errors().sqrt()

    @torch.no_grad()
    def _errors(self) -> Tensor:
        """The mean square error of each predicted column on held-out episodes, as a share of its variance."""
        episode = torch.from_numpy(self.episodes.episode)
        rows = torch.isin(episode, torch.from_numpy(_held_out(len(self.episodes.lengths)))).nonzero()[:, 0].to(self.device)
        parts = [
            (self._networks(self._inputs[part])[..., :-1] - self._outcomes[part]).square().sum(1)
            for part in rows.split(_PART)
        ]
        return (torch.stack(parts).sum(0).mean(0) / len(rows)).cpu()

    @property
    def explained(self) -> NDArray[np.float64]:
        """The share of the variance of each column's change, and of the reward, that is predicted in held-out episodes."""
        return 1.0 - np.asarray(self._noise.square().double().numpy())

    @torch.no_grad()
    def rollouts(self, act: Act, seed: int) -> Rollouts:
        """Return the discounted returns of a policy from where episodes begin."""
        starts = self.episodes.observations[self.episodes.starts]
        chosen = np.unique(np.linspace(0, len(starts) - 1, self.options.rollouts).round().astype(np.int64))
        length = min(self.options.longest, int(np.ceil(np.log(_FORGOTTEN) / np.log(self.gamma))) if self.gamma > 0.0 else 1)
        ensemble = self.options.ensemble
        seen = torch.from_numpy(self.episodes.of_observations(starts[chosen])).expand(ensemble, -1, -1)
        return self._rolled(seen, length, seed, lambda step, rows: self._acting(act, rows))

    def _acting(self, act: Act, seen: Tensor) -> Tensor:
        flat = seen.flatten(0, 1).numpy()
        actions = act(self.episodes.of_observations.real(flat))
        return torch.from_numpy(self.episodes.of_actions(actions)).view(*seen.shape[:2], -1)

    def _rolled(self, seen: Tensor, length: int, seed: int, choose) -> Rollouts:
        """Discounted returns from some observations (ensemble, rollouts, dims)."""
        alive = torch.ones(seen.shape[:2], dtype=torch.float64)
        values, outside, reward = torch.zeros_like(alive), 0.0, torch.zeros_like(alive)
        for step in range(length):
            inputs = torch.cat((seen, choose(step, seen)), dim=-1).to(self.device)
            found = torch.stack([net for net in self._predict(inputs)]).cpu()
            noise = rng.normals([seed], "ope/rollouts", step, tuple(seen.shape), device=torch.device("cpu"))[0]
            change = found[..., : seen.shape[-1]] + noise * self._noise[: seen.shape[-1]]
            reward = self._reward_mean + self._reward_std * found[..., seen.shape[-1]].double()
            values += alive * self.gamma**step * reward
            moved = seen + self._change_mean + change * self._change_std
            inside = torch.minimum(torch.maximum(moved, self._low), self._high)
            outside += float(((moved != inside).any(-1) * alive).sum() / alive.sum().clamp(min=1e-9))
            seen = inside
            if self.ending:
                alive = alive * (1.0 - found[..., -1].sigmoid().double())
        values += alive * self.gamma**length * reward / (1.0 - self.gamma)  # as if the last reward repeated
        return Rollouts(values.numpy(), outside / length)

    def _predict(self, inputs: Tensor) -> Tensor:
        """Outputs (ensemble, rollouts, columns), each network for its own rollouts."""
        layout = self._networks.mlp.layout
        from rl_training.models.mlp import eager

        return eager.forward(layout, layout.stacks(self._networks.bank.flat), inputs)


def _held_out(episodes: int) -> NDArray[np.int64]:
    """Every tenth episode; of few the last."""
    found = np.arange(_HELD_OUT - 1, episodes, _HELD_OUT)
    return found if len(found) else np.array([episodes - 1])


def _range(values: Tensor) -> tuple[Tensor, Tensor]:
    low, high = values.amin(0), values.amax(0)
    return low - _MARGIN * (high - low), high + _MARGIN * (high - low)
