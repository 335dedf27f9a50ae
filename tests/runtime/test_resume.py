"""Cut anywhere and resumed, a run ends bit for bit where it would have: weights, moments and metrics."""

import os
import signal
import subprocess
from functools import partial

import pytest
import yaml

from rl_training.errors import CheckpointError, ConfigError, DatasetError, StoppedBySignal
from rl_training.experiment import ExperimentManager
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from tests.helpers import (
    Cut,
    CutAt,
    Start,
    assert_same_run,
    command,
    die_at_each,
    environment,
    run_values,
    small_dataset,
    tiny_run,
)

CUTS = [
    *(("checkpoint", 30), ("checkpoint", 40), ("log", 50), ("checkpoint", 60), ("log", 70), ("evaluation", 80)),
    *(("checkpoint", 90), ("log", 100), ("log", 110), ("evaluation", 120)),
]


SEEDS = [0, 7]  # what ends and resumes a run is the same for one member and for many: see both cut below


@pytest.fixture
def whole(finished):
    return finished("iql", SEEDS).run_dir


@pytest.mark.parametrize("seeds", [None, SEEDS], ids=["solo", "population"])
def test_cut_and_resumed_equals_uninterrupted(seeds, finished, tmp_path):
    die_at_each(partial(tiny_run, tmp_path, seeds=seeds), CUTS)
    assert_same_run(finished("iql", seeds).run_dir, tmp_path)


class SignalAt(CutAt):
    def _maybe(self, place, step):
        if (place, step) == (self.place, self.step):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    "at", [("log", 50), ("log", 80), ("log", 120), ("checkpoint", 60)], ids=lambda at: f"{at[0]}-{at[1]}"
)
def test_a_signal_saves_the_very_step(whole, tmp_path, at):
    """At 80 and 120 the evaluation is still to come, and comes after the resume."""
    with pytest.raises(StoppedBySignal) as caught:
        tiny_run(tmp_path, seeds=SEEDS, callbacks=[SignalAt(*at)])
    assert caught.value.exit_code == 143
    names = sorted(entry.name for entry in (tmp_path / "checkpoints").glob("step-*"))
    saved = load_checkpoint(tmp_path / "checkpoints" / names[-1])
    assert saved.step >= at[1]
    tiny_run(tmp_path, seeds=SEEDS, resume=True)
    assert_same_run(whole, tmp_path)


def start_process(tmp_path, run_dir, values, **extra):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    arguments = command("train", config, "--run-dir", run_dir, "--resume", "auto")
    return subprocess.Popen(arguments, env=environment(**extra), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


LONG = {"total_timesteps": 1800, "eval_interval": 600, "checkpoint_interval": 100, "log_interval": 50}


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("long")
    tiny_run(path, **LONG)
    return path


def wait_for_line(process, beginning):
    """Read the process's lines until one begins so; return the rest of it."""
    for line in process.stderr:
        if line.startswith(beginning):
            return line.removeprefix(beginning).strip()
    raise AssertionError(f"the process ended with {process.wait()} before it said {beginning!r}")


def test_kill_minus_nine_twice_and_sigterm_once(long_run, tmp_path):
    run_dir, reached = tmp_path / "run", 0
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        process = start_process(tmp_path, run_dir, run_values(**LONG))
        first = int(wait_for_line(process, "training from step ").split()[0].replace(",", ""))
        now = int(wait_for_line(process, "saved step "))
        assert first == reached
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == (143 if number == signal.SIGTERM else -9)
        assert reached < now < 1800, "a resume started at 0 or at the end"
        reached = max(int(p.name[5:]) for p in (run_dir / "checkpoints").glob("step-?????????"))
        assert reached < 1800
    assert tiny_run(run_dir, resume=True, **LONG).step == 1800
    assert_same_run(long_run, run_dir)


def test_sigint_exits_130_and_sigusr1_saves_and_goes_on(long_run, tmp_path):
    run_dir, rarely = tmp_path / "run", {**LONG, "checkpoint_interval": 1500}
    process = start_process(tmp_path, run_dir, run_values(**rarely))
    wait_for_line(process, "training from step ")
    process.send_signal(signal.SIGUSR1)
    saved = int(wait_for_line(process, "saved step "))
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with `rl-training resume" in errors
    assert 0 < saved < 1500
    assert tiny_run(run_dir, resume=True, **rarely).step == 1800
    assert_same_run(long_run, run_dir)


def test_going_on_from_an_older_checkpoint_survives_a_kill(whole, tmp_path):
    """The metrics are cut when the resume begins; from then on the older checkpoint is the run's latest."""
    tiny_run(tmp_path, seeds=SEEDS, keep_checkpoints=10)
    manager, checkpoint = ExperimentManager.resuming(tmp_path / "checkpoints" / "step-000000060")
    with pytest.raises(Cut):
        manager.train(resume=True, checkpoint=checkpoint, callbacks=[CutAt("log", 70)])
    reporter = Start()
    tiny_run(tmp_path, seeds=SEEDS, resume=True, reporter=reporter)
    assert reporter.first == 60
    assert_same_run(whole, tmp_path)


def test_resuming_a_finished_run_changes_nothing(whole, finished, tmp_path):
    finished.copy(tmp_path, "iql", SEEDS)
    tiny_run(tmp_path, seeds=SEEDS, resume=True)
    assert_same_run(whole, tmp_path)


def test_resume_refuses_another_config_data_or_a_cut_metrics_file(finished, tmp_path):
    finished.copy(tmp_path)
    with pytest.raises(ConfigError, match=r"another config: algo_kwargs.expectile was 0.7, is 0.8"):
        tiny_run(tmp_path, resume=True, algo_kwargs={"expectile": 0.8})
    with pytest.raises(ConfigError, match="total_timesteps was 120, is 200"):  # the actor's schedule spans the run
        tiny_run(tmp_path, resume=True, total_timesteps=200)
    with pytest.raises(DatasetError, match="the data has changed since the checkpoint"):
        tiny_run(tmp_path, resume=True, dataset=small_dataset(action_dim=1))
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(CheckpointError, match="is shorter than the checkpoint recorded"):
        tiny_run(tmp_path, resume=True)


def test_a_constant_schedule_may_be_continued_beyond_its_budget(tmp_path):
    constant = {"learning_rate_schedule": "constant", "eval_interval": 300, "log_interval": 40}
    tiny_run(tmp_path / "a", **constant)
    tiny_run(tmp_path / "a", resume=True, total_timesteps=240, **constant)
    tiny_run(tmp_path / "b", total_timesteps=240, **constant)
    first, second = (load_checkpoint(tmp_path / name / "checkpoints" / "step-000000240") for name in "ab")
    assert all((first.tensors[name] == second.tensors[name]).all() for name in first.tensors)
