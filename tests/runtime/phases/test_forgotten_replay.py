"""A damaged segment that every checkpoint needs: the run can go on from its weights, and says that it is no longer exact."""

import json

import pytest

from rl_training.data import load_dataset
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run_record import run_record
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from tests.helpers import assert_same_run, call_cli, checkpoints, metric_rows, tiny_run

SHORT = {"total_timesteps": 60, "checkpoint_interval": 20, "eval_interval": 20, "eval_episodes": 1}


@pytest.fixture
def damaged(tmp_path):
    """A run of 60 environment steps whose first segment has a flipped bit."""
    tiny_run(tmp_path / "run", "sac", **SHORT, learning_rate_schedule="constant")
    segment = min((tmp_path / "run" / "replay").iterdir())
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)
    return tmp_path / "run"


def test_a_run_goes_on_from_its_weights(damaged, capsys):
    done = call_cli(capsys, "resume", damaged, "--total-timesteps", 100, code=4)
    assert "`rl-training resume --forget-replay` goes on from the weights alone" in done.stderr
    before = load_checkpoint(checkpoints(damaged)[-1])
    done = call_cli(capsys, "resume", damaged, "--total-timesteps", 100, "--forget-replay")
    lost = "the replay was forgotten (--forget-replay), and 32 transitions were collected anew"
    said = f"not bit-exact from env step 60 on: {lost}"
    assert f"warning: {said}" in done.stderr
    record = run_record(damaged)
    assert said in [warning["text"] for warning in record["warnings"]]
    assert record["phases"][0]["forgot_replay"] is True
    last = load_checkpoint(checkpoints(damaged)[-1])
    assert (before.env_step, last.env_step, last.state["replay_from"]) == (60, 100, 28)
    assert last.step == before.step + 40
    assert [row["env_step"] for row in metric_rows(damaged) if "train/critic_loss" in row] == list(range(10, 101, 10))
    assert len(load_dataset(damaged)) == 72
    page = damaged.parent / "page.html"
    call_cli(capsys, "report", damaged, "--out", page)
    assert "not bit-exact from env step 60 on" in page.read_text()


def test_from_then_on_it_is_exact_again(damaged, tmp_path, capsys):
    call_cli(capsys, "resume", damaged, "--total-timesteps", 80, "--forget-replay")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = {**SHORT, "learning_rate_schedule": "constant", "total_timesteps": 100}
    for folder in (whole, cut):
        call_cli(capsys, "resume", damaged, "--run-dir", folder, "--total-timesteps", 90 if folder is cut else 100)
    tiny_run(cut, "sac", resume=True, **settings)
    first, second = (load_checkpoint(checkpoints(folder)[-1]) for folder in (whole, cut))
    assert first.state["replay_from"] == second.state["replay_from"] == 28
    assert json.dumps(first.state["members"]) == json.dumps(second.state["members"])
    assert all((value == second.tensors[name]).all() for name, value in first.learner_tensors.items())


def test_repeated_it_forgets_the_same(damaged, tmp_path, capsys):
    for name in ("a", "b"):
        options = ("--run-dir", tmp_path / name, "--total-timesteps", 80, "--forget-replay")
        call_cli(capsys, "resume", damaged, *options)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_without_a_replay_there_is_nothing_to_forget(finished, damaged):
    with pytest.raises(ConfigError, match="has no replay that could be forgotten: step-000000120 is of an offline run"):
        ExperimentManager.resuming(finished().run_dir, forget_replay=True)
    with pytest.raises(CheckpointError, match="is damaged"):
        ExperimentManager.resuming(damaged)[0].train(resume=True)
