"""Importance sampling: logged episodes weighted by how much more likely they are under a policy, step by step.

A deterministic policy has no density, so it is given a narrow one around its actions. The weights of long episodes are
dominated by a few; the effective number of episodes says so. It says nothing where a policy does what nobody did: then all
ratios are the smallest there is, the weights depend on the lengths of episodes alone, and many of them are equal. So the
share of such actions in the weighted episodes is counted too. The doubly robust estimate uses fitted values, and weights only
for what these do not explain.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.horizon import steps_that_count

_BANDWIDTH = 0.5  # of the usual deviation of a logged action from its centre
_NARROWEST = 0.05  # in units of the deviation of the logged actions
_LEAST, _MOST = -20.0, 5.0  # logarithms of the ratio of a single action
_RESAMPLES = 200

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weighted:
    """An estimate from weighted episodes."""

    value: float
    resampled: Numbers  # the same from resampled episodes
    effective: float  # number of episodes that it rests on, averaged over discounted time
    foreign: float  # share of the actions in the weighted episodes that the policy would never take, averaged alike


@dataclass(frozen=True, eq=False)
class RowValues:
    """Fitted values of a policy in every row."""

    logged: Numbers  # of the logged action
    own: Numbers  # of the policy's action
    following: Numbers  # of the policy's action in the row after


def log_ratios(episodes: Episodes, behaviour: Behaviour, likely: Tensor, deviations: Tensor) -> Numbers:
    """Return for each row by how much more likely, as a logarithm, its action is under a policy than in the log."""
    width = (_BANDWIDTH * deviations).clamp(min=_NARROWEST)
    apart = (Behaviour.logged(episodes).here.double() - behaviour.here.double()) / width
    density = (-0.5 * apart.square() - width.log() - 0.5 * np.log(2.0 * np.pi)).sum(-1)
    return np.asarray((density - likely).clamp(_LEAST, _MOST).numpy())


def counts_of(episodes: int, seed: int) -> Numbers:
    """Return how often each episode is in the data and in each resample of it, (1 + resamples, episodes)."""
    generator = np.random.Generator(np.random.Philox(seed))
    drawn = generator.multinomial(episodes, np.full(episodes, 1.0 / episodes), size=_RESAMPLES).astype(np.float64)
    return np.concatenate((np.ones((1, episodes)), drawn))


def weighted_estimates(
    episodes: Episodes, ratios: Numbers, gamma: float, counts: Numbers, values: RowValues
) -> tuple[Weighted, Weighted]:
    """Return weighted per-decision importance sampling, and the doubly robust estimate (Thomas and Brunskill, 2016).

    An episode that truly ended earns nothing more; one that was cut is left out from there on. After the last step the first
    estimate goes on with its last average reward, the second has the value of what followed each cut.
    """
    lengths, starts = episodes.lengths, episodes.starts
    ended = ~episodes.cut
    logs = np.zeros(len(lengths))  # of the weight of each episode so far
    never = np.zeros(len(lengths))  # actions of each so far that the policy would not take
    plain, robust, reward = np.zeros(len(counts)), np.zeros(len(counts)), np.zeros(len(counts))
    effective = foreign = total = 0.0
    last = min(int(lengths.max()), steps_that_count(gamma))
    for step in range(last):
        running = lengths > step
        known, rows, discount = running | ended, starts + np.minimum(step, lengths - 1), gamma**step
        robust += discount * _shares(logs, known, counts) @ np.where(running, values.own[rows], 0.0)
        logs = np.where(running, logs + ratios[rows], logs)
        shares = _shares(logs, known, counts)
        reward = shares @ np.where(running, episodes.rewards[rows], 0.0)
        plain += discount * reward
        cut = running & ~ended & (lengths == step + 1)
        rest = episodes.rewards[rows] + gamma * np.where(cut, values.following[rows], 0.0) - values.logged[rows]
        robust += discount * shares @ np.where(running, rest, 0.0)
        own = np.exp(logs[known] - logs[known].max())
        effective, total = effective + discount * own.sum() ** 2 / np.square(own).sum(), total + discount
        never = never + (running & (ratios[rows] <= _LEAST))
        foreign += discount * float(shares[0] @ (never / np.minimum(step + 1, lengths)))
    plain += gamma**last / (1.0 - gamma) * reward
    rests = (effective / total, foreign / total)
    return Weighted(float(plain[0]), plain[1:], *rests), Weighted(float(robust[0]), robust[1:], *rests)


def _shares(logs: Numbers, known: NDArray[np.bool_], counts: Numbers) -> Numbers:
    """The weight of each episode in the data and in each resample, adding up to 1; 0 for those of which nothing is known."""
    below = np.where(known, logs - logs[known].max(), -np.inf)  # one that was cut may have been above all known
    own = np.exp(below) * counts
    return np.asarray(own / np.maximum(own.sum(axis=1, keepdims=True), 1e-300))
