"""Importance weights by hand, the density of logged actions, and where a policy leaves the data."""

import math

import numpy as np
import pytest
import torch

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.ope.density import LoggedDensity
from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.evaluation import _weighted
from rl_training.ope.importance import RowValues, Weighted, counts_of, log_ratios, weighted_estimates
from rl_training.ope.support import LoggedSupport, Support
from tests.ope.plants import linear, logged

CPU = torch.device("cpu")


def episodes_of(rewards, ends):
    """Episodes of equal length with these rewards (episodes, steps), truly ended or cut."""
    rewards = np.asarray(rewards, dtype=np.float32)
    count, length = rewards.shape
    rows = count * length
    last = np.zeros((count, length), dtype=bool)
    last[:, -1] = True
    terminal = last & np.asarray(ends)[:, None]
    random = np.random.default_rng(0)
    seen = random.standard_normal((rows, 1)).astype(np.float32)
    data = TransitionDataset.from_dict(
        {
            "observations": seen,
            "actions": random.standard_normal((rows, 1)).astype(np.float32),
            "rewards": rewards.reshape(-1),
            "next_observations": seen,
            "terminals": terminal.reshape(-1),
            "timeouts": (last & ~terminal).reshape(-1),
        }
    )
    found = Episodes.of(data, 1000)
    object.__setattr__(found, "lengths", np.full(count, length))  # so few episodes would be cut
    return found


def test_two_episodes_by_hand():
    """Weights 1 and 3 after the first step, 2 and 3 after the second: (1 + 3*2)/4 + g (2*4 + 3*1)/5; then both truly end."""
    episodes = episodes_of([[1.0, 4.0], [2.0, 1.0]], ends=[True, True])
    ratios = np.log([1.0, 2.0, 3.0, 1.0])
    nothing = RowValues(*(np.zeros(4),) * 3)
    plain, robust = weighted_estimates(episodes, ratios, 0.5, np.ones((1, 2)), nothing)
    by_hand = (1 * 1 + 3 * 2) / 4 + 0.5 * (2 * 4 + 3 * 1) / 5
    assert plain.value == pytest.approx(by_hand + 0.25 / 0.5 * (2 * 4 + 3 * 1) / 5)  # as if the last reward went on
    assert robust.value == pytest.approx(by_hand)  # values of 0 leave the weights alone
    assert plain.effective == pytest.approx((16 / 10 + 0.5 * 25 / 13) / 1.5)


