from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from rl_training.envs.controllers import pendulum_swing_up
from rl_training.envs.environments import EnvBatch, infer_env_spaces, make_env, reset_seeds
from rl_training.envs.recipes import make_dataset
from rl_training.errors import ConfigError


def recipe(**changes):
    return SimpleNamespace(**{"kind": "random", "size": 500, "seed": 0, "noise": 0.0, **changes})


@pytest.mark.parametrize("kind", ["random", "scripted"])
def test_recipes_are_deterministic_and_honest_about_ends(kind):
    data = make_dataset("Pendulum-v1", recipe(kind=kind, noise=0.3))
    assert data.fingerprint == make_dataset("Pendulum-v1", recipe(kind=kind, noise=0.3)).fingerprint
    assert data.fingerprint != make_dataset("Pendulum-v1", recipe(kind=kind, noise=0.3, seed=1)).fingerprint
    assert len(data) == 500
    assert [episode.length for episode in data.episodes()] == [200, 200, 100]
    assert not data.terminals.any()  # every end of Pendulum is a time limit
    assert np.array_equal(data.observations[1:200], data.next_observations[:199])
    assert data.spaces.action_high.tolist() == [2.0]


def test_a_stop_is_heard_within_an_episode():
    calls = []
    make_dataset("Pendulum-v1", recipe(size=450), check=lambda: calls.append(1))
    assert len(calls) == 5

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_dataset("Pendulum-v1", recipe(), check=stop)


@pytest.mark.parametrize("kind", ["random", "scripted"])
def test_the_rows_are_those_of_the_environment_itself(kind):
    data = make_dataset("Pendulum-v1", recipe(kind=kind, noise=0.3))
    env = gymnasium.make("Pendulum-v1")
    for row in range(len(data)):
        if row % 200 == 0:
            seen, _ = env.reset(seed=reset_seeds(0, f"recipe/{kind}", row // 200, 1)[0])
        assert np.array_equal(seen, data.observations[row])
        seen, reward, terminated, truncated, _ = env.step(data.actions[row].copy())
        assert np.array_equal(seen, data.next_observations[row])
        assert (np.float32(reward), terminated) == (data.rewards[row], data.terminals[row])
        assert truncated == data.timeouts[row] or row == len(data) - 1


def test_random_actions_fill_the_bounds():
    actions = make_dataset("Pendulum-v1", recipe(size=2000)).actions
    assert actions.min() < -1.98
    assert actions.max() > 1.98
    assert abs(actions.mean()) < 0.1


def test_a_longer_recipe_begins_with_the_shorter():
    short, long = make_dataset("Pendulum-v1", recipe()), make_dataset("Pendulum-v1", recipe(size=700))
    assert np.array_equal(short.actions, long.actions[:500])
    assert np.array_equal(short.observations[:400], long.observations[:400])


def test_the_scripted_controller_swings_up_and_balances():
    with EnvBatch("Pendulum-v1", 20) as envs:
        envs.reset_all(reset_seeds(0, "test", 0, 20))
        returns, heights = np.zeros(20), []
        while envs.running.any():
            rewards, _, _ = envs.step(np.stack([pendulum_swing_up(row) for row in envs.observations]))
            returns += rewards
            heights.append(envs.observations[:, 0].copy())
    assert returns.mean() > -200
    assert np.min(heights[-50:]) > 0.99  # upright in every episode at the end


def test_noise_makes_the_controller_worse():
    quiet = make_dataset("Pendulum-v1", recipe(kind="scripted", size=2000)).statistics()["return_mean"]
    loud = make_dataset("Pendulum-v1", recipe(kind="scripted", size=2000, noise=1.5)).statistics()["return_mean"]
    assert loud < quiet - 100


def test_wrong_names_and_spaces_are_refused():
    with pytest.raises(ConfigError, match="unknown recipe 'randm'. Did you mean `random`"):
        make_dataset("Pendulum-v1", recipe(kind="randm"))
    with pytest.raises(ConfigError, match="no scripted controller for 'MountainCarContinuous-v0'"):
        make_dataset("MountainCarContinuous-v0", recipe(kind="scripted"))
    with pytest.raises(ConfigError, match="unknown environment 'Pendulum-v9'. Did you mean `Pendulum-v1`"):
        make_env("Pendulum-v9")
    with pytest.raises(ConfigError, match="names a module to import"):
        make_env("os:Pendulum-v1")
    with pytest.raises(ConfigError, match=r"CartPole-v1: action space Discrete\(2\) is not supported"):
        infer_env_spaces("CartPole-v1")
