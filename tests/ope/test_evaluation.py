"""All estimators together, on a plant whose values are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.ope.dynamics import DynamicsOptions
from rl_training.ope.episodes import Episodes
from rl_training.ope.evaluation import OPEOptions, diverges_text, evaluate, more_text
from rl_training.ope.fqe import FQEOptions
from tests.ope.plants import linear, logged

SMALL = OPEOptions(
    0.95,
    FQEOptions(steps=300, turns=3, ensemble=2, widths=(64, 64), rate=3e-3),
    DynamicsOptions(steps=600, ensemble=2, widths=(64, 64), rate=3e-3, rollouts=50),
    density_steps=200,
)


@pytest.fixture(scope="module")
def found():
    """Under a gain of 2 the plant runs away from 0, to where the log never was."""
    return evaluate(Episodes.of(logged(), 100_000), [linear(-0.4), linear(2.0)], SMALL, torch.device("cpu"))


def test_a_policy_that_goes_where_nobody_was_cannot_be_told(found):
    near, away = found[0]
    places = "of where it goes in the model is beyond what was logged"
    assert not any(places in reason for reason in near.joint.reasons)
    assert away.joint.verdict == "cannot tell"
    for name in ("fqe", "model"):
        assert any(places in reason for reason in away.estimates[name].reasons)
        assert away.estimates[name].std > 2.0 * near.estimates[name].std


def test_the_value_of_the_log_stands_for_what_it_returned(found):
    """Episodes of 40 steps are cut: values go on, returns do not."""
    behaviour = found[1]
    line, value = behaviour.line, behaviour.value.value
    assert line.offset + line.slope * value == pytest.approx(behaviour.returns.mean())
    assert line.slope >= 40 * (1.0 - SMALL.gamma)


def test_no_interval_reaches_beyond_what_the_rewards_allow():
    """A reward of 1 at true ends alone: values are from 0 to 1, also where nobody was."""
    data = logged(episodes=60, length=20)
    ends = data.timeouts & (np.arange(len(data)) // 20 % 2 == 0)
    goal = replace(data, rewards=ends.astype(np.float32), terminals=ends, timeouts=data.timeouts & ~ends)
    (found,), behaviour = evaluate(Episodes.of(goal, 100_000), [linear(2.0)], SMALL, torch.device("cpu"))
    for one in (behaviour.value, found.joint, *found.estimates.values()):
        assert 0.0 <= one.interval[0] <= one.interval[1] <= 1.0


@pytest.mark.parametrize(
    ("growth", "text"),
    [
        (1.0, "an error does not shrink"),
        (1.00005, "an error does not shrink"),
        (1.00031, "an error grows by 0.031% each time"),
        (1.056, "an error grows by 5.6% each time"),
        (1.997, "an error grows 2-fold each time"),
        (3.24, "an error grows 3.2-fold each time"),
    ],
)
def test_digits_show_that_an_error_grows(growth, text):
    assert diverges_text(growth) == f"repeated evaluation would diverge ({text})"


def test_what_is_less_is_not_more_by_a_negative_number():
    assert (more_text(-264.2), more_text(6.93), more_text(0.0)) == ("264 less", "6.93 more", "0 more")
