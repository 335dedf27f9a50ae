"""Which of several policies is the best, by estimates from logged data and by a few real episodes of them.

The model is Gaussian, in the unit of an episode's return. The policies' true returns are spread around a common mean, an
estimate is the true return with an error, less a part that no estimate sees, and a result is the true return with the noise
of an episode:

    m_i = u_i + w_i,    u_i ~ N(c, T^2),    w_i ~ N(0, W^2),    v_i ~ N(u_i, (k s_i)^2),    y ~ N(m_i, N^2)

`v_i` and `s_i` are the estimate of policy i and its standard deviation, mapped to returns by the line of `ope.returns`, by
which the log's own value is the mean logged return; the line itself may be wrong, so its level `c` is vague and its slope
known to about a quarter. A policy of which the log cannot tell has no `v_i`: it is merely one of the others. Nobody knows how
far to trust the `s_i` (they leave out what all estimates get wrong), how much policies differ, or how noisy an episode is. So
T, W, k and N are on a grid, each point weighted by how well it explains estimates and results; in a point all is in closed
form. Results that contradict the estimates thereby widen all of them, and repeated results tell the noise. The grids of W and
N and the level `c` reach as far as results do: however far policies turn out to be apart, that is no noise where each repeats
itself. Without W it would be: estimates that are close together say that so are the policies. Logged returns
differ by the noise and by what the controllers of the log differed by, which may be far more: up to their spread every noise
is as likely, and beyond it the less likely the larger its variance.

Which policy to try next is a top-two rule: the one with the highest expected return and the one that is expected to exceed it
by most are compared, by an episode of whichever tells more about their difference. `python -m benchmarks.choosing` measures
all of it beside other rules, and how often a sure choice is right. One looks after every episode, and where several policies
are nearly as good as the best, chance soon favours one of them: there, before W was part of it, 51 of 72 choices with a
chance of 95 % were right (`--cases 120 --first-seed 1000 --shapes cluster,groups --sure 0.95`). So a choice is sure from
99.8 % on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]

SURE: Final = 0.998  # chance to be the best from which a choice is sure; the module docstring says why not 95 %
FEWEST_RESULTS: Final = 2  # real results of the chosen policy without which none is
MOST_EPISODES: Final = 200  # that are simulated to see how many would settle a choice
WIDER: Final = {"trust": 1.0, "doubt": 2.0}  # factors of a standard deviation, by verdict; of others nothing is known

_SPREADS = (0.25, 0.5, 1.0, 2.0)  # T, in units of the spread of the estimates
_ERRORS = (0.5, 1.0, 2.0, 4.0)  # k
_NOISES = (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # N, in units of the spread of the logged returns
_UNSEEN = (0.0, 1.0, 2.0)  # W, in units of the spread of the estimates
_SELDOM = 0.05  # the weight of any other W beside that of none
_LEAST_ERROR = 0.1  # of an estimate, in units of the spread of the estimates
_LEVEL, _SLOPE = 2.0, 0.25  # how vague the line is: its level in units of the spread, its slope as a share
_DRAWS = 8192
_SIMULATIONS = 64
_erfc = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known before any episode: estimates in the unit of returns, and how wide that unit is."""

    values: Numbers  # (policies,); NaN where the log cannot tell
    errors: Numbers  # (policies,), their standard deviations
    spread: float  # standard deviation of the returns of logged episodes
    level: float = 0.0  # their mean

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Which policies have an estimate."""
        return np.isfinite(self.values)

    @cached_property
    def scale(self) -> float:
        """The spread of the estimates, or where they hardly differ a tenth of that of logged returns."""
        found = self.values[self.known]
        return max(float(found.std(ddof=1)) if len(found) > 2 else self.unit, 0.1 * self.unit)

    @cached_property
    def unit(self) -> float:
        """The spread of the logged returns; where the log has none, that of the estimates, or else 1."""
        found = self.values[self.known]
        others = (self.spread, float(found.std()) if len(found) else 0.0, float(self.errors[self.known].max(initial=0.0)))
        return next((value for value in others if np.isfinite(value) and value > 0.0), 1.0)

    @cached_property
    def centre(self) -> float:
        """The mean of the estimates; without any, that of the logged returns."""
        return float(self.values[self.known].mean()) if self.known.any() else self.level


@dataclass(frozen=True, eq=False)
class Belief:
    """The policies' true returns as a mixture of Gaussians, one for each point of the grid."""

    weights: Numbers  # (points,)
    means: Numbers  # (points, policies)
    covariances: Numbers  # (points, policies, policies)
    noises: Numbers  # (points,), variances of one episode

    @cached_property
    def mean(self) -> Numbers:
        """The expected return of each policy."""
        return self.weights @ self.means

    @cached_property
    def covariance(self) -> Numbers:
        """The covariance of the returns over the whole mixture."""
        apart = self.means - self.mean
        within = np.einsum("h,hij->ij", self.weights, self.covariances)
        return np.asarray(within + np.einsum("h,hi,hj->ij", self.weights, apart, apart))

    @cached_property
    def noise(self) -> float:
        """The expected variance of one episode."""
        return float(self.weights @ self.noises)

    def draws(self, count: int = _DRAWS, seed: int = 0) -> Numbers:
        """Return true returns (count, policies) as they may be; equal arguments give equal values."""
        random = np.random.Generator(np.random.Philox(seed))
        points = random.choice(len(self.weights), size=count, p=self.weights)
        found = random.standard_normal((count, self.means.shape[1]))
        for point in np.unique(points):
            own = points == point
            found[own] = self.means[point] + found[own] @ np.linalg.cholesky(self.covariances[point]).T
        return found


