"""What `verify` concludes from two runs of one config; that it cuts real processes is tested by `make test-faults`."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

import rl_training
from rl_training.config.loading import load_config, make_config
from rl_training.errors import ConfigError
from rl_training.integrity import verify as module
from rl_training.integrity.comparing import differences
from rl_training.integrity.processes import Cut, Ended, RunFailedError
from rl_training.integrity.shortening import shortened
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint
from tests.helpers import call_cli, checkpoints, run_values


def rewrite(run_dir, change):
    last = checkpoints(run_dir)[-1]
    loaded = load_checkpoint(last)
    state, tensors = json.loads(json.dumps(loaded.state)), dict(loaded.tensors)
    change(state, tensors)
    shutil.rmtree(last)
    write_checkpoint(last, tensors, state)


def test_every_difference_is_named(finished, tmp_path):
    one, other = finished().run_dir, finished.copy(tmp_path / "other")
    assert differences(one, other) == []

    def change(state, tensors):
        tensors["actor/0/bias"] = tensors["actor/0/bias"] + torch.tensor([1e-3] + [0.0] * 15)
        tensors["more"] = torch.zeros(1)
        state["best_mean"] = 7.0

    rewrite(other, change)
    rows = (other / "metrics.jsonl").read_text().splitlines()
    rows[2] = json.dumps({**json.loads(rows[2]), "train/actor_loss": 5})
    (other / "metrics.jsonl").write_text("\n".join(rows[:-1]) + "\n")
    found = differences(one, other)
    assert "actor/0/bias: 1 of 16 numbers differ, by 0.001 at most" in found
    assert "more: is too much" in found
    assert any(line.startswith("state.json: best_mean is 7.0, not ") for line in found)
    assert any(line.startswith("metrics.jsonl: row 3 has train/actor_loss 5, not ") for line in found)
    assert f"metrics.jsonl: row {len(rows)} is missing" in found


@pytest.mark.parametrize("name", ["iql/pendulum", "rlpd/pendulum", "cal_ql/d4rl-antmaze-finetune"])
def test_a_short_version_changes_lengths_alone(name):
    config = load_config(name, ["env_id=Pendulum-v1"])
    short, told = shortened(config, 480, "compile")
    assert short.total_timesteps == 480
    assert short.engine == "compile"
    changed = {line.split()[0].rpartition(".")[2] for line in told}
    lengths = {
        "total_timesteps",
        "eval_interval",
        "log_interval",
        "checkpoint_interval",
        "eval_episodes",
        "engine",
        "env_steps",
    }
    assert changed <= {*lengths, "learning_starts", "dataset", "offline_pretrain_updates", "max_updates", "max_epochs"}
    assert short.finetune is None or short.finetune.env_steps == 480


def test_a_config_that_is_short_already_is_saved_more_often():
    config = make_config(run_values(engine="eager"))
    assert shortened(config, 480)[1] == ["checkpoint_interval 30 -> 5", "eval_interval 40 -> 30", "log_interval 10 -> 5"]


class Runs:
    """Stands for processes: copies a finished run, and ends as it is told to."""

    def __init__(self, finished, ends, damage=lambda _run: None):
        self.finished, self.ends, self.damage, self.cuts = finished, list(ends), damage, []

    def __call__(self, config, run_dir, imports=(), cut=None):
        self.cuts.append(cut)
        self.finished.copy(run_dir)
        if cut is None and Path(run_dir).name == "cut":
            self.damage(run_dir)
        return Ended(self.ends.pop(0), [f"step {30 * n}" for n in range(1, 5)], [0.1] * 4)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "c.yaml").write_text(json.dumps(run_values(engine="eager")))
    return tmp_path / "c.yaml"


def test_equal_ends_are_exact_and_nothing_is_left(finished, config, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    runs = Runs(finished, [0, -9, -9, 143, 0])
    monkeypatch.setattr(module, "train_process", runs)
    done = call_cli(capsys, "verify", config, "--cuts", 3, "--seed", 4)
    assert done.stdout.splitlines()[-1] == "exact: cut 3 times and resumed, it ended bit for bit as undisturbed"
    assert "seed 4 draws where it is cut" in done.stderr
    kinds = [None if cut is None else (cut.number, cut.point is None) for cut in runs.cuts]
    assert kinds == [None, (signal.SIGKILL, True), (signal.SIGKILL, False), (signal.SIGTERM, True), None]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_difference_is_an_error_and_both_runs_are_kept(finished, config, monkeypatch, capsys, tmp_path):
    runs = Runs(finished, [0, -9, 0], lambda run: (run / "metrics.jsonl").write_bytes(b"{}\n"))
    monkeypatch.setattr(module, "train_process", runs)
    done = call_cli(capsys, "verify", config, "--cuts", 1, "--keep", tmp_path / "kept", code=4)
    assert "differs: metrics.jsonl: row 1 " in done.stdout
    assert f"both runs are in {tmp_path / 'kept'}" in done.stdout
    assert "a resume is not exact; `--seed " in done.stderr


def test_a_run_that_was_never_cut_proves_nothing(finished, config, monkeypatch, capsys):
    monkeypatch.setattr(module, "train_process", Runs(finished, [0, 0]))
    done = call_cli(capsys, "verify", config, code=4)
    assert "cut 1 of 5: came too late, the run had ended" in done.stderr
    assert "nothing is proved" in done.stderr


def test_a_run_that_fails_says_why_with_its_own_exit_code(config, monkeypatch):
    failed = Ended(3, lines=["data: x", "error: x: is no dataset"])
    monkeypatch.setattr(module, "train_process", lambda *_arguments, **_options: failed)
    with pytest.raises(RunFailedError, match="^x: is no dataset$") as caught:
        rl_training.verify(config)
    assert caught.value.exit_code == 3


def test_what_a_cut_does_is_told():
    assert str(Cut(2, 0.0123)) == "kill -9 12 ms after save 2"
    assert str(Cut(3, point="save:before-rename")) == "kill -9 inside save 3 (save:before-rename)"
    assert Cut(1, number=signal.SIGINT).exit_code == 130


def test_modules_that_a_run_names_are_not_imported(finished, monkeypatch, tmp_path):
    """They would be a stranger's choice."""
    run, asked = finished.copy(tmp_path / "run"), []
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("env_imports: []", "env_imports:\n- payload"))

    def ended(_config, _run_dir, imports=(), cut=None):
        asked.append(list(imports))
        return Ended(2, lines=["error: stop"])

    monkeypatch.setattr(module, "train_process", ended)
    with pytest.raises(RunFailedError):
        rl_training.verify(run, exact=True)
    with pytest.raises(RunFailedError):
        rl_training.verify(run, exact=True, imports=["mine"])
    assert asked == [[], ["mine"]]


def test_settings_are_for_configs(finished):
    with pytest.raises(ConfigError, match="is a run, whose settings and data are known"):
        rl_training.verify(finished().run_dir, settings=["seed=1"])
