"""Environments that are registered as vectorised ones alone."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rl_training.config.environment import EnvSource, WrapperConfig
from rl_training.envs.description import describe_env
from rl_training.envs.environments import infer_env_spaces, make_env, time_limit
from rl_training.envs.given import given_source
from rl_training.errors import ConfigError
from tests.envs.own_environments import Drift, Nested
from tests.helpers import assert_same_run, die_at_each, tiny_run


def fleet(num_envs, max_episode_steps=50, autoreset_mode=AutoresetMode.NEXT_STEP, kind=Drift, **kwargs):
    single = partial(kind, **kwargs)
    return SyncVectorEnv([lambda: TimeLimit(single(), max_episode_steps)] * num_envs, autoreset_mode=autoreset_mode)


def without_choice(num_envs, max_episode_steps):
    return fleet(num_envs, max_episode_steps)


def unstated(num_envs, max_episode_steps):
    made = fleet(num_envs, max_episode_steps)
    made.metadata = {}
    return made


def always_four(num_envs, max_episode_steps, autoreset_mode):
    return fleet(4, max_episode_steps, autoreset_mode)


VECTORISED = {
    "Tests/Fleet-v0": fleet,
    "Tests/NestedFleet-v0": partial(fleet, kind=Nested),
    "Tests/WithoutChoice-v0": without_choice,
    "Tests/Unstated-v0": unstated,
    "Tests/AlwaysFour-v0": always_four,
}


@pytest.fixture(autouse=True, scope="module")
def registered():
    for env_id, made_by in VECTORISED.items():
        gymnasium.register(env_id, vector_entry_point=made_by, max_episode_steps=50)
    yield
    for env_id in VECTORISED:
        del gymnasium.registry[env_id]


def test_a_run_is_that_in_the_single_environment(tmp_path):
    """Online with several members, evaluated, cut and resumed by replaying, and in worker processes."""
    own = {"seeds": [0, 1], "seed": 0}
    tiny_run(tmp_path / "single", "sac", env_id="Tests/Drift-v0", **own)
    tiny_run(tmp_path / "vectorised", "sac", env_id="Tests/Fleet-v0", workers=2, **own)
    assert_same_run(tmp_path / "single", tmp_path / "vectorised")
    die_at_each(lambda **kwargs: tiny_run(tmp_path / "cut", "sac", env_id="Tests/Fleet-v0", **own, **kwargs), [("log", 70)])
    assert_same_run(tmp_path / "single", tmp_path / "cut")


def test_arguments_limit_wrappers_and_nested_observations():
    source = EnvSource("Tests/Fleet-v0", {"size": 3}, 7, (WrapperConfig(name="TimeAwareObservation"),))
    assert (infer_env_spaces(source).observation_dim, time_limit(source)) == (4, 7)
    env = make_env(source)
    env.reset(seed=0)
    assert [bool(env.step(np.zeros(1, dtype=np.float32))[3]) for _ in range(7)] == [False] * 6 + [True]
    assert make_env("Tests/NestedFleet-v0").reset(seed=0)[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    facts = describe_env("Tests/Fleet-v0", seconds=0.01)
    assert (facts.repeats, facts.ended_after, facts.refused) == (True, 50, None)
    with pytest.raises(ConfigError, match="cannot be created with wings=2: TypeError"):
        make_env(EnvSource("Tests/Fleet-v0", {"wings": 2}))


@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("Tests/WithoutChoice-v0", r"autoreset cannot be switched off: .* \(in its metadata it is NextStep\)"),
        ("Tests/Unstated-v0", r"autoreset cannot be switched off: .* \(in its metadata it is not stated\)"),
        ("Tests/AlwaysFour-v0", "makes 4 copies where one is asked for"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*AutoresetMode metadata")
def test_what_cannot_be_used_is_refused_with_the_reason(env_id, says):
    with pytest.raises(ConfigError, match=f"{env_id}' is only vectorised, and .*{says}"):
        make_env(env_id)


def test_a_function_that_makes_several_at_once_is_refused():
    with pytest.raises(ConfigError, match=r"must inherit from the gymnasium.Env class, actual class: .*SyncVectorEnv"):
        make_env(given_source(partial(fleet, 2)))
