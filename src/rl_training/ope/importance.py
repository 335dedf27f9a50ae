"""Importance sampling: logged episodes weighted by how much more likely they are under a policy, step by step.

A deterministic policy has no density, so it is given a narrow one around its actions. The weights of long episodes are
dominated by a few; the effective number of episodes says so. The doubly robust estimate uses fitted values, and weights only
for what these do not explain.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.ope.episodes import Behaviour, Episodes

_BANDWIDTH = 0.5  # of the usual deviation of a logged action from its centre
_NARROWEST = 0.05  # in units of the deviation of the logged actions
_RESAMPLES = 200
_FORGOTTEN = 0.01  # rewards that count less than this share are left out

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Weighted:
    """An estimate from weighted episodes."""

    value: float
    resampled: Numbers  # the same from resampled episodes
    effective: float  # number of episodes that it rests on, averaged over discounted time


def log_ratios(episodes: Episodes, behaviour: Behaviour, logged: Tensor, deviations: Tensor) -> Numbers:
    """Return for each row by how much more likely, as a logarithm, its action is under a policy than in the log."""
    width = (_BANDWIDTH * deviations).clamp(min=_NARROWEST)
    apart = (Behaviour.logged(episodes).here.double() - behaviour.here.double()) / width
    density = (-0.5 * apart.square() - width.log() - 0.5 * np.log(2.0 * np.pi)).sum(-1)
    return np.asarray((density - logged).clamp(-20.0, 5.0).numpy())


def counts_of(episodes: int, seed: int) -> Numbers:
    """Return how often each episode is in the data and in each resample of it, (1 + resamples, episodes)."""
    generator = np.random.Generator(np.random.Philox(seed))
    drawn = generator.multinomial(episodes, np.full(episodes, 1.0 / episodes), size=_RESAMPLES).astype(np.float64)
    return np.concatenate((np.ones((1, episodes)), drawn))


def weighted_estimates(
    episodes: Episodes, ratios: Numbers, gamma: float, counts: Numbers, q: Numbers, v: Numbers, v_next: Numbers
) -> tuple[Weighted, Weighted]:
    """Return weighted per-decision importance sampling, and the doubly robust estimate with the values of each row.

    `q`, `v` are the policy's values of the logged action and of its own in each row, `v_next` of its own in the row after.
    What comes after the logged steps is for the first as if the last average reward went on, for the second valued by `v_next`.
    """
    lengths, starts = episodes.lengths, episodes.starts
    horizon = int(lengths.max())
    if gamma < 1.0:
        horizon = min(horizon, int(np.ceil(np.log(_FORGOTTEN) / np.log(gamma))) if gamma > 0.0 else 1)
    ended = episodes.terminals[starts + lengths - 1]
    logs = np.zeros(len(lengths))  # log weight of each episode so far
    here = np.ones(len(lengths), dtype=bool)  # still known: running, or truly ended
    plain, robust = np.zeros(len(counts)), np.zeros(len(counts))
    effective = total = 0.0
    reward = np.zeros(len(counts))
    for step in range(horizon):
        running = lengths > step
        known = running | ended
        if not running.any():
            break
        rows = starts + np.minimum(step, lengths - 1)
        before = _shares(logs, known, counts)
        robust += gamma**step * before @ np.where(running, v[rows], 0.0)
        logs = np.where(running, logs + ratios[rows], logs)
        shares = _shares(logs, known, counts)
        reward = shares @ np.where(running, episodes.rewards[rows], 0.0)
        plain += gamma**step * reward
        robust += gamma**step * (shares @ np.where(running, episodes.rewards[rows] - q[rows], 0.0))
        cut = running & (lengths == step + 1) & ~ended
        robust += gamma ** (step + 1) * (shares @ np.where(cut, v_next[rows], 0.0))
        own = np.exp(logs[known] - logs[known].max())
        effective += gamma**step * own.sum() ** 2 / np.square(own).sum()
        total += gamma**step
        here = known
    del here
    plain += gamma ** (step + 1) / (1.0 - gamma) * reward
    effective /= total
    return Weighted(float(plain[0]), plain[1:], effective), Weighted(float(robust[0]), robust[1:], effective)


def _shares(logs: Numbers, known: NDArray[np.bool_], counts: Numbers) -> Numbers:
    """The weight of each episode in the data and in each resample, adding up to 1; 0 for those of which nothing is known."""
    own = np.where(known, np.exp(logs - logs[known].max()), 0.0) * counts
    return np.asarray(own / np.maximum(own.sum(axis=1, keepdims=True), 1e-300))
