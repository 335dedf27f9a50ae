"""Which policy is the best, by estimates and results: the posterior by hand, and what must hold of any choice."""

import numpy as np
import pytest

from rl_training.ope import choosing
from rl_training.ope.choosing import Evidence, believe, decide, episodes_to_settle, next_policy, plan


def evidence(values, error=0.3, spread=0.2):
    values = np.asarray(values, dtype=float)
    return Evidence(values, np.full(len(values), error), spread)


def none(count):
    return [[] for _ in range(count)]


def one_point(monkeypatch, spread=1.0, error=1.0, noise=1.0, level=2.0, slope=0.0, unseen=0.0):
    """A grid of a single point, so that the posterior is one Gaussian."""
    monkeypatch.setattr(choosing, "_SPREADS", (spread,))
    monkeypatch.setattr(choosing, "_ERRORS", (error,))
    monkeypatch.setattr(choosing, "_NOISES", (noise,))
    monkeypatch.setattr(choosing, "_up_to", lambda limit, grid: (unseen,) if grid is choosing._UNSEEN else grid)
    monkeypatch.setattr(choosing, "_LEVEL", level)
    monkeypatch.setattr(choosing, "_SLOPE", slope)


def test_the_posterior_of_two_policies_by_hand(monkeypatch):
    """Estimates 1 and 3 with error 1, policies 1 apart, noise 1, level known to 2 * (1 + 1); two results of the second."""
    one_point(monkeypatch)
    found = believe(evidence([1.0, 3.0], error=1.0, spread=1.0), [[], [4.0, 6.0]])
    # before: both pulled halfway to their mean 2, own variance 1/2 each, and 16 of the common level
    before_mean, before = np.array([1.5, 2.5]), np.array([[16.5, 16.0], [16.0, 16.5]])
    gain = before[:, 1] / (before[1, 1] + 0.5)  # the mean of two results, 5, has variance 1/2
    np.testing.assert_allclose(found.mean, before_mean + gain * (5.0 - 2.5))
    np.testing.assert_allclose(found.covariance, before - np.outer(gain, before[1]), atol=1e-7)
    assert found.noise == pytest.approx(1.0)


def test_what_no_estimate_sees_by_hand(monkeypatch):
    """As above with a part of standard deviation 3 that estimates do not see: 9 more of variance for each, none in common."""
    one_point(monkeypatch, unseen=3.0)
    found = believe(evidence([1.0, 3.0], error=1.0, spread=1.0), [[], [4.0, 6.0]])
    before_mean, before = np.array([1.5, 2.5]), np.array([[25.5, 16.0], [16.0, 25.5]])
    gain = before[:, 1] / (before[1, 1] + 0.5)
    np.testing.assert_allclose(found.mean, before_mean + gain * (5.0 - 2.5))
    np.testing.assert_allclose(found.covariance, before - np.outer(gain, before[1]), atol=1e-7)


def chance_of_first(belief):
    """The chance that the first policy returns more than the second, without any draws."""
    gap, width = belief.means[:, 0] - belief.means[:, 1], np.array([1.0, -1.0])
    apart = np.sqrt(np.einsum("i,hij,j->h", width, belief.covariances[:, :2, :2], width))
    return float(belief.weights @ choosing._above(-gap / apart))


GAPS = [0.0, 0.1, 0.2, 0.5, *(2.0**power for power in range(18))]


@pytest.mark.parametrize("repeats", [(0.0, 0.5, 0.2, 0.3), (0.0, 0.5)])
@pytest.mark.parametrize("policies", [2, 6])
def test_policies_that_are_farther_apart_are_never_less_sure(policies, repeats):
    """Estimates that hardly differ, of two policies or of these and others; results of the two that repeat themselves."""
    before, repeats = Evidence(np.linspace(1.0, 0.0, policies), np.full(policies, 12.0), 9.0), np.array(repeats)
    chances = []
    for gap in GAPS:
        found = believe(before, [list(repeats), list(repeats - gap), *none(policies - 2)])
        chances.append(chance_of_first(found))
    assert (np.diff(chances) > -1e-9).all()
    assert chances[-1] > 0.97