@dataclass(frozen=True, eq=False)
class _Told:
    """What results tell: the mean of each policy that has any, and how far those of one policy are apart."""

    counts: NDArray[np.int64]  # (policies,)
    tried: NDArray[np.int64]  # the policies with results
    averages: Numbers  # (tried,)
    inner: float  # sum of squares of results about the mean of their policy

    @classmethod
    def of(cls, results: Sequence[Sequence[float]]) -> "_Told":
        """Return what the results of each policy (none, one or several) tell."""
        counts, each = np.array([len(found) for found in results]), [np.asarray(found) for found in results if found]
        averages = np.array([found.mean() for found in each])
        return cls(counts, np.flatnonzero(counts), averages, sum(float(found.var()) * len(found) for found in each))

    @property
    def repeats(self) -> int:
        """How many results there are beyond the first of each policy."""
        return int(self.counts.sum()) - len(self.tried)

    def grid(self, evidence: Evidence) -> Numbers:
        """Return the points (T, k, N, W), the last two as far as results reach."""
        noise = math.sqrt(self.inner / max(1, self.repeats)) / evidence.unit
        noises, unseen = _up_to(noise, _NOISES), _up_to(self.reach(evidence) / evidence.scale, _UNSEEN)
        return np.array(list(product(_SPREADS, _ERRORS, noises, unseen)))

    def reach(self, evidence: Evidence) -> float:
        """How far the mean of any policy is from its estimate, or without one from what the others' are on average."""
        estimated = np.where(evidence.known, evidence.values, evidence.centre)[self.tried]
        return float(np.abs(self.averages - estimated).max(initial=0.0))


def _up_to(limit: float, grid: tuple[float, ...]) -> tuple[float, ...]:
    """A grid that goes on, each point twice the one before, until it is not below a limit."""
    while grid[-1] < limit:
        grid = (*grid, 2.0 * grid[-1])
    return grid


