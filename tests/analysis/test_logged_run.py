"""A run read back from its directory."""

import json
import os

import numpy as np
import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun, runs_in
from rl_training.config.loading import make_config
from rl_training.errors import CheckpointError, ConfigError, StorageError
from tests.analysis.runs import write_run


@pytest.fixture
def run_dir(tmp_path):
    """An offline phase of 100 steps with two members, one of which stopped, and 40 environment steps after it."""
    config = {"algo": "iql", "env_id": "Pendulum-v1", "seeds": [7, 9], "total_timesteps": 100}
    config["algo_kwargs"] = {"dataset": "random"}
    (tmp_path / "config.yaml").write_text(make_config(config, "x").to_yaml())
    phases = [{"name": "offline", "from_step": 0}, {"name": "finetune", "from_step": 100}]
    record = {"status": "running", "versions": {"rl_training": "0.1.0"}, "phases": phases}
    (tmp_path / "run.json").write_text(json.dumps(record))
    rows = [
        {"step": 50, "member": 0, "seed": 7, "train/loss": 1.0},
        {"step": 50, "member": 1, "seed": 9, "train/loss": 2.0},
        {"step": 100, "member": 0, "seed": 7, RETURN: -5.0},
        {"step": 100, "member": 1, "seed": 9, RETURN: -6.0},
        {"env_step": 40, "step": 140, "member": 0, "seed": 7, RETURN: -1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"env_step": 50, "st')
    (tmp_path / "timings.jsonl").write_text('{"step": 50, "seconds": 1.5}\n')
    return tmp_path


def test_a_run_under_way_is_read_up_to_its_last_complete_line(run_dir):
    run = LoggedRun.load(run_dir)
    assert (run.name, run.record["status"], run.seeds, run.switch) == (run_dir.name, "running", {0: 7, 1: 9}, 100)
    assert run.metrics() == ["train/loss", RETURN]
    assert run.metrics("eval/") == [RETURN]
    assert run.timings == [{"step": 50, "seconds": 1.5}]


def test_a_curve_counts_gradient_steps_and_then_environment_steps(run_dir):
    curve = LoggedRun.load(run_dir).curve()
    assert curve.positions.tolist() == [100, 140]
    np.testing.assert_array_equal(curve.values, [[-5.0, -6.0], [-1.0, np.nan]])
    assert curve.last().tolist() == [-1.0, -6.0]


def test_the_switch_is_where_the_run_went_online_wherever_it_was_started(run_dir):
    """The record says at which step a process started the phase: 0 where the config had the finetune from the beginning."""
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**record, "phases": [{"name": "finetune", "from_step": 0}]}))
    assert LoggedRun.load(run_dir).switch == 100
    rows = (run_dir / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run_dir / "metrics.jsonl").write_text("".join(rows[:4]))
    assert LoggedRun.load(run_dir).switch is None


def test_events_and_knobs_are_no_metrics(run_dir):
    with (run_dir / "metrics.jsonl").open("w") as stream:
        row = {"step": 50, "member": 0, "seed": 7, "knob/beta": 3.0}
        stream.writelines(json.dumps({**row, **more}) + "\n" for more in ({"train/loss": 1.0}, {"event": "diverged"}))
    assert LoggedRun.load(run_dir).metrics() == ["train/loss"]


def test_a_run_before_its_first_row_has_its_seeds_and_no_metrics(run_dir):
    (run_dir / "metrics.jsonl").unlink()
    run = LoggedRun.load(run_dir)
    assert run.seeds == {0: 7, 1: 9}
    assert run.metrics() == []
    assert run.positions.tolist() == []


def test_what_is_missing_or_damaged_is_told(run_dir, tmp_path_factory):
    with pytest.raises(ConfigError, match="no eval/retrun_mean: no such metric was written. Did you mean `eval/return_mean`"):
        LoggedRun.load(run_dir).curve("eval/retrun_mean")
    with pytest.raises(CheckpointError, match="is not a run directory"):
        LoggedRun.load(tmp_path_factory.mktemp("empty"))
    (run_dir / "metrics.jsonl").write_text('{"step": 1, "member": 0, "seed": 7}\n[1]\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: line 2 is damaged; .* remove that line in a copy"):
        LoggedRun.load(run_dir)


@pytest.mark.parametrize(
    "row",
    [
        {"step": 50, "member": 0, "seed": 7, RETURN: "x"},
        {"step": 50, "member": 0, "seed": 7, "train/loss": [1.0, 2.0]},
        {"step": 50, "seed": 7, RETURN: -5.0},
        {"step": 50, "member": 0, "seed": 7.5, RETURN: -5.0},
        {"step": 50, "member": 0, "seed": 7, "event": 3},
        {"step": 50, "member": 0, "seed": 7, RETURN: 10**400},
        {"step": 2**63, "member": 0, "seed": 7, RETURN: -5.0},
    ],
)
def test_a_row_whose_values_are_no_numbers_is_damaged(run_dir, row):
    with (run_dir / "metrics.jsonl").open("w") as stream:
        stream.write(json.dumps({"step": 40, "member": 0, "seed": 7, RETURN: -5.0}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: line 2 is damaged"):
        LoggedRun.load(run_dir)


def test_times_that_are_no_numbers_are_damaged(run_dir):
    (run_dir / "timings.jsonl").write_text('{"step": 50, "seconds": "1.5"}\n')
    with pytest.raises(CheckpointError, match=r"timings\.jsonl: line 1 is damaged"):
        LoggedRun.load(run_dir)


def test_a_pipe_is_not_waited_for(run_dir):
    (run_dir / "metrics.jsonl").unlink()
    os.mkfifo(run_dir / "metrics.jsonl")
    with pytest.raises(StorageError, match=r"metrics\.jsonl: is not a plain file"):
        LoggedRun.load(run_dir)


def test_a_damaged_record_is_not_called_missing(run_dir):
    (run_dir / "run.json").write_text('{"status": "fin')
    with pytest.raises(CheckpointError, match=r"its run\.json is damaged"):
        LoggedRun.load(run_dir)


def test_runs_in_a_folder_are_in_natural_order(tmp_path):
    for name in ("run10", "run2", "Run1"):
        write_run(tmp_path / name, [[1.0]])
    assert [path.name for path in runs_in(tmp_path)] == ["Run1", "run2", "run10"]


def test_a_metric_without_its_group_is_recognised(tmp_path):
    run = LoggedRun.load(write_run(tmp_path / "run", [[1.0]]))
    with pytest.raises(ConfigError, match="no such metric was written. Did you mean `train/loss`"):
        run.curve("loss")


@pytest.mark.parametrize(("status", "how"), [("DivergedError", "diverged"), ("StoppedBySignal", "was stopped")])
def test_a_run_that_ended_before_its_first_evaluation_says_so(tmp_path, status, how):
    folder = write_run(tmp_path / "run", [], status=status)
    with pytest.raises(ConfigError, match=f"has no eval/return_mean: it {how} before its first evaluation"):
        LoggedRun.load(folder).curve()
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(ConfigError, match=f"has no eval/return_mean: it {how} before its first row"):
        LoggedRun.load(folder).curve()
