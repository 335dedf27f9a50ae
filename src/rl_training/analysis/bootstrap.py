"""Intervals of aggregated scores by the stratified bootstrap, made wide enough for few runs.

Runs are drawn with replacement within each task (Agarwal et al., 2021). Percentiles of the resampled statistic are too
narrow when runs are few: with three runs of a task, 95 % intervals cover the truth in about 75 % of experiments. Two
reasons are known: resampling n runs loses a factor (n - 1) / n of the variance, and the spread itself is estimated
(Hesterberg, 2015, "What teachers should know about the bootstrap"). His expanded percentiles correct the *levels*, which
cannot lead beyond the lowest and highest run and so does not help with three. Here the *distances* of the percentiles from
the estimate are widened instead, by the root of n / (n - 1) and by the quotient of Student's and the normal quantile, with
Satterthwaite's degrees of freedom over the tasks. The interval keeps the skewness that the bootstrap found, is nearly
Student's for the mean of normal scores, and turns into the plain percentile interval as runs become many. BCa and expanded
percentiles covered less with 3 and 5 runs, the studentised bootstrap less where some runs fail, and its intervals were up
to 50 times as wide. `python -m benchmarks.coverage` measures ours and the plain percentiles; `docs/guide.md` has the table.

A probability of improvement is not resampled: where all runs of one side are better, every resample says 1, and the
interval would be [1, 1] with three runs too. It has a score interval instead: the probabilities from which the measured one
is not further away than chance explains, with the variance of Hanley and McNeil (1982), as in Newcombe (2006), "Confidence
intervals for an effect size measure based on the Mann-Whitney statistic", part 2, method 5. Where the two sides differ in
spread that variance is too small; it is then raised to the observed one. Whether such an interval contains 0.5 is the rank
test with a normal distribution, which is too bold with few runs: of three against three all on one side, which chance does
in one of ten experiments, it would be sure. So the interval reaches to 0.5 unless the exact test excludes that too.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from rl_training.analysis.aggregates import (
    Scores,
    Statistic,
    Values,
    cut,
    probability_of_improvement,
    strata,
    trimmed_mean,
    wins,
)
from rl_training.analysis.aggregates import weights as weights_of
from rl_training.analysis.ranks import chance_of_ranking_apart
from rl_training.errors import ConfigError

RESAMPLES: Final = 10_000
Method: TypeAlias = Literal["widened", "percentile"]


class Interval(NamedTuple):
    """An estimate and its interval; the bounds are NaN where a task has a single run, of which no spread is known."""

    estimate: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return self.low == self.low

    def excludes(self, value: float) -> bool:
        """Whether a value lies outside of the interval; never if there is none."""
        return self.known and not self.low <= value <= self.high


def interval(
    scores: Scores,
    statistic: Statistic = "iqm",
    *,
    confidence: float = 0.95,
    method: Method = "widened",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return a statistic of scores (tasks, runs) with its interval; equal arguments give equal values.

    `method="percentile"` gives the plain percentiles that other libraries print, which are too narrow for few runs.
    """
    sample = _Sample(strata(scores), statistic)
    if not sample.spread_known:
        return Interval(sample.estimate, np.nan, np.nan)
    return _widened([sample], [1.0], confidence, method, resamples, seed)


def difference_interval(
    scores: Scores,
    others: Scores,
    statistic: Statistic = "iqm",
    *,
    confidence: float = 0.95,
    method: Method = "widened",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return how much higher a statistic of scores is than that of other, independent runs, with its interval."""
    samples = [_Sample(strata(scores), statistic), _Sample(strata(others), statistic)]
    if not all(sample.spread_known for sample in samples):
        return Interval(samples[0].estimate - samples[1].estimate, np.nan, np.nan)
    return _widened(samples, [1.0, -1.0], confidence, method, resamples, seed)


def improvement_interval(scores: Scores, others: Scores, *, confidence: float = 0.95) -> Interval:
    """Return the probability that a run scores higher than one of the others, with its score interval."""
    first, second = strata(scores), strata(others)
    estimate = probability_of_improvement(first, second)
    if min(map(len, (*first, *second))) < 2:
        return Interval(estimate, np.nan, np.nan)
    pairs = list(zip(first, second, strict=True))
    levels = np.linspace(0.0, 1.0, 10_001)
    expected = np.sum([probability_variance(levels, len(task), len(other)) for task, other in pairs], axis=0)
    observed = sum(_observed_variance(task, other) for task, other in pairs)
    excess = max(1.0, observed / max(float(np.interp(estimate, levels, expected)), 1e-12))
    reach = normal_quantile(confidence) * np.sqrt(excess * expected) / len(first)
    near = levels[np.abs(levels - estimate) <= reach + 1e-9]
    low, high = min(estimate, float(near[0])), max(estimate, float(near[-1]))
    if not low <= 0.5 <= high and chance_of_ranking_apart(pairs) > 1.0 - confidence + 1e-9:
        low, high = min(low, 0.5), max(high, 0.5)
    return Interval(estimate, low, high)


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations on both sides hold this share of a normal distribution."""
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"the confidence must be between 0 and 1, such as 0.95; got {confidence!r}")
    return NormalDist().inv_cdf(0.5 + confidence / 2.0)


