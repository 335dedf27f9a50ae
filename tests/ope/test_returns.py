"""From values to returns, by hand: episodes that truly end, that are cut, both, and parts of them. The discount is 0.5."""

import numpy as np
import pytest

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.ope.episodes import Episodes
from rl_training.ope.returns import Line


def episodes_of(rewards, ended, numbers=None):
    """Episodes with these rewards, each truly ended or cut; those with one number are parts of one."""
    lengths = np.array([len(own) for own in rewards])
    last = np.zeros(lengths.sum(), dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    terminals = last & np.repeat(ended, lengths)
    columns = np.zeros((len(last), 1), dtype=np.float32)
    fields = {"observations": columns, "actions": columns, "next_observations": columns}
    fields |= {"rewards": np.concatenate(rewards).astype(np.float32), "terminals": terminals, "timeouts": last & ~terminals}
    found = Episodes.of(TransitionDataset.from_dict(fields), 1000)
    own = np.arange(len(lengths)) if numbers is None else np.asarray(numbers)
    object.__setattr__(found, "lengths", lengths)  # so few rows would be cut otherwise
    object.__setattr__(found, "numbers", own)
    return found


def test_episodes_that_truly_end_have_the_slope_of_their_sums():
    """1, 2 and 3 steps of 1: R = 1, 2, 3 and D = 1, 1.5, 1.75; covariance 0.75 over variance 0.875 / 3 is 18 / 7."""
    line = Line.of(episodes_of([[1.0], [1.0] * 2, [1.0] * 3], [True] * 3), 1.4, 0.5)
    assert line.slope == pytest.approx(18.0 / 7.0)
    assert line.offset == pytest.approx(2.0 - 18.0 / 7.0 * 1.4)


def test_cut_episodes_that_differ_in_every_step():
    """Two steps of d: R = 2 d, D = 1.5 d, and 1 - 0.25 of a value 2 d is earned before the cut: L (1 - gamma) = 1."""
    line = Line.of(episodes_of([[d, d] for d in (-3.0, 0.0, 1.0)], [False] * 3), -4.0 / 3.0, 0.5)
    assert line.slope == pytest.approx(1.0)
    assert line.offset + line.slope * (-4.0 / 3.0) == pytest.approx(-4.0 / 3.0)  # the mean of -6, 0 and 2
    assert line.offset + line.slope * 2.0 == pytest.approx(2.0)  # a policy that earns 1 in every step


def test_where_cut_episodes_begin_does_not_matter_to_the_slope():
    """They differ in the first of four steps alone, so R changes as D does; policies differ in all: 4 (1 - gamma) = 2."""
    line = Line.of(episodes_of([[x, 1.0, 1.0, 1.0] for x in (-2.0, 1.0, 4.0)], [False] * 3), 2.0, 0.5)
    assert line.slope == pytest.approx(2.0)
    assert line.offset + line.slope * 2.0 == pytest.approx(4.0)
    assert line.offset + line.slope * 1.0 == pytest.approx(2.0)  # half a point less in every step costs 2


def test_some_truly_end_and_some_are_cut():
    """A goal of 1 in the first or second step, or none in two: R = 1, 1, 0, 0 and D = 1, 0.5, 0, 0.

    Deviations of D are 0.625, 0.125, -0.375 twice, those of R 0.5 twice and -0.5 twice: 0.75 / 0.6875 = 12 / 11, more than
    half of 7 / 5.5 for steady differences. Of the value 1 - (0.25 + 0.25) / 4 is earned before the cuts.
    """
    line = Line.of(episodes_of([[1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]], [True, True, False, False]), 0.6, 0.5)
    assert line.slope == pytest.approx(12.0 / 11.0 * 0.875)
    assert line.offset + line.slope * 0.6 == pytest.approx(0.5)


def test_an_episode_returns_the_sum_of_its_parts():
    """Two episodes of four steps of d, in two parts each: a policy that earns 1 in every step, a value of 2, returns 4."""
    parts = episodes_of([[d, d] for d in (0.0, 0.0, 3.0, 3.0)], [False] * 4, numbers=[0, 0, 1, 1])
    line = Line.of(parts, 3.0, 0.5)
    assert line.slope == pytest.approx(2.0)
    assert line.offset + line.slope * 3.0 == pytest.approx(6.0)
    assert line.offset + line.slope * 2.0 == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("rewards", "value"), [([[1.0], [0.0, 1.0], [0.0, 0.0, 1.0]], 0.6), ([[1.0], [0.0, 3.0], [1.0, 1.0]], None)]
)
def test_where_values_say_nothing_of_returns_there_is_no_slope(rewards, value):
    """A goal that every episode reaches returns 1 however soon; and without a value of the log nothing is mapped."""
    line = Line.of(episodes_of(rewards, [True] * 3), value, 0.5)
    assert (line.slope, line.offset) == (0.0, np.mean([sum(own) for own in rewards]))