@pytest.mark.parametrize("gap", [5.0, 20.0, 80.0, 4000.0, 1e6])
def test_four_results_of_a_policy_speak_for_it_however_far_it_is_from_the_others(gap):
    """The case of a crane: estimates within 2 of each other, results 20 apart and more, each repeating itself to 0.2."""
    before = Evidence(np.array([-14.3, -15.0, -14.2, -14.8, -15.9]), np.full(5, 13.0), 8.8, -23.5)
    good, bad = np.array([-20.0, -20.5, -20.2, -20.3]), np.array([-0.1, -0.3, 0.2, 0.0]) - 20.0 - gap
    found = believe(before, [list(good), list(bad), *none(3)])
    assert found.mean[:2] == pytest.approx([good.mean(), bad.mean()], abs=0.1 + 1e-4 * gap)
    assert np.sqrt(np.diag(found.covariance))[:2] == pytest.approx(0.15, abs=0.1 + 1e-4 * gap)


def test_many_results_of_all_policies_rank_them():
    """Twelve policies with returns from -69 to -19, twenty results each; estimates within 0.1 of each other."""
    random = np.random.default_rng(0)
    truth = random.permutation(np.linspace(-68.9, -19.1, 12))
    before = Evidence(np.linspace(-15.0, -14.9, 12), np.full(12, 0.1), 1.0)
    found = decide(before, (truth[:, None] + random.normal(size=(12, 20))).tolist(), 5)
    np.testing.assert_allclose(found.belief.mean, truth, atol=1.0)
    assert found.sure
    assert found.chosen == truth.argmax()


def test_results_that_are_all_far_from_the_estimates_are_no_noise():
    """Another plant: all policies return 1000 less than was estimated, and repeat themselves."""
    found = believe(evidence([0.0, 0.1, 0.2]), [[-1000.0, -1000.1], [-1000.2, -1000.1], [-1000.9, -1000.8]])
    np.testing.assert_allclose(found.mean, [-1000.05, -1000.15, -1000.85], atol=0.1)
    assert found.noise**0.5 < 0.2


def test_an_untried_policy_may_be_as_far_away_as_the_tried_ones_are_apart():
    near, far = (believe(evidence([0.5, 0.5, 0.5]), [[0.0, 0.01], [gap, gap + 0.01], []]) for gap in (0.1, 100.0))
    width = [np.sqrt(one.covariance[2, 2]) for one in (near, far)]
    assert width[0] < 1.0
    assert width[1] > 20.0


def test_noise_is_as_large_as_repeats_say_however_little_the_log_differs():
    found = believe(evidence([0.0, 0.5], spread=0.01), [[-6.0, 6.0, 5.0], [-5.0, 6.0, -6.0]])
    assert 3.0 < found.noise**0.5 < 15.0


def test_a_policy_of_which_the_log_cannot_tell_is_one_of_the_others(monkeypatch):
    one_point(monkeypatch, level=0.0)
    found = believe(evidence([1.0, np.nan, 3.0], error=1.0, spread=1.0), none(3))
    np.testing.assert_allclose(found.mean, [1.5, 2.0, 2.5])
    np.testing.assert_allclose(np.diag(found.covariance), [0.5, 1.0, 0.5])


def test_results_narrow_what_is_known():
    before, widths = evidence([0.1, 0.5, 0.9]), []
    for count in (0, 1, 3, 9):
        found = believe(before, [[], [], [0.9] * count])
        widths.append(found.covariance[2, 2])
    assert widths == sorted(widths, reverse=True)


def test_a_policy_with_bad_results_falls():
    before = evidence([0.1, 0.5, 0.9])
    good, bad = (decide(before, [[], [0.5], [result] * 2], 5) for result in (0.9, -1.0))
    assert (good.chosen, bad.chosen) == (2, 1)
    assert bad.chances[2] < 0.1 < good.chances[2]


def test_results_that_contradict_the_estimates_widen_all_of_them():
    before = evidence([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], error=0.05, spread=0.1)
    agree, contradict = ([[0.0], [0.2], [], [], [], [1.0]], [[1.0], [0.5], [], [], [], [0.0]])
    widths = [believe(before, results).covariance[3, 3] for results in (agree, contradict)]
    assert widths[1] > 2.0 * widths[0]


def test_repeated_results_tell_the_noise():
    before = evidence([0.1, 0.5, 0.9], spread=1.0)
    quiet, loud = ([0.9, 0.91] * 6, [-0.9, 2.7] * 6)
    assert believe(before, [[], [], quiet]).noise < 0.5 < believe(before, [[], [], loud]).noise


