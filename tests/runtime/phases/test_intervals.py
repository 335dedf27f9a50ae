"""Intervals and numbers of episodes that a finetune has of its own."""

import shutil

import pytest

import rl_training
from rl_training.errors import ConfigError
from rl_training.experiment import ExperimentManager
from tests.helpers import Cut, CutAt, assert_same_run, call_cli, knobs_of, metric_rows, tiny_run

RUN = {"checkpoint_interval": 50, "log_interval": 25, "eval_interval": 100, "total_timesteps": 100}


def evaluated(path):
    return [row["env_step"] for row in metric_rows(path) if "eval/return_mean" in row and "env_step" in row]


def test_a_finetune_may_be_evaluated_and_logged_at_other_intervals(tmp_path, capsys):
    tiny_run(tmp_path / "offline", **RUN)
    cut, whole = (shutil.copytree(tmp_path / "offline", tmp_path / name) for name in ("cut", "whole"))
    rhythm = {"eval_interval": 20, "eval_episodes": 2, "log_interval": 10, "checkpoint_interval": 40}
    settings = [word for key, value in rhythm.items() for word in ("--set", f"{key}={value}")]
    call_cli(capsys, "finetune", whole, "--env-steps", 60, *settings, "--json")
    assert evaluated(whole) == [20, 40, 60]
    stored = ExperimentManager.open(whole).config
    assert {key: getattr(stored.finetune, key) for key in rhythm} == rhythm
    assert stored.rhythm == ExperimentManager.open(tmp_path / "offline").config.rhythm  # what the offline phase ran with
    ExperimentManager(stored, tmp_path / "again").train()
    assert_same_run(whole, tmp_path / "again")  # the stored config gives both phases
    manager, start = ExperimentManager.finetuning(cut, {"env_steps": 60, **rhythm})
    with pytest.raises(Cut):  # before the first checkpoint of the phase
        manager.train(resume=True, checkpoint=start, callbacks=[CutAt("log", 10)])
    with pytest.raises(Cut):  # and after it
        ExperimentManager.open(cut).train(resume=True, callbacks=[CutAt("log", 50)])
    ExperimentManager.open(cut).train(resume=True)
    assert_same_run(whole, cut)
    call_cli(capsys, "finetune", whole, "--env-steps", 80, "--json")  # longer, with the intervals that it has
    assert evaluated(whole) == [20, 40, 60, 80]
    other = call_cli(capsys, "finetune", whole, "--env-steps", 90, "--set", "eval_interval=30", code=2).stderr
    assert "finetune.eval_interval was 20, is 30; begin another online phase with `rl-training finetune " in other
    wrong = call_cli(capsys, "finetune", tmp_path / "offline", "--env-steps", 60, "--set", "eval_interval=0", code=2).stderr
    assert "`finetune.eval_interval` = 0 is not legal" in wrong


def test_intervals_of_the_offline_phase_stay(tmp_path):
    with pytest.raises(Cut):
        tiny_run(tmp_path, finetune={"env_steps": 60}, callbacks=[CutAt("checkpoint", 50)], **RUN)
    with pytest.raises(ConfigError, match="eval_interval was 100, is 20"):
        tiny_run(tmp_path, finetune={"env_steps": 60}, resume=True, **{**RUN, "eval_interval": 20})


def test_intervals_of_a_finetune_in_python():
    model = rl_training.IQL("Pendulum-v1", dataset={"kind": "random", "size": 300}, **knobs_of("iql"), eval_episodes=1)
    model.learn(20).finetune(20, eval_interval=10)
    online = model.history.rows_with("eval/return_mean").rows_with("env_step")
    assert online["env_step"].tolist() == [10, 20]
