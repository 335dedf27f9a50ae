"""Tests of the transforms of observations and rewards."""

from dataclasses import replace

import numpy as np
import pytest

from rl_training.config.blocks import RewardConfig
from rl_training.data import TransitionDataset
from rl_training.data.row_view import RowView
from rl_training.data.transforms import Transforms
from tests.helpers import generator


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


def fitted(observations, rewards=None, terminals=None, **reward):
    rows = len(observations)
    arrays = {
        "observations": observations,
        "actions": np.zeros((rows, 1), dtype=np.float32),
        "rewards": np.zeros(rows) if rewards is None else rewards,
        "next_observations": observations,
        "terminals": np.zeros(rows, dtype=bool) if terminals is None else terminals,
        "timeouts": np.arange(rows) == rows - 1,
    }
    view = RowView(TransitionDataset.from_dict(arrays))
    return Transforms.fit(view, normalize_observations=True, reward=RewardConfig(**reward))


def test_columns_of_every_scale_are_whitened():
    draw = generator(0)
    scales = np.array([1e-6, 1e-3, 1.0, 1e5])
    observations = (draw.normal(size=(4000, 4)) * scales + 100.0 * scales).astype(np.float32)
    seen = fitted(observations).observations(observations)
    assert seen.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-3)
    assert seen.std(axis=0) == pytest.approx(np.ones(4), rel=1e-3)


@pytest.mark.parametrize("value", [0.0, 45.0, 1.013e5, -3e-7])
def test_a_column_that_never_changes_becomes_0_whatever_comes_later(value):
    observations = np.stack((np.full(500, value), np.arange(500.0)), axis=1).astype(np.float32)
    transforms = fitted(observations)
    assert (transforms.observations(observations)[:, 0] == 0.0).all()
    assert transforms.observations(np.array([value + 1e4, 3.0], dtype=np.float32))[0] == 0.0


def test_far_outliers_are_bounded_and_do_not_squash_the_rest():
    observations = generator(1).normal(size=(5000, 2)).astype(np.float32)
    observations[7, 0] = -9999.0
    seen = fitted(observations).observations(observations)
    assert seen[7, 0] == -10.0
    assert np.delete(seen[:, 0], 7).std() == pytest.approx(1.0, rel=0.2)
    rare = np.zeros((5000, 1), dtype=np.float32)
    rare[::1000] = 1.0
    found = fitted(rare).observations(rare)  # an alarm that is mostly silent is no outlier, and still visible
    assert found.max() == 10.0
    assert found.min() > -0.1


def test_transforms_of_a_checkpoint_keep_the_limit_and_older_ones_have_none():
    observations = np.stack((np.full(50, 3.0), np.arange(50.0)), axis=1).astype(np.float32)
    transforms = fitted(observations)
    tensors = transforms.tensors()
    again = Transforms.from_tensors(tensors)
    probe = np.array([[5.0, 1e6]], dtype=np.float32)
    assert again.observations(probe).tolist() == transforms.observations(probe).tolist() == [[0.0, 10.0]]
    del tensors["transforms/observation_limit"]
    assert Transforms.from_tensors(tensors).observations(probe)[0, 1] > 1e4


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_automatic_rewards_have_a_spread_of_1_whatever_their_unit(scale):
    draw = generator(2)
    rewards = scale * draw.normal(-5.0, 2.0, 4000)
    observations = draw.normal(size=(4000, 1)).astype(np.float32)
    transforms = fitted(observations, rewards)
    assert transforms.rewards(rewards).std() == pytest.approx(1.0, rel=0.05)
    assert transforms.reward_shift == 0.0
    penalised = rewards.copy()
    penalised[::500] = -1000.0 * scale  # rare penalties do not shrink the rest
    assert fitted(observations, penalised).reward_scale == pytest.approx(transforms.reward_scale, rel=0.02)


def test_automatic_rewards_leave_alone_what_is_set_what_is_constant_and_sparse_ones_count():
    observations = np.arange(1000.0, dtype=np.float32)[:, None]
    rewards = np.where(np.arange(1000) % 100 == 0, 1.0, 0.0)
    assert fitted(observations, rewards).reward_scale == pytest.approx(1.0 / rewards.std())
    assert fitted(observations, np.full(1000, -2.5)).reward_scale == 1.0
    for own in ({"scale": 0.1}, {"shift": -1.0}, {"clip": [-1.0, 1.0]}, {"normalize": False}):
        transforms = fitted(observations, rewards, **own)
        assert transforms.reward_scale == own.get("scale", 1.0)


def test_transformed_rows_return_to_real_units():
    """(12 - 10) / 4 = 0.5; 90 is bounded at 10 deviations, 50; the constant column keeps its 7."""
    mean, std = np.array([10.0, 7.0], dtype=np.float32), np.array([4.0, np.inf], dtype=np.float32)
    transforms = Transforms(mean, std, 10.0, reward_scale=0.5, reward_shift=-3.0)
    seen = transforms.observations(np.array([[12.0, 7.0], [90.0, 7.0]]))
    assert seen.tolist() == [[0.5, 0.0], [10.0, 0.0]]
    assert transforms.real_observations(seen).tolist() == [[12.0, 7.0], [50.0, 7.0]]
    assert transforms.rewards(np.array([8.0])).tolist() == [1.0]
    assert transforms.real_rewards(np.array([1.0])).tolist() == [8.0]
