"""Intervals: what they equal where that is known, and that they do not promise too much."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from rl_training.analysis.bootstrap import (
    difference_interval,
    improvement_interval,
    interval,
    normal_quantile,
    student_quantile,
)
from rl_training.errors import ConfigError
from tests.analysis.known_scores import FIRST, RLIABLE, SECOND


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 3.7, 9, 29, 400])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_quantiles_are_scipy_s(confidence, freedom):
    assert student_quantile(confidence, freedom) == pytest.approx(stats.t.ppf(0.5 + confidence / 2, freedom), rel=1e-4)
    assert normal_quantile(confidence) == pytest.approx(stats.norm.ppf(0.5 + confidence / 2))


def test_plain_percentiles_are_those_of_rliable():
    found = interval(FIRST, method="percentile", resamples=50_000)
    assert found.estimate == pytest.approx(RLIABLE["iqm"][0])
    assert found[1:] == pytest.approx(RLIABLE["interval of the first, 50,000 resamples"], abs=0.15)  # both are random


@pytest.mark.parametrize("runs", [3, 5, 10, 30])
def test_the_interval_of_a_mean_is_nearly_student_s(runs):
    """For scores as regular as the quantiles of a normal distribution, whose bootstrap is nearly symmetric."""
    scores = stats.norm.ppf((np.arange(runs) + 0.5) / runs)
    error = stats.t.ppf(0.975, runs - 1) * scores.std(ddof=1) / math.sqrt(runs)
    found = interval(scores, "mean", resamples=100_000)
    assert found.low == pytest.approx(-error, rel=0.1)
    assert found.high == pytest.approx(error, rel=0.1)


def test_few_runs_have_much_wider_intervals_than_percentiles_say():
    plain, wide = (interval([10.0, 12.0, 17.0], method=method) for method in ("percentile", "widened"))
    assert (plain.low, plain.high) == (10.0, 17.0)  # no resample of three lies outside of them
    factor = math.sqrt(3 / 2) * stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)
    assert wide.low == pytest.approx(13 - 3 * factor, rel=1e-3)
    assert wide.high == pytest.approx(13 + 4 * factor, rel=1e-3)


def test_equal_arguments_give_equal_intervals_and_other_seeds_others():
    assert interval(FIRST) == interval(FIRST)
    assert interval(FIRST) != interval(FIRST, seed=1)
    assert interval(FIRST)[1:] == pytest.approx(interval(FIRST, seed=1)[1:], abs=0.6)


def test_confidence_widens():
    widths = [found.high - found.low for found in (interval(FIRST, confidence=level) for level in (0.5, 0.9, 0.95, 0.99))]
    assert widths == sorted(widths)
    for level in (0.0, 1.0, 95.0, float("nan")):
        with pytest.raises(ConfigError, match="confidence must be between 0 and 1"):
            interval(FIRST, confidence=level)
    with pytest.raises(ConfigError, match="unknown method 'bca'; there are widened and percentile"):
        interval(FIRST, method="bca")
    with pytest.raises(ConfigError, match="resamples = 0 is not legal"):
        interval(FIRST, resamples=0)


def test_scale_and_shift_carry_over():
    plain, moved = interval(FIRST), interval(-3.0 * FIRST + 7.0)
    assert moved == pytest.approx((-3 * plain.estimate + 7, -3 * plain.high + 7, -3 * plain.low + 7), rel=0.02)


def test_without_a_second_run_there_is_no_interval():
    for found in (interval([5.0]), interval([[1.0, 2.0], [3.0]]), difference_interval([5.0], [1.0, 2.0])):
        assert not found.known
        assert not found.excludes(0.0)
    assert not improvement_interval([5.0], [1.0, 2.0]).known
    assert interval([5.0]).estimate == 5.0


def test_equal_scores_have_an_interval_without_width():
    assert interval([2.0, 2.0, 2.0]) == (2.0, 2.0, 2.0)
    found = difference_interval([2.0, 2.0, 2.0], [1.0, 2.0, 3.0])
    alone = interval([1.0, 2.0, 3.0])  # the other side adds nothing
    assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.02)


def test_the_difference_of_two_groups():
    found, reverse = difference_interval(FIRST, SECOND), difference_interval(SECOND, FIRST)
    assert found.estimate == pytest.approx(RLIABLE["iqm"][0] - RLIABLE["iqm"][1])
    assert found.low < 0.0 < found.high
    assert (-reverse.high, -reverse.low) == pytest.approx((found.low, found.high), abs=0.8)
    assert difference_interval(np.arange(10.0) + 20, np.arange(10.0)).low > 10.0


def test_the_difference_of_means_is_welch_s():
    first, second = stats.norm.ppf((np.arange(8) + 0.5) / 8), 3 * stats.norm.ppf((np.arange(20) + 0.5) / 20)
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    found = difference_interval(first, second, "mean", resamples=100_000)
    assert found[1:] == pytest.approx((welch.low, welch.high), rel=0.05)


@pytest.mark.parametrize(("runs", "others"), [(4, 4), (5, 5), (10, 10), (4, 9)])
def test_the_bounds_of_a_probability_are_as_far_as_chance_reaches(runs, others):
    """Where every run is better, the lower bound p solves 1 - p = z sqrt(V(p)), V of Hanley and McNeil."""
    found = improvement_interval(np.arange(runs) + 100.0, np.arange(others))
    p, mean = found.low, (runs + others) / 2
    variance = p * (1 - p) / (runs * others) * (1 + (mean - 1) * ((1 - p) / (2 - p) + p / (1 + p)))
    assert 1 - p == pytest.approx(stats.norm.ppf(0.975) * math.sqrt(variance), abs=2e-4)
    assert (found.estimate, found.high) == (1.0, 1.0)
    mirrored = improvement_interval(np.arange(others), np.arange(runs) + 100.0)
    assert mirrored == pytest.approx((0.0, 0.0, 1 - p), abs=1e-9)


def test_three_runs_that_are_all_better_prove_nothing():
    """One of two sides is all better in 2 of 20 orders of three and three, and in 2 of 400 of two tasks."""
    assert improvement_interval([4, 5, 6], [1, 2, 3]) == (1.0, 0.5, 1.0)
    assert improvement_interval([1, 2, 3], [4, 5, 6]) == (0.0, 0.0, 0.5)
    assert improvement_interval([4, 5, 6], [1, 2, 3], confidence=0.9).low > 0.5
    assert improvement_interval([[4, 5, 6]] * 2, [[1, 2, 3]] * 2).low > 0.5


@pytest.mark.parametrize(("runs", "others", "tasks"), [(3, 3, 1), (4, 4, 1), (5, 5, 1), (2, 3, 2), (3, 4, 2)])
def test_an_interval_of_equal_groups_excludes_one_half_in_at_most_one_of_twenty_orders(runs, others, tasks):
    orders = list(combinations(range(runs + others), runs))
    outside = 0
    for chosen in product(orders, repeat=tasks):
        rest = [[rank for rank in range(runs + others) if rank not in own] for own in chosen]
        outside += improvement_interval([list(own) for own in chosen], rest).excludes(0.5)
    assert outside <= 0.05 * len(orders) ** tasks
    assert (outside > 0) is ((runs, others, tasks) != (3, 3, 1))  # only there nothing could


def test_unequal_spread_widens_the_interval_of_a_probability():
    narrow, wide = np.linspace(-1, 1, 30), np.linspace(-30, 30, 30)
    same = improvement_interval(wide, wide)
    found = improvement_interval(narrow, wide)
    assert found.estimate == pytest.approx(0.5)
    assert found.high - found.low > 1.05 * (same.high - same.low)