def student_quantile(confidence: float, freedom: float) -> float:
    """Return how many standard errors on both sides hold this share of Student's distribution.

    With t = sqrt(freedom) tan(angle) the density is cos(angle)^(freedom - 1), which is summed over a grid of angles.
    """
    freedom = min(freedom, 1e4)  # by then it is normal to four digits
    angles = np.linspace(0.0, np.pi / 2, 20_001)
    density = np.cos(angles).clip(0.0) ** (freedom - 1.0)
    area = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    return float(np.sqrt(freedom) * np.tan(np.interp(confidence, area / area[-1], angles)))


class _Sample:
    """The scores of one group: its estimate, its resamples, and what the spread within each task says of their width."""

    def __init__(self, tasks: Sequence[Values], statistic: Statistic) -> None:
        self.tasks, self.statistic = tasks, statistic
        self.counts = np.array([len(task) for task in tasks], dtype=np.float64)
        self.weights, self.size = weights_of(tasks), sum(map(len, tasks))
        self.estimate = float(self._value(np.concatenate(tasks)))

    def _value(self, joined: Values) -> Values:
        return trimmed_mean(joined, self.weights, cut(self.statistic, self.size))

    @property
    def spread_known(self) -> bool:
        return bool(self.counts.min() > 1)

    def deviations(self, generator: np.random.Generator, resamples: int) -> Values:
        """How far the statistic of each resample is from the estimate."""
        drawn = [task[generator.integers(0, len(task), (resamples, len(task)))] for task in self.tasks]
        return self._value(np.concatenate(drawn, axis=1)) - self.estimate

    def variances(self) -> Values:
        """What each task adds to the variance of the statistic, up to a factor: that of its runs, outer ones pulled in."""
        ordered, outer = np.sort(np.concatenate(self.tasks)), min(cut(self.statistic, self.size), self.size // 4)
        low, high = ordered[outer], ordered[-1 - outer]
        return np.array([np.clip(task, low, high).var(ddof=1) for task in self.tasks]) / self.counts

    def inflation(self) -> float:
        """The root of the variance of the statistic over that of its resamples."""
        variances = _or_equal(self.variances())
        return float(np.sqrt(variances.sum() / (variances * (self.counts - 1) / self.counts).sum()))


def _widened(
    samples: Sequence[_Sample], signs: Sequence[float], confidence: float, method: Method, resamples: int, seed: int
) -> Interval:
    """The interval of a sum of statistics of independent groups."""
    if method not in ("widened", "percentile"):
        raise ConfigError(f"unknown method {method!r}; there are widened and percentile")
    if resamples < 1:
        raise ConfigError(f"resamples = {resamples} is not legal: must be at least 1, better 10,000")
    normal, widen = normal_quantile(confidence), method == "widened"
    generator = np.random.default_rng(seed)
    estimate = sum(sign * sample.estimate for sign, sample in zip(signs, samples, strict=True))
    deviations = np.zeros(resamples)
    for sign, sample in zip(signs, samples, strict=True):
        deviations += sign * (sample.inflation() if widen else 1.0) * sample.deviations(generator, resamples)
    scale = student_quantile(confidence, _freedom(samples)) / normal if widen else 1.0
    low, high = scale * np.quantile(deviations, (0.5 - confidence / 2.0, 0.5 + confidence / 2.0))
    return Interval(estimate, estimate + float(low), estimate + float(high))


def _freedom(samples: Sequence[_Sample]) -> float:
    """Satterthwaite's degrees of freedom of a variance that is a sum over tasks and groups."""
    variances = _or_equal(np.concatenate([sample.variances() for sample in samples]))
    counts = np.concatenate([sample.counts for sample in samples])
    return float(variances.sum() ** 2 / (variances**2 / (counts - 1)).sum())


def _or_equal(variances: Values) -> Values:
    """The variances, or equal ones where the scores in the middle do not differ at all."""
    return variances if variances.any() else np.ones_like(variances)


def probability_variance(probability: Values, runs: int, others: int) -> Values:
    """Return the variance of a probability of improvement, measured with so many runs on both sides."""
    more = (runs + others) / 2 - 1
    ties = (1 - probability) / (2 - probability) + probability / (1 + probability)
    return probability * (1 - probability) / (runs * others) * (1 + more * ties)


def _observed_variance(scores: Values, others: Values) -> float:
    """The same variance by how much single runs differ in the share of others that they beat (DeLong et al., 1988)."""
    return float(sum(wins(one, other).var(ddof=1) / len(one) for one, other in ((scores, others), (others, scores))))