def believe(evidence: Evidence, results: Sequence[Sequence[float]]) -> Belief:
    """Return what estimates and the results of each policy (none, one or several) tell together."""
    told = _Told.of(results)
    tried, grid = told.tried, told.grid(evidence)
    noises = (grid[:, 2] * evidence.unit) ** 2
    means, covariances, explained = _before(evidence, grid, told.reach(evidence))
    explained = explained - 2.0 * np.log(np.maximum(grid[:, 2], 1.0))
    explained += np.where(grid[:, 3] > 0.0, math.log(_SELDOM), 0.0)
    if len(tried):
        surprise = told.averages - means[:, tried]
        each = (noises[:, None] / told.counts[tried])[:, None, :]
        joint = covariances[:, tried][:, :, tried] + np.eye(len(tried)) * each
        gain = np.linalg.solve(joint, covariances[:, tried]).transpose(0, 2, 1)
        explained = explained + _log_density(surprise, joint)
        explained -= 0.5 * (told.repeats * np.log(noises) + told.inner / noises)
        means = means + np.einsum("hij,hj->hi", gain, surprise)
        covariances = covariances - gain @ covariances[:, tried]
    weights = np.exp(explained - explained.max())
    return Belief(weights / weights.sum(), means, _symmetric(covariances), noises)


def _before(evidence: Evidence, grid: Numbers, reach: float) -> tuple[Numbers, Numbers, Numbers]:
    """Means and covariances of the returns before any result, and how well each point explains the estimates.

    The level is at least as vague as results are far away, so that it costs nothing to move all policies there.
    """
    spreads, factors, unseen = grid[:, 0] * evidence.scale, grid[:, 1], grid[:, 3] * evidence.scale
    known, count = evidence.known, len(evidence.values)
    apart = np.where(known, evidence.values - evidence.centre, 0.0)
    errors = np.maximum(np.where(known, evidence.errors, 0.0), _LEAST_ERROR * evidence.scale)
    own, wrong = (spreads**2)[:, None], (factors[:, None] * errors) ** 2
    trust = np.where(known, own / (own + wrong), 0.0)
    pulled = trust * apart
    covariances = np.eye(count) * ((1.0 - trust) * own + unseen[:, None] ** 2)[:, None, :]
    covariances = covariances + max(_LEVEL * (evidence.unit + evidence.scale), reach) ** 2
    covariances = covariances + _SLOPE**2 * pulled[:, :, None] * pulled[:, None, :]
    total = (own + wrong)[:, known]
    explained = -0.5 * (np.log(total) + apart[known] ** 2 / total).sum(axis=1)
    return evidence.centre + pulled, covariances, explained


def _log_density(apart: Numbers, covariances: Numbers) -> Numbers:
    """The log density of Gaussians at a distance from their means, up to a constant."""
    squares = np.einsum("hi,hi->h", apart, np.linalg.solve(covariances, apart[..., None])[..., 0])
    return np.asarray(-0.5 * (squares + np.linalg.slogdet(covariances)[1]))


def _symmetric(covariances: Numbers) -> Numbers:
    """Covariances without what rounding has added, safe to take the root of."""
    size = np.trace(covariances, axis1=1, axis2=2)[:, None, None] * np.eye(covariances.shape[1])
    return np.asarray(0.5 * (covariances + covariances.transpose(0, 2, 1)) + 1e-10 * size)


@dataclass(frozen=True, eq=False)
class Choice:
    """The policy with the highest expected return, how sure that is, and what to try next."""

    belief: Belief
    chosen: int
    chances: Numbers  # (policies,), to be the best
    loss: float  # expected, by the choice instead of the best
    sure: bool
    plan: list[int]  # the policies of the next episodes, in order
    settles: int | None  # further episodes after which the choice is sure in half of all cases; None: more than MOST_EPISODES


def decide(evidence: Evidence, results: Sequence[Sequence[float]], budget: int, seed: int = 0) -> Choice:
    """Return the choice by estimates and results; equal arguments give equal values, and no results no sure choice."""
    belief = believe(evidence, results)
    draws, chosen = belief.draws(_DRAWS, seed), int(belief.mean.argmax())
    chances = np.bincount(draws.argmax(axis=1), minlength=len(results)) / len(draws)
    loss = float((draws.max(axis=1) - draws[:, chosen]).mean())
    counts = np.array([len(found) for found in results])
    sure = bool(chances[chosen] >= SURE and counts[chosen] >= FEWEST_RESULTS)
    settles = 0 if sure else episodes_to_settle(belief, counts, seed)
    return Choice(belief, chosen, chances, loss, sure, plan(belief, budget), settles)


