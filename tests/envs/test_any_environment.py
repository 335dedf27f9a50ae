"""Environments with arguments, time limits, wrappers and nested observations; functions, instances, imports."""

import json
import sys
from dataclasses import replace
from typing import get_args

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import tests.envs.own_environments
from rl_training import IQL, SAC, load_dataset
from rl_training.cli.options import named_env
from rl_training.config.environment import EnvSource, WrapperConfig, WrapperName
from rl_training.config.loading import make_config
from rl_training.envs.description import Outside, describe_env
from rl_training.envs.environments import (
    EnvBatch,
    check_fits,
    infer_env_spaces,
    make_env,
    reset_env,
    step_env,
    time_limit,
)
from rl_training.envs.given import env_settings, given_source, register_env
from rl_training.errors import ConfigError
from tests.helpers import ROOT, Notes, call_cli, run_cli, run_values, small_dataset, tiny_run

NESTED = (
    *("goal.0", "goal.1[0,0]", "goal.1[0,1]", "goal.1[1,0]", "goal.1[1,1]"),
    *("pose.angle[0]", "pose.angle[1]", "pose.speed"),
)


def test_arguments_limit_and_wrappers_make_the_environment():
    wrappers = (
        WrapperConfig(name="TimeAwareObservation"),
        WrapperConfig(name="RescaleAction", kwargs={"min_action": -5.0, "max_action": 5.0}),
    )
    source = EnvSource("Tests/Drift-v0", {"size": 3}, 7, wrappers)
    spaces = infer_env_spaces(source)
    assert (spaces.observation_dim, spaces.action_high.tolist(), time_limit(source)) == (4, [5.0], 7)
    env = make_env(source)
    env.reset(seed=0)
    assert [env.step(np.zeros(1, dtype=np.float32))[3] for _ in range(7)] == [False] * 6 + [True]
    assert str(source) == "Tests/Drift-v0"


def test_nested_observations_are_flattened_in_alphabetical_order():
    env = make_env("Tests/Nested-v0")
    observation, _ = env.reset(seed=0)
    assert observation.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert infer_env_spaces("Tests/Nested-v0").observation_names == NESTED
    with pytest.raises(ConfigError, match="observation `camera` is an image"):
        make_env("Tests/Pictures-v0")


def test_the_order_travels_with_the_run(tmp_path):
    tiny_run(tmp_path / "run", "sac", env_id="Tests/Nested-v0")
    model = SAC.load(tmp_path / "run")
    assert model.policy.spaces.observation_names == NESTED
    by_name = dict(zip(NESTED, range(8), strict=True))
    assert model.predict(by_name)[0].tolist() == model.predict(list(range(8)))[0].tolist()
    own = gymnasium.make("Tests/Nested-v0").reset(seed=0)[0]
    assert model.predict(own)[0].tolist() == model.predict(list(range(8)))[0].tolist()
    other = infer_env_spaces("Tests/Nested-v0")
    turned = type(other)(8, 1, other.action_low, other.action_high, NESTED[::-1])
    with pytest.raises(ConfigError, match="in another order"):
        check_fits(turned, other, "Tests/Nested-v0")


def test_a_function_is_registered_under_one_id():
    def made():
        return gymnasium.make("Pendulum-v1")

    first = register_env(made)
    assert first == register_env(made)
    assert register_env(lambda: gymnasium.make("Pendulum-v1")) != first
    assert infer_env_spaces(given_source(made)).observation_dim == 3
    with pytest.raises(ConfigError, match="register_env"):
        make_env("python/somewhere.else")


def test_a_function_is_known_by_the_limit_of_what_it_makes():
    assert time_limit(given_source(lambda: gymnasium.make("Pendulum-v1"))) == 200
    assert time_limit(given_source(lambda: gymnasium.wrappers.TimeLimit(tests.envs.own_environments.Drift(), 7))) == 7
    assert time_limit(given_source(tests.envs.own_environments.Drift)) is None
    assert time_limit(given_source(lambda: 1 / 0)) is None


