"""No estimate and no verdict depends on the units of rewards and observations."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.ope.episodes import Episodes
from rl_training.ope.evaluation import evaluate
from tests.ope.plants import linear, logged
from tests.ope.test_evaluation import SMALL

GAINS = (-0.4, -0.1)


def answers(reward=1.0, observation=1.0):
    """What is found of two policies and of the log in other units."""
    episodes = Episodes.of(logged(scale=observation), 100_000)
    episodes = replace(episodes, rewards=reward * episodes.rewards)
    policies = [linear(gain, scale=observation) for gain in GAINS]
    found, behaviour = evaluate(episodes, policies, SMALL, torch.device("cpu"))
    opinions = [behaviour.value, *(one for each in found for one in (each.joint, *each.estimates.values()))]
    line = (behaviour.line.slope, behaviour.line.offset / reward)
    shares = [share for each in found for share in (each.support.beyond, each.outside)]
    numbers = [number / reward for one in opinions for number in (one.value, one.std, *one.interval)]
    return np.array([*numbers, *line, *shares]), [(one.verdict, len(one.reasons)) for one in opinions]


@pytest.fixture(scope="module")
def usual():
    return answers()


@pytest.mark.parametrize(("reward", "observation"), [(1e-9, 1.0), (1e9, 1.0), (1.0, 2.0**-30), (1.0, 2.0**30)])
def test_other_units_change_nothing_but_the_unit(usual, reward, observation):
    """A power of two leaves the digits of observations, which are in single precision, as they are."""
    numbers, verdicts = answers(reward, observation)
    np.testing.assert_allclose(numbers, usual[0], rtol=1e-3, atol=1e-6)
    assert verdicts == usual[1]


def test_a_model_of_small_rewards_tells_policies_apart():
    numbers, _ = answers(reward=1e-9)
    model = numbers[4:][4 * 2 :: 4 * 5][:2]  # of the log, then of each policy: joint, fqe, model, ...
    assert abs(model[0] - model[1]) > 0.1
