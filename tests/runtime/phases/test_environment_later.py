"""A run that was trained on data alone and gets its environment later: evaluated and finetuned there, by its own bounds."""

import json
import re
import shutil

import gymnasium
import numpy as np
import pytest
import torch
import yaml

from rl_training import IQL
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError, DatasetError
from rl_training.experiment import ExperimentManager
from rl_training.experiment.manager import find_checkpoint
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint
from tests.heater import HIGH, LOW, Heater, heater, heater_values, write_log  # noqa: F401 - heater is a fixture
from tests.helpers import (
    Cut,
    CutAt,
    assert_same_run,
    call_cli,
    checkpoints,
    contents,
    metric_rows,
    run_cli,
    small_dataset,
)

BLOCK = {"env_steps": 130, "env_id": "Heater-v0"}
pytestmark = pytest.mark.usefixtures("heater")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("log") / "log.csv")


@pytest.fixture(scope="module")
def trained(log, tmp_path_factory):
    """A finished run without an environment, to be copied."""
    path = tmp_path_factory.mktemp("trained") / "run"
    ExperimentManager(make_config(heater_values(log)), path).train()
    return path


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def finetune(run, callbacks=(), **block):
    manager, checkpoint = ExperimentManager.finetuning(run, {**BLOCK, **block})
    return manager.train(resume=True, checkpoint=checkpoint, callbacks=callbacks)


def whole(log, path, **changes):
    config = make_config(heater_values(log, finetune=BLOCK, **changes))
    return ExperimentManager(config, path).train()


def test_asked_for_later_is_as_asked_for_at_once(log, run, tmp_path):
    finetune(run)
    whole(log, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", run)
    rows = metric_rows(run)
    assert [row["env_step"] for row in rows if "eval/return_mean" in row] == [50, 100, 130]
    assert all("env_step" not in row for row in rows if row["step"] <= 100 and "train/actor_loss" in row)


def test_once_there_are_returns_they_choose_the_best_checkpoint(log, tmp_path):
    """A score is no return: the first evaluation in the environment is the best so far whatever it finds."""
    config = make_config(heater_values(log, select_by="action_distance"))
    ExperimentManager(config, tmp_path / "run").train()
    assert find_checkpoint(tmp_path / "run", "best").env_step is None
    finetune(tmp_path / "run")
    returns = {row["env_step"]: row["eval/return_mean"] for row in metric_rows(tmp_path / "run") if "eval/return_mean" in row}
    assert find_checkpoint(tmp_path / "run", "best").env_step == max(returns, key=returns.get)


def test_cut_and_resumed_equals_uninterrupted(log, run, tmp_path):
    whole(log, tmp_path / "whole")
    with pytest.raises(Cut):
        finetune(run, callbacks=[CutAt("log", 75)])
    assert load_checkpoint(checkpoints(run)[-1]).env_step == 50
    ExperimentManager.open(run).train(resume=True)
    assert_same_run(tmp_path / "whole", run)


def test_the_policy_keeps_its_bounds_and_its_scaling(run):
    before = load_checkpoint(checkpoints(run)[-1])
    finetune(run)
    after = load_checkpoint(checkpoints(run)[-1])
    assert after.state["spaces"] == before.state["spaces"]
    assert after.state["spaces"]["action_names"] == ["Q1", "Q2", "fan"]
    for name in before.tensors:
        if name.startswith("transforms/"):
            assert torch.equal(before.tensors[name], after.tensors[name])
    commands = np.array(Heater.commands)
    assert (commands >= np.array(LOW, dtype=np.float32)).all()
    assert (commands <= np.array(HIGH, dtype=np.float32)).all()
    assert np.ptp(commands[:, 0]) > 1.0  # it explores
    assert after.state["config"]["env_id"] is None
    assert after.state["config"]["finetune"]["env_id"] == "Heater-v0"


def test_a_checkpoint_decides_over_later_defaults(trained, tmp_path):
    """A checkpoint whose bounds another version chose differently goes on with those bounds."""
    last = load_checkpoint(checkpoints(trained)[-1])
    wide = {**last.state["spaces"], "action_high": [100.0, 50.0, 30.0]}
    path = write_checkpoint(tmp_path / "other", last.tensors, {**last.state, "spaces": wide})
    model = IQL.load(path, run_dir=tmp_path / "run")
    model.finetune(30, env_id="Heater-v0")
    assert model.policy.spaces.action_high.tolist() == [100.0, 50.0, 30.0]


def register(name, low, high, observations=3):
    """A heater with other spaces."""

    class Other(Heater):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observations,), np.float32)
        action_space = gymnasium.spaces.Box(np.float32(low), np.float32(high), np.shape(low), np.float32)

    gymnasium.register(name, entry_point=Other, max_episode_steps=40)
    return name


