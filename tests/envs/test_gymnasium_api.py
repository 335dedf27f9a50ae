"""Environments that do not keep to Gymnasium's API: what they return is taken where it is clear, else told in one line."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rl_training.envs.environments import make_env, reset_env, step_env
from rl_training.envs.given import given_source
from rl_training.errors import ConfigError
from tests.envs.own_environments import Drift


class Odd(Drift):
    """Returns what it is given instead of what Gymnasium's API requires."""

    def __init__(self, reset=None, step=None):
        super().__init__()
        self.first, self.next = reset, step

    def reset(self, *, seed=None, options=None):
        usual = super().reset(seed=seed)
        return self.first(*usual) if self.first else usual

    def step(self, action):
        return self.next(*super().step(action))


class Unseeded(Odd):
    """Of the old API."""

    def reset(self):
        return super().reset()


def first_step(env):
    made = make_env(env)
    reset_env(made, env, 0)
    return step_env(made, env, np.zeros(1, dtype=np.float32))


STEP_API = r"step\(action\) must return observation, reward, terminated, truncated, info"
RESET_API = r"reset\(seed=..., options=...\) must return observation, info"


@pytest.mark.parametrize("limit", [None, 9])  # a time limit is a wrapper that takes results apart
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (partial(Odd, step=lambda o, r, d, t, i: (o, r, d, i)), rf"{STEP_API} \(.*4"),
        (partial(Odd, step=lambda o, r, d, t, i: None), rf"{STEP_API} \(.*NoneType"),
        (partial(Odd, step=lambda o, r, d, t, i: (o, r, None, t, i)), "got None as terminated or truncated"),
        (partial(Odd, step=lambda o, r, d, t, i: (o, r, d, np.array([t, t]), i)), "as terminated or truncated"),
        (partial(Odd, step=lambda o, r, d, t, i: (o, None, d, t, i)), "a number and two truth values among them"),
        (partial(Odd, step=lambda o, r, d, t, i: ([[1.0], [1.0, 2.0]], r, d, t, i)), "returned a list as observation"),
        (partial(Odd, reset=lambda o, i: o), rf"{RESET_API} \(it returned a ndarray\)"),
        (
            partial(Odd, reset=lambda o, i: (None, i)),
            "returned a NoneType as observation; its space declares numbers of shape",
        ),
        (Unseeded, rf"{RESET_API} \(.*unexpected keyword argument 'seed'"),
    ],
)
def test_what_is_not_gymnasium_s_api_is_said_in_one_line(make, says, limit):
    with pytest.raises(ConfigError, match=says):
        first_step(replace(given_source(make), max_episode_steps=limit))


@pytest.mark.parametrize("flags", [(np.True_, np.False_), (1, 0), (np.array([True]), np.array(0.0))])
def test_other_ways_to_write_a_truth_value_are_taken(flags):
    _, _, *got = first_step(given_source(partial(Odd, step=lambda o, r, d, t, i: (o, r, *flags, i))))
    assert (got, [type(one) for one in got]) == ([True, False], [bool, bool])


def test_an_error_of_the_environment_is_not_taken_for_a_broken_api():
    def unpack_too_many(*_):
        _one, _two = (1, 2, 3)

    with pytest.raises(ConfigError, match=r"failed in step\(\[0.0\]\): ValueError: too many values.*test_gymnasium_api.py"):
        first_step(given_source(partial(Odd, step=unpack_too_many)))
