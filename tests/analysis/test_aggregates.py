"""Statistics of many scores: values computed by hand, by scipy, and by the library that the paper published."""

import numpy as np
import pytest
from scipy import stats

from rl_training.analysis.aggregates import aggregate, optimality_gap, probability_of_improvement, profile, strata
from rl_training.errors import ConfigError
from tests.analysis.known_scores import FIRST, RLIABLE, SECOND


@pytest.mark.parametrize(
    ("scores", "iqm", "mean", "median"),
    [
        ([7.0], 7.0, 7.0, 7.0),
        ([1.0, 3.0], 2.0, 2.0, 2.0),
        ([1.0, 2.0, 6.0], 3.0, 3.0, 2.0),  # a quarter of three scores is none
        ([9.0, 1.0, 2.0, 4.0], 3.0, 4.0, 3.0),
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0, 21.2, 2.0),
        ([-100.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 1000.0], 4.25, 115.625, 4.5),
        ([[1.0, 2.0], [10.0, 40.0]], 6.0, 13.25, 6.0),  # over all runs of all tasks
    ],
)
def test_by_hand(scores, iqm, mean, median):
    assert [aggregate(scores, kind) for kind in ("iqm", "mean", "median")] == pytest.approx([iqm, mean, median])


@pytest.mark.parametrize("count", range(1, 40))
def test_the_interquartile_mean_is_scipy_s_trimmed_mean(count):
    scores = np.random.default_rng(count).normal(size=count)
    assert aggregate(scores) == pytest.approx(stats.trim_mean(scores, 0.25))
    assert aggregate(scores, "median") == pytest.approx(np.median(scores))


def test_published_values():
    assert (aggregate(FIRST), aggregate(SECOND)) == pytest.approx(RLIABLE["iqm"])
    assert aggregate(FIRST, "mean") == pytest.approx(RLIABLE["mean of the first"])
    assert optimality_gap(FIRST, 75.0) == pytest.approx(RLIABLE["optimality gap of the first, gamma 75"])
    assert probability_of_improvement(FIRST, SECOND) == pytest.approx(RLIABLE["probability of improvement"])
    assert profile(FIRST, [20, 47, 60, 80]) == pytest.approx(RLIABLE["profile of the first at 20, 47, 60, 80"])


def test_tasks_count_alike_whatever_their_number_of_runs():
    few, many = [10.0], [1.0, 2.0, 3.0]
    assert aggregate([few, many], "mean") == pytest.approx(6.0)
    # weights 1/6, 1/6, 1/6, 1/2 of 1, 2, 3, 10; between 1/4 and 3/4 lie 1/12 of 2, 1/6 of 3 and 1/4 of 10
    assert aggregate([few, many], "iqm") == pytest.approx((2 / 12 + 3 / 6 + 10 / 4) / 0.5)
    assert profile([few, many], [1.5]) == pytest.approx([(1 + 2 / 3) / 2])
    same = np.arange(12.0).reshape(2, 6)
    assert aggregate([same[0], np.tile(same[1], 3)], "mean") == pytest.approx(same.mean())


def test_probability_of_improvement_by_hand_and_by_mann_whitney():
    assert probability_of_improvement([1, 2, 3], [4, 5]) == 0.0
    assert probability_of_improvement([3, 4], [1, 3]) == pytest.approx(3.5 / 4)  # one tie counts half
    assert probability_of_improvement([5, 5], [5, 5, 5]) == 0.5
    assert probability_of_improvement([[2], [1]], [[1], [2]]) == 0.5
    first, second = np.random.default_rng(0).integers(0, 6, (2, 9))
    expected = stats.mannwhitneyu(first, second).statistic / 81
    assert probability_of_improvement(first, second) == pytest.approx(expected)
    with pytest.raises(ConfigError, match="scores of 1 and 2 tasks"):
        probability_of_improvement([1, 2], [[1], [2]])


def test_a_profile_counts_what_is_higher_and_not_what_is_equal():
    assert profile([1.0, 2.0, 2.0, 5.0], [0.0, 2.0, 5.0]).tolist() == [1.0, 0.25, 0.0]


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([], "at least one score"),
        ([[1.0], []], "at least one score"),
        ([[[1.0]]], "at least one score"),
        ([1.0, np.nan], "finite"),
        ([1.0, np.inf], "finite"),
        (["a", "b"], "must be numbers"),
        (3.0, "must be numbers"),
        (None, "must be numbers"),
    ],
)
def test_wrong_scores(scores, words):
    with pytest.raises(ConfigError, match=words):
        strata(scores)


def test_an_unknown_statistic():
    with pytest.raises(ConfigError, match="unknown statistic 'mode'; there are iqm, mean, median"):
        aggregate([1.0], "mode")
