"""Random steps decide what is scaled: only what is far from ordinary size, and by hand-computed numbers."""

import numpy as np
import pytest

from rl_training.config.blocks import RewardConfig
from rl_training.data.transforms import Transforms
from rl_training.envs.scale.ordinary_scale import RandomSteps, offset_warning, ordinary_scale, scale_note

PLAIN = RewardConfig()
WAVE = np.sin(np.arange(1000.0))


def steps_of(*columns, rewards=None, high=np.inf):
    """Random steps with these observations, each for a thousand steps."""
    observations = np.stack([np.broadcast_to(column, 1000) for column in columns], axis=1).astype(np.float32)
    rewards = np.ones(1000, dtype=np.float32) if rewards is None else np.asarray(rewards, dtype=np.float32)
    bound = np.broadcast_to(np.float32(high), len(columns))
    return RandomSteps(observations, rewards, -bound, bound)


def scaled(steps, normalize="auto", reward=PLAIN):
    """Which columns are changed, and the scale of rewards."""
    found = ordinary_scale(steps, normalize, reward)
    return ((found.observation_mean != 0.0) | (found.observation_std != 1.0)).tolist(), found


def test_only_columns_far_from_ordinary_size_are_whitened():
    columns = (WAVE, 4.0 * WAVE, 0.01 * WAVE, 101325.0 + 50.0 * WAVE, 293.0 + WAVE, 1e-6 * WAVE, 0.0 * WAVE, 3.0)
    changed, found = scaled(steps_of(*columns))
    assert changed == [False, False, False, True, True, True, False, False]
    deviation = np.sqrt(0.5)
    assert found.observation_mean[3:6] == pytest.approx([101325.0, 293.0, 0.0], abs=0.1)
    assert found.observation_std[3:6] == pytest.approx([50.0 * deviation, deviation, 1e-6 * deviation], rel=0.01)
    seen = found.observations(np.stack([101375.0 * np.ones(8)]))
    assert seen[0, 3] == pytest.approx(np.sqrt(2.0), rel=0.02)
    assert np.isinf(found.observation_limit)  # random steps show little of what is to come


def test_what_is_nearly_large_is_whitened_beside_what_is_large_and_otherwise_left():
    """A position and its goal, both in degrees, of which only one was seen beyond 20: their difference is what matters."""
    assert scaled(steps_of(19.0 * WAVE, 19.0 * WAVE, WAVE))[0] == [False, False, False]
    assert scaled(steps_of(25.0 * WAVE, 19.0 * WAVE, WAVE))[0] == [True, True, False]


def test_a_small_column_that_may_grow_is_left_alone():
    """A position may begin near 0 and go far; its space says how far."""
    assert scaled(steps_of(1e-6 * WAVE, high=5.0))[0] == [False]
    assert scaled(steps_of(1e-6 * WAVE, high=1e-5))[0] == [True]
    assert scaled(steps_of(1e5 * WAVE, high=5.0))[0] == [True]


def test_numerical_noise_is_no_small_observation():
    assert scaled(steps_of(1e-17 * WAVE, 1e-12 * WAVE, 1e-9 * WAVE))[0] == [False, False, True]


def test_one_huge_reading_does_not_make_a_column_large():
    column = WAVE.copy()
    column[17] = -9999.0
    assert scaled(steps_of(column))[0] == [False]


def test_true_whitens_every_column_and_constants_keep_their_own_size():
    changed, found = scaled(steps_of(0.5 * WAVE, 0.0, 7.0, -1e5), normalize=True)
    assert changed == [True, False, True, True]
    assert found.observation_std == pytest.approx([0.5 * np.sqrt(0.5), 1.0, 7.0, 1e5], rel=0.01)
    assert found.observations(np.array([[0.0, 2.0, 14.0, -2e5]]))[0, 1:] == pytest.approx([2.0, 1.0, -1.0])


def test_false_leaves_observations_and_a_given_reward_setting_applies_as_it_is():
    steps = steps_of(1e5 * WAVE, rewards=1e4 * WAVE)
    changed, found = scaled(steps, normalize=False)
    assert (changed, found.reward_scale) == ([False], pytest.approx(1e-3, rel=0.01))
    assert ordinary_scale(steps, "auto", RewardConfig(scale=3.0)).reward_scale == 3.0
    assert ordinary_scale(steps, "auto", RewardConfig(normalize=False)).reward_scale == 1.0


@pytest.mark.parametrize(
    ("rewards", "scale"),
    [
        (10.0 * WAVE, 1.0),
        (np.zeros(1000), 1.0),
        (-1e4 * np.ones(1000), 1e-3),
        (1e-4 * np.ones(1000), 1e5),
        (np.where(np.arange(1000) == 3, 1.0, 0.0), 1.0),  # a goal that was reached once
        (np.where(np.arange(1000) == 3, 500.0, 0.0), 10 / 500),
        (np.where(np.arange(1000) < 20, -1000.0, -0.3), 1.0),  # rare falls
        (np.where(np.arange(1000) == 3, 1.0, -0.001), 100.0),  # small costs until the goal, which stays ordinary
        (np.where(np.arange(1000) == 3, 100.0, -0.01), 1.0),
        (np.where(np.arange(1000) == 3, 99.0, -0.01), 1.0),
        (np.where(np.arange(1000) == 3, 1e-3, -1e-5), 1e5),
    ],
)
def test_rewards_are_scaled_by_their_usual_size_where_that_is_far_from_one(rewards, scale):
    assert ordinary_scale(steps_of(WAVE, rewards=rewards), "auto", PLAIN).reward_scale == pytest.approx(scale)


def test_without_a_step_nothing_is_known_and_nothing_changed():
    nothing = RandomSteps(np.empty((0, 2), dtype=np.float32), np.empty(0, dtype=np.float32), np.zeros(2), np.zeros(2))
    found = ordinary_scale(nothing, True, PLAIN)
    assert [value.tolist() for value in found.tensors().values()] == [
        value.tolist() for value in Transforms.identity(2).tensors().values()
    ]


def test_the_note_names_what_is_scaled_and_how_to_leave_it():
    assert scale_note(Transforms.identity(2), ["a", "b"], 1000) is None
    found = ordinary_scale(steps_of(WAVE, 101325.0 + 50.0 * WAVE, rewards=-1e4 * np.ones(1000)), "auto", PLAIN)
    assert scale_note(found, ["a", "p"], 1000) == (
        "scale, by 1,000 random steps before the run: whitens `p` 1.01e+05 +- 35 (off: `normalize_observations: false`) and "
        "multiplies rewards by 0.001 (off: `reward: {normalize: false}`)"
    )
    many = ordinary_scale(steps_of(*[1e5 + WAVE] * 9), "auto", PLAIN)
    assert "`8`" not in scale_note(many, "012345678", 1000)
    assert "and 3 more" in scale_note(many, "012345678", 1000)


def test_a_large_constant_in_the_rewards_is_told_with_what_to_do():
    assert "`reward: {shift: 10000}`" in offset_warning((WAVE - 1e4).astype(np.float32))
    for fine in (WAVE, 1e4 * WAVE, WAVE - 90.0, 500.0 * np.ones(1000), np.empty(0)):
        assert offset_warning(fine.astype(np.float32)) is None
