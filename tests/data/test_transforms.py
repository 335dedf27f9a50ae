"""Tests of the transforms of observations and rewards."""

from dataclasses import replace

import numpy as np
import pytest

from rl_training.data.transforms import Transforms


def test_values_return_to_the_units_of_the_logged_rewards():
    """A reward of 5 forever is worth 50 at gamma 0.9, however the rewards were scaled and shifted."""
    transforms = replace(Transforms.identity(2), reward_scale=0.2, reward_shift=-3.0)
    seen = transforms.rewards(np.array([5.0])) / (1.0 - 0.9)
    assert transforms.real_values(seen, 0.9) == pytest.approx([50.0])
    gammas = np.array([[0.9], [0.5]])
    values = transforms.rewards(np.full((2, 3), 5.0)) / (1.0 - gammas)
    assert transforms.real_values(values, gammas) == pytest.approx(np.array([[50.0] * 3, [10.0] * 3]))


def test_values_of_rewards_scaled_by_zero_have_no_units():
    assert np.isnan(replace(Transforms.identity(2), reward_scale=0.0).real_values(np.ones(2), 0.9)).all()