def test_estimates_alone_are_never_sure():
    clear = evidence([0.0, 0.0, 100.0], error=1e-3)
    assert decide(clear, none(3), 5).chances[2] > 0.95
    assert [decide(clear, [[0.0], [0.0], [100.0] * count], 5).sure for count in (0, 1, 2)] == [False, False, True]


def test_a_sure_choice_needs_no_more_episodes():
    found = decide(evidence([0.0, 0.0, 100.0], error=1e-3), [[0.0], [0.0], [100.0, 100.1]], 5)
    assert (found.sure, found.settles) == (True, 0)
    assert found.loss == pytest.approx(0.0, abs=0.1)


def test_equal_arguments_give_equal_values_and_leave_the_global_generator_alone():
    before, results = evidence([0.1, 0.5, 0.9]), [[0.3], [], [0.8, 0.7]]
    first, second = (decide(before, results, 6) for _ in range(2))
    assert first.chances.tolist() == second.chances.tolist()
    assert (first.plan, first.settles, first.loss) == (second.plan, second.settles, second.loss)


def test_the_unit_does_not_matter():
    values, results = np.array([0.1, 0.4, 0.5, 0.9]), [[], [0.4], [0.7, 0.6], [0.8]]
    small = decide(Evidence(values, np.full(4, 0.2), 0.15), results, 8)
    large = decide(Evidence(1e3 * values, np.full(4, 2e2), 1.5e2), [[1e3 * y for y in found] for found in results], 8)
    assert small.chances.tolist() == large.chances.tolist()
    assert (small.plan, small.settles) == (large.plan, large.settles)
    assert large.loss == pytest.approx(1e3 * small.loss)
    np.testing.assert_allclose(large.belief.mean, 1e3 * small.belief.mean)


def test_without_any_estimate_the_plan_tries_all():
    unknown = Evidence(np.full(5, np.nan), np.full(5, np.nan), 1.0, level=7.0)
    found = decide(unknown, none(5), 7)
    assert set(found.plan[:5]) == set(range(5))
    np.testing.assert_allclose(found.belief.mean, 7.0)


def test_the_plan_begins_with_the_next_policy_and_spreads():
    belief = believe(evidence(np.linspace(0.0, 1.0, 12)), none(12))
    picks = plan(belief, 10)
    assert picks[0] == next_policy(belief.mean, belief.covariance, belief.noise)
    assert len(set(picks)) >= 3
    assert min(picks) >= 6  # of the better half


def test_the_rule_for_many_cases_is_that_of_each():
    beliefs = [believe(evidence(values), [[], [], [0.7]]) for values in ([0.0, 0.5, 1.0], [0.9, 0.8, 0.1])]
    means, covariances = (np.stack([getattr(one, name) for one in beliefs]) for name in ("mean", "covariance"))
    together = next_policy(means, covariances, 0.04)
    assert together.tolist() == [int(next_policy(one.mean, one.covariance, 0.04)) for one in beliefs]


def test_close_policies_take_more_episodes_than_distant_ones_and_equal_ones_too_many():
    needed = [
        episodes_to_settle(believe(evidence([0.0, gap], error=0.01), [[-0.3, 0.3], [gap - 0.3, gap + 0.3]]), np.array([2, 2]))
        for gap in (2.0, 0.25)
    ]
    assert needed[0] < needed[1]
    equal = believe(evidence([0.5, 0.5], error=1e-3), [[0.5] * 20, [0.5] * 20])
    assert episodes_to_settle(equal, np.array([20, 20])) is None


def test_the_spread_of_a_log_of_many_controllers_is_no_noise():
    """Returns were spread by 1, and results of a policy repeat to a hundredth: the noise is as small as they say."""
    repeated = believe(evidence([0.0, 0.5, 1.0]), [[0.4, 0.41], [0.6, 0.61], [0.5, 0.51]])
    assert repeated.noise**0.5 < 0.1
    assert np.allclose(repeated.mean, [0.405, 0.605, 0.505], atol=0.02)


def test_results_that_differ_more_than_the_log_are_noise():
    """Returns were spread by 0.2, and results of a policy by 0.6."""
    apart = believe(evidence([0.0, 0.5]), [[-0.6, 0.6, 0.6], [-0.1, 1.1, -0.1]])
    assert 0.4 < apart.noise**0.5 < 1.0


def test_a_log_without_any_spread_still_gives_a_choice():
    found = decide(Evidence(np.array([1.0, 1.0]), np.zeros(2), 0.0), none(2), 3)
    assert np.isfinite(found.chances).all()
    assert not found.sure