@pytest.mark.filterwarnings("error")
def test_an_episode_that_was_cut_with_a_huge_weight_counts_for_nothing_later():
    """The first is cut after its one step, with a weight of e^900 beside those that go on, which no float holds."""
    episodes = episodes_of([[1.0, 2.0], [1.0, 3.0], [3.0, 0.0]], ends=[False] * 3)
    object.__setattr__(episodes, "lengths", np.array([1, 2, 2]))  # rewards 1; 2 and 1; 3 and 3
    object.__setattr__(episodes, "terminals", np.array([False, False, True, False, True, False]))
    nothing, even = RowValues(*(np.zeros(6),) * 3), np.ones((1, 3))
    found, _ = weighted_estimates(episodes, np.array([900.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 0.5, even, nothing)
    assert found.value == pytest.approx(1.0 + 0.5 * 2.0 + 0.25 / 0.5 * 2.0)  # the first step of one, then the mean of two


def test_actions_that_the_policy_would_never_take_are_counted_by_weight():
    """One of them, in the second step of the first episode: weights 1 and 3, then e^-20 and 3.

    So after one step none of the weight is on it, and after two half of the actions of the first episode, which counts
    nothing. In both episodes alike the weights are equal, which looks like all the evidence there is.
    """
    episodes = episodes_of([[1.0, 4.0], [2.0, 1.0]], ends=[True, True])
    nothing = RowValues(*(np.zeros(4),) * 3)
    never = np.array([0.0, -20.0, np.log(3.0), 0.0])
    once = weighted_estimates(episodes, never, 0.5, np.ones((1, 2)), nothing)[0]
    assert once.foreign == pytest.approx(0.5 * (0.5 * math.exp(-20.0) / 3.0) / 1.5, rel=1e-6)
    both = weighted_estimates(episodes, np.array([0.0, -20.0, 0.0, -20.0]), 0.5, np.ones((1, 2)), nothing)
    assert [one.foreign for one in both] == [pytest.approx(0.5 * 0.5 / 1.5)] * 2
    assert both[0].effective == pytest.approx(2.0)


def test_a_policy_that_nobody_acted_like_cannot_be_told_by_weights():
    """All ratios are the smallest, so all 120 episodes weigh the same, whatever the policy does."""
    episodes = Episodes.of(logged(length=6), 100_000)
    behaviour = Behaviour.of(lambda seen: np.full((len(seen), 1), 1e3, dtype=np.float32), episodes)
    ratios = log_ratios(episodes, behaviour, torch.zeros(len(episodes)), 0.1 * torch.ones(1))
    nothing = RowValues(*(np.zeros(len(episodes)),) * 3)
    found, _ = weighted_estimates(episodes, ratios, 0.5, counts_of(120, 0), nothing)
    assert (found.effective, found.foreign) == (pytest.approx(120.0), pytest.approx(1.0))
    told = _weighted(found, LoggedSupport(episodes).of(behaviour))
    assert told.verdict == "cannot tell"
    assert "of the actions in the episodes that it rests on are none that the policy would take" in told.reasons[-1]


@pytest.mark.parametrize(("beyond", "verdict"), [(0.05, "trust"), (0.4, "doubt"), (0.6, "cannot tell")])
def test_weights_are_trusted_only_where_the_actions_are_in_the_data(beyond, verdict):
    found = Weighted(1.0, np.array([0.9, 1.1]), effective=40.0, foreign=0.0)
    assert _weighted(found, Support(beyond, 0.05, *(np.zeros(1),) * 4)).verdict == verdict


def test_the_robust_estimate_is_the_value_where_the_values_are_right():
    """With Q = r + g V' in every row the weights correct nothing, whatever they are."""
    episodes = episodes_of([[1.0, 4.0], [2.0, 1.0]], ends=[False, False])
    following = np.array([7.0, 5.0, 7.0, 5.0])
    q = episodes.rewards + 0.9 * following
    own = np.array([3.0, 7.0, 5.0, 7.0])  # V of the second row of each is what follows the first
    _, robust = weighted_estimates(episodes, np.log([1.0, 5.0, 0.2, 9.0]), 0.9, np.ones((1, 2)), RowValues(q, own, following))
    assert robust.value == pytest.approx((3.0 + 5.0) / 2.0)


def test_resamples_draw_whole_episodes():
    counts = counts_of(50, seed=3)
    assert (counts[0] == 1.0).all()
    assert (counts.sum(axis=1) == 50.0).all()
    assert not (counts[1] == counts[2]).all()
    np.testing.assert_array_equal(counts, counts_of(50, seed=3))


def test_the_density_of_a_gaussian_controller():
    """a = -0.4 s + 0.6 n: the mean log density of its own samples is -log(0.6 / unit) - (1 + log 2 pi) / 2."""
    episodes = Episodes.of(logged(), 100_000)
    density = LoggedDensity(episodes, 600, 0, CPU)
    density.fit()
    likely, deviations = density.log_densities()
    unit = float(episodes.of_actions.std[0])
    assert float(likely.mean()) == pytest.approx(-math.log(0.6 / unit) - 0.5 * (1.0 + math.log(2.0 * math.pi)), abs=0.08)
    assert float(deviations[0]) == pytest.approx(0.6 / unit, rel=0.15)


def test_actions_of_the_log_are_likelier_under_the_policy_that_took_them():
    episodes = Episodes.of(logged(noise=0.2), 100_000)
    density = LoggedDensity(episodes, 400, 0, CPU)
    density.fit()
    likely, deviations = density.log_densities()
    own, other = (log_ratios(episodes, Behaviour.of(linear(gain), episodes), likely, deviations) for gain in (-0.4, 0.8))
    assert own.mean() > other.mean() + 1.0


def test_where_a_policy_leaves_the_data():
    episodes = Episodes.of(logged(noise=0.1, length=6), 100_000)
    support = LoggedSupport(episodes)
    own, other = (support.of(Behaviour.of(linear(gain), episodes)) for gain in (-0.4, 0.8))
    assert own.beyond < 0.06  # of the logged actions themselves 5 % are
    assert other.beyond > 0.5
    assert other.columns[0] > own.columns[0]
    assert set(other.episodes) <= set(range(120))
    assert (other.shares >= other.shares[-1]).all()


def test_it_says_in_which_column_and_where():
    """A second action that was 0.1 of noise everywhere is 1 where the first observation is high."""
    random = np.random.default_rng(0)
    rows = 3000
    seen = random.standard_normal((rows, 2)).astype(np.float32)
    actions = np.stack((seen[:, 0] + 0.1 * random.standard_normal(rows), 0.1 * random.standard_normal(rows)), 1)
    ends = np.arange(rows) % 50 == 49
    fields = {"observations": seen, "actions": actions.astype(np.float32), "rewards": np.zeros(rows, dtype=np.float32)}
    fields |= {"next_observations": seen, "terminals": np.zeros(rows, dtype=bool), "timeouts": ends}
    episodes = Episodes.of(TransitionDataset.from_dict(fields), 100_000)

    def act(given):
        return np.stack((given[:, 0], np.where(given[:, 0] > 1.0, 1.0, 0.0)), 1).astype(np.float32)

    found = LoggedSupport(episodes).of(Behaviour.of(act, episodes))
    assert found.beyond == pytest.approx(0.16, abs=0.03)
    assert found.columns[1] > 5.0 * found.columns[0]
    assert found.where[0] > 1.0 > 5.0 * abs(found.where[1])
