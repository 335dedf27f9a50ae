"""Random steps before a run: the same for every seed and number of workers, and no failure of theirs ends it."""

import json

import numpy as np
import pytest

import tests.envs.own_environments  # noqa: F401
from rl_training import SAC
from rl_training.config.environment import EnvSource
from rl_training.envs.scale.random_steps import random_steps
from rl_training.errors import ConfigError
from rl_training.experiment import export_member
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from tests.helpers import Cut, CutAt, Notes, assert_same_run, checkpoints, metric_rows, tiny_run

UNITS = "Tests/Units-v0"


def scale_of(run_dir):
    tensors = load_checkpoint(checkpoints(run_dir)[-1]).tensors
    return {name: value.tolist() for name, value in tensors.items() if name.startswith("transforms/")}


def test_steps_repeat_whoever_takes_them():
    own, others = random_steps(UNITS, 0, 60.0), random_steps(UNITS, 1, 60.0)
    assert own.observations.tobytes() == others.observations.tobytes()
    assert own.rewards.tobytes() == others.rewards.tobytes()
    assert len(own.rewards) == 1000
    assert len(np.unique(own.observations[:, 0])) > 900
    assert np.isinf(own.high).all()


def test_a_failure_ends_them_early_and_the_run_meets_it_again(tmp_path):
    fails = EnvSource("Tests/Drift-v0", {"failure": "raise", "at": 30})
    assert len(random_steps(fails, 0, 60.0).rewards) == 29
    with pytest.raises(ConfigError, match="the motor is off.*the run is saved at env step 29"):
        tiny_run(tmp_path, "sac", env_id="Tests/Drift-v0", env_kwargs={"failure": "raise", "at": 30})


def test_a_stop_is_noticed_before_the_next_step():
    """Where a step takes a second, a hundred of them are too long for whoever asked for the stop."""
    calls = []
    random_steps(UNITS, 0, 60.0, lambda: calls.append(1))
    assert len(calls) == 1000

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        random_steps(UNITS, 0, 60.0, stop)


def test_steps_that_take_long_are_told_once_with_a_way_out(monkeypatch):
    told = []
    random_steps(UNITS, 0, 60.0, tell=told.append)
    assert not told
    monkeypatch.setattr("rl_training.envs.scale.random_steps._LONG", -1.0)
    random_steps(UNITS, 0, 60.0, tell=told.append)
    (text,) = told
    assert "1,000 random steps" in text
    assert "`normalize_observations: false` and `reward: {normalize: false}`" in text


def test_a_member_on_its_own_keeps_what_random_actions_earned(tmp_path):
    tiny_run(tmp_path / "both", "sac", env_id=UNITS, seeds=[0, 7])
    export_member(tmp_path / "both", tmp_path / "one", seed=7)
    both, one = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("both", "one"))
    assert one["random_play"] == both["random_play"]
    assert one["random_play"]["episodes"] == 20
    assert one["time_limit"] == both["time_limit"] == 50


@pytest.mark.parametrize("algo", ["sac", "td3", "redq"])
def test_a_run_in_odd_units_is_scaled_says_so_and_acts_in_them(algo, tmp_path):
    reporter = Notes()
    tiny_run(tmp_path / "run", algo, env_id=UNITS, reporter=reporter)
    assert [text for text in reporter.notes if text.startswith("scale, by 1,000 random steps")]
    found = scale_of(tmp_path / "run")
    assert found["transforms/observation_mean"][0] == pytest.approx(1e5, rel=0.1)
    assert found["transforms/observation_std"][1] == pytest.approx(1e-5, rel=0.9)
    assert found["transforms/reward"][0] < 1e-2
    returns = [row["data/episode_return"] for row in metric_rows(tmp_path / "run") if "data/episode_return" in row]
    assert min(returns) < -1e4  # in the environment's units


def test_members_and_resumed_runs_have_the_scale_of_any_run(tmp_path):
    tiny_run(tmp_path / "solo", "sac", env_id=UNITS, seed=7)
    tiny_run(tmp_path / "both", "sac", env_id=UNITS, seeds=[0, 7])
    assert scale_of(tmp_path / "solo") == scale_of(tmp_path / "both")
    solo = [row["critic_loss"] for row in metric_rows(tmp_path / "solo") if "critic_loss" in row]
    member = [row["critic_loss"] for row in metric_rows(tmp_path / "both") if row["member"] == 1 and "critic_loss" in row]
    assert member == pytest.approx(solo, rel=1e-4)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", "sac", env_id=UNITS, seeds=[0, 7], callbacks=[CutAt("checkpoint", 60)])
    tiny_run(tmp_path / "cut", "sac", env_id=UNITS, seeds=[0, 7], resume=True)
    assert_same_run(tmp_path / "both", tmp_path / "cut")


def test_ordinary_environments_and_those_that_ask_for_it_are_left_alone(tmp_path):
    tiny_run(tmp_path / "ordinary", "sac")
    plain = {"normalize_observations": False, "reward": {"normalize": False}}
    tiny_run(tmp_path / "asked", "sac", env_id=UNITS, algo_kwargs=plain)
    for name in ("ordinary", "asked"):
        found = scale_of(tmp_path / name)
        assert set(found["transforms/observation_mean"]) == {0.0}
        assert set(found["transforms/observation_std"]) == {1.0}
        assert found["transforms/reward"][0] == 1.0


def test_numerical_noise_that_becomes_an_observation_breaks_nothing(tmp_path):
    """What was 1e-17 in random steps may be 0.1 later: whitened by what it was, it would be 1e16."""
    reporter = Notes()
    tiny_run(tmp_path, "sac", env_id="Tests/Latch-v0", reporter=reporter)
    found = scale_of(tmp_path)
    assert set(found["transforms/observation_std"]) == {1.0}
    assert not [text for text in reporter.notes if "random steps" in text]


def test_rewards_of_which_an_action_changes_next_to_nothing_are_told(tmp_path):
    reporter = Notes()
    tiny_run(tmp_path, "sac", env_id="Tests/Offset-v0", reporter=reporter)
    assert [text for text in reporter.warnings if "take the constant off" in text]


def test_values_are_in_the_units_of_the_rewards(tmp_path):
    tiny_run(tmp_path, "sac", env_id=UNITS)
    model = SAC.load(tmp_path)
    scale = scale_of(tmp_path)["transforms/reward"][0]
    seen = model.policy.transforms.observations(np.array([[1e5, 0.0]]))
    assert abs(seen).max() < 10.0
    assert scale < 1e-2
    assert abs(model.value([1e5, 0.0])) > 10.0