def test_a_limit_that_is_an_argument_is_that_of_the_run():
    """What a function makes by default is neither the limit of what it makes of other arguments nor cut by it."""

    def made(limit=5):
        return gymnasium.wrappers.TimeLimit(tests.envs.own_environments.Drift(), limit)

    source = replace(given_source(made), kwargs={"limit": 9})
    assert (time_limit(given_source(made)), time_limit(source)) == (5, 9)
    with EnvBatch(source, 1) as envs:
        envs.reset(0, 0)
        cut = [bool(envs.step(np.zeros((1, 1), dtype=np.float32))[2][0]) for _ in range(9)]
    assert cut == [False] * 8 + [True]


def test_registering_a_function_makes_nothing():
    """What it makes may cost much, be no environment at all, or fail when it is closed: who needs one says so."""
    made = []
    register_env(lambda: made.append(1))
    assert made == []


def test_the_id_of_a_run_means_its_environment():
    own = EnvSource("Tests/Drift-v0", {"size": 3}, 7)
    assert named_env("Tests/Drift-v0", None, own) == own
    changed = named_env("Tests/Drift-v0", "{at: 5}", own)
    assert (dict(changed.kwargs), changed.max_episode_steps) == ({"size": 3, "at": 5}, 7)
    assert (str(other := named_env("Pendulum-v1", None, own)), other.max_episode_steps) == ("Pendulum-v1", None)


def test_an_instance_is_made_again_from_its_spec():
    wrapped = gymnasium.wrappers.TimeAwareObservation(gymnasium.make("Tests/Drift-v0", size=3, max_episode_steps=9))
    source = given_source(wrapped)
    assert (source.env_id, dict(source.kwargs), source.max_episode_steps) == ("Tests/Drift-v0", {"size": 3}, 9)
    assert [wrapper.name for wrapper in source.wrappers] == ["TimeAwareObservation"]
    assert infer_env_spaces(source).observation_dim == 4
    free = gymnasium.wrappers.TransformReward(gymnasium.make("Pendulum-v1"), lambda reward: 2.0 * reward)
    assert given_source(free).env_id.startswith("python/")
    with pytest.raises(ConfigError, match="has no spec"):
        given_source(tests.envs.own_environments.Drift())
    with pytest.raises(ConfigError, match="is not an environment"):
        given_source(3)


