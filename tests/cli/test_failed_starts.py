"""What a start that fails leaves behind."""

import json

import pytest

import tests.envs.own_environments  # noqa: F401 - it registers environments
from tests.helpers import call_cli


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("iql", "--dataset", "missing"), 3),
        (("sac", "--env", "Nope-v1"), 2),
        (("sac", "--env", "CartPole-v1"), 2),
        (("sac", "--env", "Tests/Drift-v0", "--env-kwargs", "{failure: raise, at: 1}"), 2),
    ],
)
def test_a_failed_start_leaves_no_directory(arguments, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    call_cli(capsys, "train", *arguments, code=code)
    call_cli(capsys, "train", *arguments, "--run-dir", "there/run", code=code)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs" / arguments[0]).mkdir(parents=True)
    call_cli(capsys, "train", *arguments, code=code)
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", arguments[0]]
    (tmp_path / "mine").mkdir()
    call_cli(capsys, "train", *arguments, "--run-dir", "mine", code=code)
    assert (tmp_path / "mine" / "run.json").exists()  # it was there before, and says what happened


def test_a_failed_run_with_metrics_is_kept(tmp_path, capsys):
    failing = ("sac", "--env", "Tests/Drift-v0", "--env-kwargs", "{failure: raise, at: 30}", "--set", "log_interval=10")
    call_cli(capsys, "train", *failing, "--run-dir", tmp_path / "run", code=2)
    assert (tmp_path / "run" / "metrics.jsonl").stat().st_size
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "ConfigError"
