"""Rare large steps that a command explains are motion, and no end without a mark; resets in the same log still are jumps."""

import numpy as np
import pytest

from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from rl_training.doctor.jumps import Jumps
from tests.helpers import generator

EPISODES, LENGTH = 60, 100


def cart(every):
    """A cart that is held gently, and in some episodes pushed at random, up to ten times as hard; without any noise."""
    draw = generator(0)
    observations, actions, following = [], [], []
    for episode in range(EPISODES):
        place, speed = draw.uniform(-2, 2), 0.0
        for _ in range(LENGTH):
            gentle = np.clip(0.1 * (1 - place) - 0.15 * speed + 0.006 * draw.normal(), -0.3, 0.3)
            push = draw.uniform(-1, 1) if episode % every == 0 else gentle
            observations.append((place, speed))
            actions.append([push])
            speed = 0.95 * speed + 0.2 * push
            place += 0.1 * speed
            following.append((place, speed))
    ends = np.arange(1, EPISODES * LENGTH + 1) % LENGTH == 0
    values = {"observations": observations, "actions": actions, "next_observations": following}
    arrays = {name: np.array(column, dtype=np.float32) for name, column in values.items()}
    rewards = (np.abs(arrays["observations"][:, 0] - 1) < 0.15).astype(np.float32)
    return {**arrays, "rewards": rewards, "terminals": np.zeros(len(ends), dtype=bool), "timeouts": ends}


def missing_ends(arrays):
    return [finding.evidence for finding in examine(read_dataset(arrays)) if finding.code == "missing-ends"]


@pytest.mark.parametrize("every", [2, 10, 30])
def test_large_steps_that_the_command_explains_are_no_jumps(every):
    arrays = cart(every)
    assert missing_ends(dict(arrays)) == []
    del arrays["next_observations"]
    assert missing_ends(arrays) == []


@pytest.mark.parametrize("every", [2, 10, 30])
def test_resets_in_the_same_log_are_jumps(every):
    """Three ends lose their marks, after which the cart begins more than a metre away."""
    arrays = cart(every)
    del arrays["next_observations"]
    away = np.append(np.abs(np.diff(arrays["observations"][:, 0])) > 1.0, False)
    unmarked = np.flatnonzero(arrays["timeouts"] & away)[:3]
    arrays["timeouts"][unmarked] = False
    (found,) = missing_ends(arrays)
    assert f"observation column 0 jumps after 3 rows (first: {', '.join(map(str, unmarked))})" in found


def test_a_step_is_a_jump_where_the_command_explains_less_than_half_of_it():
    """A position that moves by its command, in steps of 0.01 but for one of 1."""
    commands = np.where(np.arange(400) % 2, 0.01, -0.01)
    commands[200] = 1.0
    places = np.cumsum(np.append(0.0, commands))[:, None]
    rows = np.setdiff1d(np.arange(399), [200])  # the model has not seen the large one
    jumps = Jumps(places, commands[:, None], rows, np.array([1e-6]))
    at, after = np.array([200]), places[[201]]
    assert not jumps.at(at, after)
    assert not jumps.at(at, after - 0.2)  # 0.8 of the expected 1: 0.2 is not explained
    assert not jumps.at(at, after - 0.3)  # 0.7: 0.3
    assert jumps.at(at, after - 0.4)  # 0.6: 0.4, more than half
    assert jumps.at(at, after - 2.0)  # the other way
