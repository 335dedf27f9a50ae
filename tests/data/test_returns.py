import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import compute_returns_to_go
from rl_training.data.returns import RewardRange
from rl_training.errors import ConfigError, DatasetError


def test_true_end_closes_with_zero():
    assert compute_returns_to_go([1.0, 2.0, 4.0], [0, 0, 1], [0, 0, 0], 0.5).tolist() == [3.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("last_penalty", [-2.0, -2.0, -2.0]),
        ("last_reward", [-2.0, -2.0, -2.0]),
        ("zero", [-1.75, -1.5, -1.0]),
        ("none", [-np.inf, -np.inf, -np.inf]),
    ],
)
def test_tails_of_a_cut_episode(tail, expected):
    for timeouts in ([0, 0, 1], [0, 0, 0]):  # a time limit, and the end of the data
        assert compute_returns_to_go([-1.0] * 3, [0, 0, 0], timeouts, 0.5, tail).tolist() == expected


def test_a_cut_sum_of_negative_rewards_is_never_above_the_default_tail():
    rewards = [-5.0, -3.0, -1.0]
    zero = compute_returns_to_go(rewards, [0] * 3, [0, 0, 1], 0.9, "zero")
    assert (compute_returns_to_go(rewards, [0] * 3, [0, 0, 1], 0.9) < zero).all()


# Sparse rewards as Cal-QL's authors scale them in AntMaze: -5 a step, +5 in the goal; nine steps, gamma 0.99.
AT_THE_CUT = [-5.0] * 8 + [5.0]  # the goal is reached in the very step at which the time is up
TOUCHED_AND_LOST = [-5.0] * 4 + [5.0] + [-5.0] * 4


def cut(rewards, *rules):
    """The first and the last return of an episode that a time limit cuts."""
    returns = compute_returns_to_go(rewards, [0] * len(rewards), [0] * (len(rewards) - 1) + [1], 0.99, *rules)
    return pytest.approx([returns[0], returns[-1]], abs=0.05)


@pytest.mark.parametrize("failure_reward", [-5.0, None])
def test_the_authors_returns_of_sparse_tasks(failure_reward):
    """What their code returns for both: the truncated sums, since neither episode failed throughout."""
    assert cut(AT_THE_CUT, "zero", failure_reward) == [-34.0, 5.0]
    assert cut(TOUCHED_AND_LOST, "zero", failure_reward) == [-33.6, -5.0]
    assert cut([-5.0] * 9, "zero", -5.0) == [-500.0, -500.0]


def test_a_success_at_a_time_limit_sets_no_floor_above_the_truth():
    """Nobody saw the goal's reward twice: it does not repeat forever, as the plain rule of the last reward has it.

    The goal that was lost again: -5 for ever is what was seen last, and a lower bound; the truncated sum is none.
    """
    assert cut(AT_THE_CUT, "last_reward") == [422.7, 500.0]
    assert cut(AT_THE_CUT) == [-34.0, 5.0]
    assert cut(TOUCHED_AND_LOST) == [-490.4, -500.0]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=9), st.floats(0.0, 0.99))
def test_the_default_is_the_lower_of_two_tails(rewards, gamma):
    """Rewards that are never negative are truncated, a lower bound; those that are never positive go on as they ended."""
    ends = [0] * len(rewards), [0] * (len(rewards) - 1) + [1]
    default, zero, repeated = (
        compute_returns_to_go(rewards, *ends, gamma, tail) for tail in ("last_penalty", "zero", "last_reward")
    )
    assert np.array_equal(default, np.minimum(zero, repeated))


def test_terminal_wins_over_timeout():
    assert compute_returns_to_go([1.0, 1.0], [0, 1], [0, 1], 0.5).tolist() == [1.5, 1.0]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), gamma=st.floats(0.0, 0.99), tail=st.sampled_from(["last_penalty", "last_reward", "zero", "none"]))