def test_python_takes_functions_and_instances(tmp_path):
    online = SAC(lambda: gymnasium.make("Pendulum-v1"), total_timesteps=20, eval_episodes=1, learning_starts=5)
    assert online.learn(20).evaluate(1)["return_mean"] < 0.0
    data = small_dataset(observation_dim=2, action_dim=1)
    model = IQL(gymnasium.make("Tests/Drift-v0", size=2), dataset=data, eval_episodes=1, run_dir=tmp_path / "run").learn(5)
    assert model.config.env_kwargs == {"size": 2}
    assert len(model.evaluate(2, env_id=lambda: gymnasium.make("Tests/Drift-v0"))["returns"]) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"env_wrappers": ["RecordVideo"]}, "env_wrappers"),
        ({"env_wrappers": [{"name": "ClipReward", "kwargs": {"limit": 1}}]}, "cannot be created with ClipReward"),
        ({"env_kwargs": {"wings": 2}}, "cannot be created with wings=2"),
        ({"max_episode_steps": 0}, "max_episode_steps"),
        ({"workers": -1}, "`auto` or a whole number"),
        ({"workers": "many"}, "`auto` or a whole number"),
        ({"env_id": "my_module:Drift-v0"}, "use --import my_module and the bare id 'Drift-v0'"),
    ],
)
def test_wrong_settings_are_named(changes, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        tiny_run(tmp_path / "run", "sac", **changes)


def test_a_finetune_has_its_own_environment():
    block = {"env_steps": 10, "env_id": "Tests/Drift-v0", "env_kwargs": {"size": 3}}
    config = make_config(run_values("iql", finetune=block))
    assert (str(config.environment), str(config.final_environment)) == ("Pendulum-v1", "Tests/Drift-v0")
    assert dict(config.final_environment.kwargs) == {"size": 3}
    with pytest.raises(ConfigError, match=r"describe `finetune.env_id`"):
        make_config(run_values("iql", finetune={"env_steps": 10, "max_episode_steps": 5}))


def test_a_description_tells_what_training_would_do():
    facts = describe_env("Tests/Nested-v0", seconds=0.01)
    assert (facts.observations, facts.time_limit, facts.repeats, facts.refused) == (list(NESTED), 50, True, None)
    refused = describe_env("CartPole-v1")
    assert "Discrete(2) is not supported" in refused.refused
    assert refused.steps_per_second is None


class Wide(tests.envs.own_environments.Drift):
    """Its observations are within (2, 2.25), and its space is narrower; it may fail at a step."""

    def __init__(self, failing=False):
        super().__init__("raise" if failing else "")
        self.observation_space = Box(np.float32([0.0, 2.125]), np.float32([1.0, 3.0]))

    def reset(self, **seed):
        super().reset(**seed)
        return np.float32([2.25, 2.0]), {}

    def step(self, action):
        _, reward, *rest = super().step(action)
        return np.float32([2.0, 2.125]), reward, *rest


def test_a_description_tells_which_observations_leave_their_space(capsys):
    gymnasium.register("Tests/Wide-v0", entry_point=Wide, max_episode_steps=50)
    expected = [Outside("observation 1", 2.125, 2.0), Outside("observation 0", 1.0, 2.25)]
    assert describe_env("Tests/Wide-v0", seconds=0.01).outside == expected
    text = call_cli(capsys, "env", "Tests/Wide-v0").stdout
    assert "`observation 1` was 0.125 below its bound 2.125, `observation 0` was 1.25 above its bound 1" in text
    refused = json.loads(call_cli(capsys, "env", "Tests/Wide-v0", "--env-kwargs", "{failing: true}", "--json", code=2).stdout)
    assert "the motor is off" in refused["refused"]
    assert [one["reached"] for one in refused["outside"]] == [2.0, 2.25]  # what was found before it failed
    assert describe_env("Pendulum-v1", seconds=0.01).outside == []


def test_an_environment_that_training_would_refuse_is_a_user_error(capsys):
    done = call_cli(capsys, "env", "CartPole-v1", code=2)
    assert "time limit   500 steps" in done.stdout
    assert "would refuse it" in done.stdout
    assert done.stderr == ""


OWN_MODULE = """
import gymnasium, numpy as np
from gymnasium.spaces import Box

class Tank(gymnasium.Env):
    observation_space, action_space = Box(-10.0, 10.0, (1,)), Box(0.0, 4.0, (1,))
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, leak=0.1, render_mode=None):
        self.leak, self.render_mode = leak, render_mode

    def render(self):
        picture = np.full((60, 40, 3), 255, dtype=np.uint8)
        picture[60 - int(min(max(self.level, 0.0), 5.0) * 12) :] = (60, 120, 200)
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = self.np_random.uniform(0.0, 5.0)
        return np.array([self.level], dtype=np.float32), {}

    def step(self, action):
        self.level += 0.1 * float(action[0]) - self.leak * self.level
        return np.array([self.level], dtype=np.float32), -abs(self.level - 2.0), False, False, {}

gymnasium.register(id="Tank-v0", entry_point=Tank, max_episode_steps=40)
"""


def test_an_environment_of_the_user_from_the_shell(tmp_path):
    """Every command that makes an environment, with --import; without it a run says what it needs."""
    (tmp_path / "my_tank.py").write_text(OWN_MODULE)
    own = ("--import", "my_tank")
    small = ("--set", "eval_interval=20", "--set", "eval_episodes=1", "--set", "algo_kwargs.learning_starts=10")
    where = ("--run-dir", "run", "--total-timesteps", "40")
    run_cli("train", "sac", "--env", "Tank-v0", "--env-kwargs", "{leak: 0.2}", *where, *small, *own, cwd=tmp_path)
    missing = run_cli("evaluate", "run", "--episodes", "1", cwd=tmp_path, code=2)
    assert "The run was started with --import my_tank: pass that again" in missing.stderr
    report = run_cli("evaluate", "run", "--episodes", "2", "--json", *own, cwd=tmp_path)
    assert json.loads(report.stdout)["env_id"] == "Tank-v0"
    leaky = run_cli("evaluate", "run", "--episodes", "2", "--json", "--env-kwargs", "{leak: 0.9}", *own, cwd=tmp_path)
    assert json.loads(leaky.stdout)["returns"] != json.loads(report.stdout)["returns"]
    assert "--import my_tank" in run_cli("resume", "run", "--total-timesteps", "60", cwd=tmp_path, code=2).stderr
    run_cli("resume", "run", "--total-timesteps", "60", *own, cwd=tmp_path)
    run_cli("collect", "run", "--rows", "300", "--noise", "0.2", "--out", "medium", *own, cwd=tmp_path)
    offline = ("--dataset", "medium", "--total-timesteps", "20", "--run-dir", "offline")
    run_cli("train", "iql", *offline, "--set", "algo_kwargs.hidden_sizes=[16]", cwd=tmp_path)
    run_cli("finetune", "offline", "--env", "Tank-v0", "--env-steps", "50", "--set", "learning_starts=10", *own, cwd=tmp_path)
    run_cli("render", "run", "--out", "tank.gif", "--max-steps", "5", *own, cwd=tmp_path)
    assert (tmp_path / "tank.gif").read_bytes().startswith(b"GIF")
    facts = run_cli("env", "Tank-v0", "--import", "my_tank.py", "--env-kwargs", "{leak: 0.3}", cwd=tmp_path).stdout
    assert "would take it" in facts


def test_import_errors_are_one_line(capsys, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    assert (
        "--import nowhere_at_all: ModuleNotFoundError"
        in call_cli(capsys, "env", "X", "--import", "nowhere_at_all", code=2).stderr
    )
    assert "ZeroDivisionError" in call_cli(capsys, "env", "X", "--import", tmp_path / "broken.py", code=2).stderr
    assert "--env-kwargs" in call_cli(capsys, "env", "Pendulum-v1", "--env-kwargs", "3", code=2).stderr
    assert "did you mean" in call_cli(capsys, "env", "Pendulm-v1", code=2).stderr.lower()


def test_settings_of_an_environment_are_plain():
    assert env_settings(None) == {"env_id": None}
    assert env_settings("Pendulum-v1") == {"env_id": "Pendulum-v1"}
    with pytest.raises(ConfigError, match="plain values"):
        make_config(run_values("sac", env_kwargs={"function": print}))


def test_logged_nested_observations_have_the_order_of_the_environment(tmp_path):
    import h5py

    env = gymnasium.make("Tests/Nested-v0")
    with h5py.File(tmp_path / "main_data.hdf5", "w") as archive:
        group = archive.create_group("episode_0")
        for name, kind in (("rewards", "f4"), ("terminations", "?"), ("truncations", "?")):
            group[name] = np.zeros(6, dtype=kind)
        group["actions"] = np.linspace(-1.0, 1.0, 6, dtype=np.float32)[:, None]
        observation = env.reset(seed=0)[0]
        group["observations/pose/speed"] = np.repeat(observation["pose"]["speed"], 7)
        group["observations/pose/angle"] = np.repeat(observation["pose"]["angle"][None], 7, axis=0)
        for number, part in enumerate(observation["goal"]):
            group[f"observations/goal/{number}"] = np.repeat(part[None], 7, axis=0)
    data = load_dataset(tmp_path / "main_data.hdf5")
    assert data.observation_names == NESTED
    assert data.observations[0].tolist() == make_env("Tests/Nested-v0").reset(seed=0)[0].tolist()


def test_an_instance_is_not_wrapped_twice_and_keeps_its_limit():
    spec = gymnasium.registry["Tests/Drift-v0"]
    wrapped = gymnasium.wrappers.RepeatAction(gymnasium.make("Tests/Drift-v0"), num_repeats=2)
    gymnasium.register(
        id="Tests/Twice-v0", entry_point=spec.entry_point, additional_wrappers=wrapped.spec.additional_wrappers
    )
    assert given_source(gymnasium.make("Tests/Twice-v0")).wrappers == ()
    assert given_source(gymnasium.make("Pendulum-v1", max_episode_steps=-1)).env_id.startswith("python/")

    class ClipReward(gymnasium.wrappers.TransformReward):
        """The user's own, under a name of Gymnasium's."""

        def __init__(self, env):
            super().__init__(env, lambda reward: 0.0)

    own = given_source(ClipReward(gymnasium.make("Pendulum-v1")))
    assert own.env_id.startswith("python/")


def test_what_is_stored_is_what_is_used():
    with pytest.raises(ConfigError, match="plain values"):
        make_config(run_values("sac", env_kwargs={"map": {1: 2}}))
    assert make_config(run_values("sac", env_kwargs={"size": (1, 2)})).env_kwargs == {"size": [1, 2]}


def test_a_file_with_the_name_of_another_module_is_refused(capsys, tmp_path):
    (tmp_path / "json.py").write_text("")
    assert "rename the file" in call_cli(capsys, "env", "X", "--import", tmp_path / "json.py", code=2).stderr
    assert str(tmp_path) not in sys.path  # where processes that are started later would find that json


def test_an_observation_that_its_space_does_not_describe_is_refused():
    class Swapped(tests.envs.own_environments.Nested):
        def reset(self, *, seed=None, options=None):
            observation, rest = super().reset(seed=seed)
            return {"aim": observation["goal"], "pose": observation["pose"]}, rest

    source = given_source(Swapped)
    with pytest.raises(ConfigError, match=r"the observation has \['aim', 'pose'\], its space \['goal', 'pose'\]"):
        reset_env(make_env(source), source, 0)


def test_a_failure_names_the_line_of_the_users_code():
    env = EnvSource("Tests/Drift-v0", {"failure": "raise", "at": 1})
    made = make_env(env)
    reset_env(made, env, 0)
    with pytest.raises(ConfigError, match=r"the motor is off \(own_environments.py:\d+\)"):
        step_env(made, env, np.zeros(1, dtype=np.float32))


def test_state_that_is_kept_between_episodes_is_noticed():
    class Worn(tests.envs.own_environments.Drift):
        wear = 0.0

        def step(self, action):
            self.wear += 1.0
            observation, reward, *rest = super().step(action)
            return observation, reward - self.wear, *rest

    assert not describe_env(given_source(Worn), seconds=0.01).repeats


def test_the_guide_lists_the_wrappers():
    """Each is one of Gymnasium's, and the guide names it."""
    text = (ROOT / "docs" / "guide.md").read_text()
    for name in get_args(WrapperName):
        assert hasattr(gymnasium.wrappers, name)
        assert f"`{name}`" in text


def test_of_an_unknown_environment_no_time_limit_is_told(tmp_path):
    """The environment of a finetune that is registered by a module which was not imported."""
    with pytest.raises(ConfigError, match="unknown environment 'Tank-v9'"):
        time_limit("Tank-v9")
    said, data = Notes(), small_dataset()
    with pytest.raises(ConfigError, match="unknown environment 'Tank-v9'"):
        tiny_run(tmp_path / "run", env_id=None, dataset=data, finetune={"env_id": "Tank-v9", "env_steps": 20}, reporter=said)
    assert not any("time limit" in text for text in said.warnings), said.warnings


@pytest.mark.parametrize(
    ("env_id", "advice"),
    [
        (
            "Boiler-v0",
            "Name one that is registered with Gymnasium (`env_id`, --env).",
        ),  # `-v0` alone is similar
        ("CartPol-v1", "Did you mean `CartPole-v1`?"),
        ("Pendulum-v9", "Did you mean `Pendulum-v1`?"),
    ],
)
def test_an_unknown_environment_is_told_before_data_is_read(env_id, advice, tmp_path, capsys):
    done = call_cli(capsys, "train", "iql", "--env", env_id, "--dataset", tmp_path / "absent.csv", code=2)
    own = "One of your own needs --import MODULE (in Python, import its module first)"
    assert done.stderr == f"error: unknown environment '{env_id}'. {advice} {own}\n"