def plan(belief: Belief, budget: int) -> list[int]:
    """Return the policies of the next episodes in order, each chosen as if those before had given what is expected."""
    mean, covariance, picks = belief.mean, belief.covariance, []
    for _ in range(budget):
        picks.append(int(next_policy(mean, covariance, belief.noise)))
        gain = covariance[:, picks[-1]] / (covariance[picks[-1], picks[-1]] + belief.noise)
        covariance = covariance - np.outer(gain, covariance[picks[-1]])
    return picks


def next_policy(mean: Numbers, covariance: Numbers, noise: float) -> NDArray[np.int64]:
    """Return the policy (...) to try next, for means (..., policies) and covariances (..., policies, policies)."""
    leader = mean.argmax(-1)
    gap, width = _behind(mean, covariance, leader)
    ahead = width * np.exp(-0.5 * (gap / width) ** 2) / math.sqrt(2.0 * math.pi) - gap * _above(gap / width)
    np.put_along_axis(ahead, leader[..., None], -np.inf, -1)
    rival = ahead.argmax(-1) if mean.shape[-1] > 1 else leader
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    told = (_row(covariance, leader) - _row(covariance, rival)) ** 2 / (variance + noise)
    better = np.take_along_axis(told, rival[..., None], -1) > np.take_along_axis(told, leader[..., None], -1)
    return np.asarray(np.where(better[..., 0], rival, leader))


def episodes_to_settle(belief: Belief, counts: NDArray[np.int64], seed: int = 0) -> int | None:
    """Return after how many further episodes the choice is sure in half of all cases; None for more than MOST_EPISODES.

    True returns are drawn from the belief and tried by the rule; the chance to be the best is bounded by rivals one by one.
    """
    truth, cases = belief.draws(_SIMULATIONS, seed), np.arange(_SIMULATIONS)
    random = np.random.Generator(np.random.Philox(seed + 1))
    mean, covariance = np.tile(belief.mean, (_SIMULATIONS, 1)), np.tile(belief.covariance, (_SIMULATIONS, 1, 1))
    taken = np.tile(counts, (_SIMULATIONS, 1))
    settled = np.zeros(_SIMULATIONS, dtype=bool)
    for episode in range(1, MOST_EPISODES + 1):
        pick = next_policy(mean, covariance, belief.noise)
        result = truth[cases, pick] + math.sqrt(belief.noise) * random.standard_normal(_SIMULATIONS)
        told = _row(covariance, pick)
        gain = told / (told[cases, pick] + belief.noise)[:, None]
        mean = mean + gain * (result - mean[cases, pick])[:, None]
        covariance = covariance - gain[:, :, None] * told[:, None, :]
        taken[cases, pick] += 1
        leader = mean.argmax(-1)
        gap, width = _behind(mean, covariance, leader)
        others = _above(gap / width).sum(-1) - 0.5  # the leader itself is half above itself
        settled |= (others <= 1.0 - SURE) & (taken[cases, leader] >= FEWEST_RESULTS)
        if 2 * settled.sum() >= _SIMULATIONS:
            return episode
    return None


def _behind(mean: Numbers, covariance: Numbers, leader: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """How far each policy is behind the leader, and the standard deviation of that."""
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    of_leader = np.take_along_axis(variance, leader[..., None], -1)
    width = np.sqrt(np.maximum(variance + of_leader - 2.0 * _row(covariance, leader), 1e-12 * of_leader))
    return np.take_along_axis(mean, leader[..., None], -1) - mean, width


def _row(matrices: Numbers, index: NDArray[np.int64]) -> Numbers:
    """One row of each matrix (..., rows, columns)."""
    return np.take_along_axis(matrices, index[..., None, None], -2)[..., 0, :]


def _above(deviations: Numbers) -> Numbers:
    """The probability that a standard normal number is above each of these."""
    return 0.5 * np.asarray(_erfc(deviations / math.sqrt(2.0)), dtype=np.float64)