def test_no_sum_crosses_a_boundary(data, gamma, tail):
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    ends = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    rewards, terminals, timeouts, parts = [], [], [], []
    for length, terminal in zip(lengths, ends, strict=True):
        piece = data.draw(st.lists(st.floats(-10, 10), min_size=length, max_size=length))
        flags = [False] * (length - 1)
        rewards += piece
        terminals += [*flags, terminal]
        timeouts += [*flags, not terminal]
        parts.append(compute_returns_to_go(piece, [*flags, terminal], [*flags, not terminal], gamma, tail))
    whole = compute_returns_to_go(rewards, terminals, timeouts, gamma, tail)
    assert np.array_equal(whole, np.concatenate(parts))


def test_bad_arguments_are_refused():
    with pytest.raises(ConfigError, match="tail = 'x'"):
        compute_returns_to_go([1.0], [0], [0], 0.9, "x")
    with pytest.raises(ConfigError, match="gamma = 1.0"):
        compute_returns_to_go([1.0], [0], [0], 1.0)
    with pytest.raises(DatasetError, match="differ in length: 2, 1, 1"):
        compute_returns_to_go([1.0, 1.0], [0], [0], 0.9)


def test_a_failed_episode_of_a_sparse_task_is_worth_failing_for_ever():
    """Two episodes of reward -5 throughout and one that ends with a 5: only the failed ones are r / (1 - gamma)."""
    rewards = [-5.0, -5.0, -5.0, 5.0, -5.0]
    terminals, timeouts = [0, 0, 0, 1, 0], [0, 1, 0, 0, 1]
    returns = compute_returns_to_go(rewards, terminals, timeouts, 0.9, "zero", failure_reward=-5.0)
    assert returns.tolist() == pytest.approx([-50.0, -50.0, -0.5, 5.0, -50.0])
    plain = compute_returns_to_go(rewards, terminals, timeouts, 0.9, "zero")
    assert plain.tolist() == pytest.approx([-9.5, -5.0, -0.5, 5.0, -5.0])


@pytest.mark.parametrize(
    ("going", "ending", "allowed"),
    [
        ([0.0, 0.0], [1.0], (0.0, 1.0)),  # a goal that ends the episode is reached once
        ([-1.0, -2.0], [0.0], (-20.0, 0.0)),  # costs until a goal
        ([1.0, 2.0], [-5.0], (-5.0, 20.0)),  # alive until a fall
        ([1.0, 2.0], [30.0], (10.0, 30.0)),
        ([-1.0, 3.0], [], (-10.0, 30.0)),  # no true end was seen: rewards go on
        ([], [2.0, 4.0], (2.0, 4.0)),  # every row ends an episode
    ],
)
def test_what_rewards_allow(going, ending, allowed):
    """With a discount of 0.9, ten times a reward where episodes go on, and the reward alone where they end."""
    ends = np.repeat([False, True], [len(going), len(ending)])
    assert RewardRange.of(np.array(going + ending), ends).values(0.9) == pytest.approx(allowed)


def test_the_rewards_of_two_parts_of_the_data():
    one, two = RewardRange((0.0, 1.0), None), RewardRange((-1.0, 0.5), (3.0, 4.0))
    assert one.joined(two) == two.joined(one) == RewardRange((-1.0, 1.0), (3.0, 4.0))
    assert one.joined(one) == one


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9), st.booleans(), st.floats(0.0, 0.99))
@settings(max_examples=50, deadline=None)
def test_no_episode_earns_more_than_its_rewards_allow(rewards, ended, gamma):
    """A cut one that goes on with its last reward for ever included."""
    ends = np.zeros(len(rewards), dtype=bool)
    ends[-1] = ended
    low, high = RewardRange.of(np.array(rewards), ends).values(gamma)
    rest = 0.0 if ended else gamma ** len(rewards) * rewards[-1] / (1.0 - gamma)
    earned = float(np.sum(np.array(rewards) * gamma ** np.arange(len(rewards)))) + rest
    assert low - 1e-6 <= earned <= high + 1e-6