@pytest.fixture
def others():
    names = [
        register("Narrow-v0", (0.0, 0.0, 0.0), (50.0, 100.0, 100.0)),
        register("Wide-v0", (0.0, 0.0), (100.0, 100.0)),
        register("More-v0", (0.0, 0.0, 0.0), (100.0, 100.0, 100.0), observations=5),
    ]
    yield names
    for name in names:
        del gymnasium.registry[name]


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("Narrow-v0", "the policy sets `Q1` between 10 and 60, Narrow-v0 takes 0 to 50; check the environment and its units"),
        ("Wide-v0", "Wide-v0 has 3 observations and 2 actions, the policy 3 and 3"),
        ("More-v0", "More-v0 has 5 observations and 3 actions, the policy 3 and 3"),
        (
            "Heatr-v0",
            "unknown environment 'Heatr-v0'. Did you mean `Heater-v0`? "
            "One of your own needs --import MODULE (in Python, import its module first)",
        ),
    ],
)
@pytest.mark.parametrize("command", [["evaluate"], ["finetune", "--env-steps", "10"]])
def test_a_mismatch_is_one_line_and_writes_nothing(run, others, command, env_id, words, capsys):
    before = contents(run)
    done = call_cli(capsys, command[0], run, *command[1:], "--env", env_id, code=2)
    assert done.stderr.strip().splitlines()[-1] == f"error: {words}"
    after = contents(run)
    assert {**after, "run.lock": None} == {**before, "run.lock": None}  # the lock was taken, and is free again


def test_from_the_shell(run, capsys):
    done = call_cli(capsys, "evaluate", run, code=2)
    assert re.search(r"error: the run has no environment .*--env ID .*--data PATH", done.stderr)
    done = call_cli(capsys, "finetune", run, "--env-steps", "60", code=2)
    assert "`env_id` is required" in done.stderr
    assert "`finetune --env ID`" in done.stderr
    done = call_cli(capsys, "evaluate", run, "--env", "Heater-v0", "--episodes", "2", "--json")
    assert json.loads(done.stdout)["env_id"] == "Heater-v0"
    stays = "in Heater-v0 the policy stays within the range it was trained with: `Q1` 10 to 60 of -20 to 100"
    assert stays in done.stderr
    done = call_cli(capsys, "finetune", run, "--env", "Heater-v0", "--env-steps", "60")
    assert stays in done.stderr
    assert "rl-training evaluate" in done.stdout
    assert "no environment" not in done.stderr
    shown = call_cli(capsys, "evaluate", run, "--episodes", "2").stdout
    assert shown.startswith("iql on Heater-v0 after 60 environment steps")
    assert yaml.safe_load((run / "config.yaml").read_text())["finetune"]["env_id"] == "Heater-v0"


def test_an_environment_from_another_interpreter(run):
    """A registered environment of the package itself, in a subprocess: it does not fit, and that is one line."""
    done = run_cli("finetune", run, "--env", "Pendulum-v1", "--env-steps", "10", code=2)
    assert done.stderr.strip().splitlines()[-1] == "error: Pendulum-v1 has 3 observations and 1 actions, the policy 3 and 3"


def test_from_python(trained, tmp_path):
    model = IQL.load(shutil.copytree(trained, tmp_path / "run"))
    assert model.evaluate(2, env_id="Heater-v0")["return_mean"] < 0.0
    with pytest.raises(ConfigError, match="nothing to evaluate in; name one with --env ID"):
        model.evaluate(2)
    with pytest.raises(ConfigError, match="`env_id` is required"):
        model.finetune(30)
    model.finetune(30, env_id="Heater-v0").finetune(60)
    assert model.num_timesteps == 60
    assert model.evaluate(2)["lengths"] == [40, 40]
    with pytest.raises(ConfigError, match="finetune.env_id was 'Heater-v0', is 'Pendulum-v1'"):
        model.finetune(90, env_id="Pendulum-v1")


def test_a_population_and_a_sweep_are_finetuned_later(log, tmp_path):
    values = heater_values(log, seeds=[0, 1], sweep={"beta": [1.0, 3.0]}, total_timesteps=50)
    ExperimentManager(make_config(values), tmp_path / "run").train()
    result = finetune(tmp_path / "run", env_steps=50)
    assert len(result.combinations) == 2
    assert all(one.return_mean is not None for one in result.combinations)


def test_another_environment_of_the_same_sizes(finished, tmp_path, capsys):
    gymnasium.register("Longer-v1", entry_point="gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=250)
    try:
        run = finished.copy(tmp_path / "run")
        report = json.loads(call_cli(capsys, "evaluate", run, "--env", "Longer-v1", "--episodes", "2", "--json").stdout)
        assert report["lengths"] == [250, 250]
        call_cli(capsys, "finetune", run, "--env", "Longer-v1", "--env-steps", "30")
        assert load_checkpoint(checkpoints(run)[-1]).state["config"]["finetune"]["env_id"] == "Longer-v1"
    finally:
        del gymnasium.registry["Longer-v1"]


def test_naming_the_run_s_own_environment_changes_nothing(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    manager, _ = ExperimentManager.finetuning(run, {"env_steps": 10, "env_id": "Pendulum-v1"})
    assert manager.config.finetune.env_id is None


def test_changed_data_is_refused_as_such(run):
    """Also where its actions leave the bounds of the checkpoint, which would be another error."""
    other = small_dataset(rows=200)
    with pytest.raises(DatasetError, match="the data has changed since the checkpoint"):
        IQL.load(run, dataset=other).finetune(10, env_id="Heater-v0")
