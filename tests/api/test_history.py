"""The metrics of a run as columns."""

import shutil

import numpy as np
import pytest

from rl_training import IQL
from rl_training.analysis.history import History
from rl_training.errors import CheckpointError, ConfigError, StorageError
from tests.helpers import checkpoints, metric_rows

MODEL = {
    "dataset": {"kind": "random", "size": 400},
    "hidden_sizes": [16, 16],
    "batch_size": 32,
    "eval_interval": 50,
    "eval_episodes": 2,
    "log_interval": 25,
}


def test_columns_are_the_metric_rows(finished):
    run = finished("iql", [0, 7]).run_dir
    history, rows = IQL.load(run).history, metric_rows(run)
    assert len({len(column) for column in history.values()}) == 1
    assert len(history["step"]) == 24  # 12 logged steps of two members; evaluations are at logged steps
    assert history["step"].dtype == history["member"].dtype == np.int64
    assert set(history["seed"]) == {0, 7}
    for name in ("train/critic_loss", "eval/return_mean"):
        for member in (0, 1):
            column = history.rows_with(name, member)
            mine = [row for row in rows if row["member"] == member and name in row]
            assert column[name].tolist() == [row[name] for row in mine]
            assert column["step"].tolist() == [row["step"] for row in mine]
            assert set(column["member"]) == {member}
    assert np.isnan(history["eval/return_mean"]).sum() == 24 - 6
    assert list(history)[:3] == ["step", "member", "seed"]


def test_a_frame_of_it(finished):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(IQL.load(finished("iql", [0, 7]).run_dir).history)
    assert frame.dropna(subset="eval/return_mean").groupby("member")["eval/return_mean"].count().tolist() == [3, 3]


def test_before_during_and_after_training(tmp_path):
    model = IQL("Pendulum-v1", run_dir=tmp_path / "run", **MODEL)
    assert model.history == {}
    assert model.learn(50).history["step"].tolist() == [25, 50]
    assert model.learn(100).history["step"].tolist() == [25, 50, 75, 100]
    assert IQL.load(tmp_path / "run").history["step"].tolist() == [25, 50, 75, 100]
    assert IQL.load(tmp_path / "run", checkpoint=50).history["step"].tolist() == [25, 50]  # up to that checkpoint
    assert IQL.load(checkpoints(tmp_path / "run")[0]).history["step"].tolist() == [25, 50]
    model.finetune(50)
    online = model.history.rows_with("env_step")
    assert online["env_step"].tolist() == [25, 50]
    assert model.history["step"].tolist() == [25, 50, 75, 100, 125, 150]


def test_one_member_and_a_lone_checkpoint(finished, tmp_path):
    run = finished("iql", [0, 7]).run_dir
    history = IQL.load(run, member=1).history
    assert set(history["member"]) == {0}
    assert set(history["seed"]) == {7}
    assert IQL.load(shutil.copytree(checkpoints(run)[-1], tmp_path / "alone")).history == {}


def test_words_and_gaps():
    rows = [
        {"step": 1, "member": 0, "train/loss": 0.5},
        {"step": 1, "member": 0, "eval/return_mean": 3},
        {"step": 2, "member": 0, "event": "stopped"},
    ]
    history = History.of_rows(rows)
    assert history["step"].tolist() == [1, 2]
    assert history["event"].tolist() == ["", "stopped"]
    assert history.rows_with("event")["step"].tolist() == [2]
    assert history.rows_with("train/loss")["eval/return_mean"].tolist() == [3.0]
    with pytest.raises(ConfigError, match="no metric 'eval/return' was written. Did you mean `eval/return_mean`?"):
        history.rows_with("eval/return")


def test_a_damaged_or_missing_file_is_one_line(finished, tmp_path):
    model = IQL.load(finished.copy(tmp_path / "run"))
    path = tmp_path / "run" / "metrics.jsonl"
    kept = path.read_bytes()
    path.write_bytes(b"{" + kept)
    with pytest.raises(CheckpointError, match="metrics.jsonl: is damaged"):
        _ = model.history
    path.write_bytes(kept[:-500])
    with pytest.raises(CheckpointError, match="metrics.jsonl: is (shorter|damaged)"):
        _ = model.history
    path.unlink()
    with pytest.raises(StorageError, match="metrics.jsonl: cannot be read"):
        _ = model.history
