"""Every file of a run is checked; each problem names the file and what to do, and nothing is changed."""

import json
import os

import pytest

from rl_training.data import save_dataset
from rl_training.errors import RunBusyError
from rl_training.integrity.files import check_files
from rl_training.runtime.checkpoints.lock import RunLock
from tests.golden.runs import rows
from tests.helpers import call_cli, checkpoints, contents, tiny_run


@pytest.fixture
def run(finished, tmp_path):
    return finished.copy(tmp_path / "run", "rlpd")


def named(run):
    return {os.path.relpath(problem.file, run) for problem in check_files(run).problems}


def test_a_whole_run_is_whole_and_left_alone(run, capsys):
    before = contents(run)
    done = call_cli(capsys, "verify", run)
    assert done.stdout.startswith("whole: run.json, 4 checkpoints, 6 replay segments, ")
    assert contents(run) == before


def change(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("run.json", b"finished", b"finishes"),
        ("config.yaml", b"batch_size: 32", b"batch_size: 33"),
        ("config.yaml", b"algo: rlpd", b"algo: \xff"),
        ("checkpoints/latest.json", b"step", b"stop"),
        ("checkpoints/best.json", b"checkpoint", b"checkpaint"),
        ("checkpoints/best.json", b"sha256", b"sha257"),
        ("metrics.jsonl", b"{", b"["),
        ("timings.jsonl", b'"', b"'"),
    ],
)
def test_a_changed_file_is_named_with_what_to_do(run, file, old, new, capsys):
    change(run / file, old, new)
    assert named(run) == {file}
    done = call_cli(capsys, "verify", run, code=4)
    assert f"problem: {run / file}: " in done.stdout
    assert "error: " in done.stderr
    assert "is not whole (1 problem found)" in done.stderr


def test_damaged_checkpoints_and_replay_are_named(run):
    newest = checkpoints(run)[-1]
    change(newest / "state.safetensors", b"actor", b"actar")
    (problem,) = check_files(run).problems
    assert problem.file == str(newest / "state.safetensors")
    assert problem.advice.startswith("delete it, and resume goes on from ")
    segment = min((run / "replay").iterdir())
    segment.write_bytes(segment.read_bytes()[:-1])
    assert named(run) == {os.path.relpath(newest / "state.safetensors", run), os.path.relpath(segment, run)}


def test_metrics_that_a_checkpoint_misses_and_links_are_named(run):
    (run / "metrics.jsonl").write_bytes(b"")
    assert named(run) == {"metrics.jsonl"}
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("elsewhere")
    (problem,) = check_files(run).problems
    assert problem.what == "is not a plain file"


def test_a_half_line_after_a_kill_is_no_problem(run):
    with (run / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"step": 1')
    assert check_files(run).whole


def test_one_checkpoint_is_checked_alone(run, capsys):
    newest = checkpoints(run)[-1]
    found = json.loads(call_cli(capsys, "verify", newest, "--json").stdout)
    assert found["passed"] is True
    change(newest / "state.json", b"seeds", b"seats")
    found = json.loads(call_cli(capsys, "verify", newest, "--json", code=4).stdout)
    assert found["files"]["problems"][0]["file"] == str(newest / "state.json")


def test_files_of_data_are_compared_with_what_was_trained_on(tmp_path):
    data = save_dataset(rows(200), tmp_path / "data")
    tiny_run(tmp_path / "run", total_timesteps=10, eval_interval=10, algo_kwargs={"dataset": {"path": str(data)}})
    assert "the files of data" in check_files(tmp_path / "run").checked
    change(data / "rows.npy", (data / "rows.npy").read_bytes()[-8:], b"12345678")
    (problem,) = check_files(tmp_path / "run").problems
    assert problem.file == str(data / "rows.npy")
    save_dataset(rows(200, seed=1), data, overwrite=True)
    (problem,) = check_files(tmp_path / "run").problems
    assert (problem.file, problem.what[:30]) == ("the data", "has changed since step-00000001"[:30])


def test_a_folder_that_is_no_run_is_told(tmp_path, capsys):
    assert "is not a run directory; name one" in call_cli(capsys, "verify", tmp_path, code=4).stderr


def test_a_run_in_use_is_not_judged(run):
    with RunLock(run), pytest.raises(RunBusyError, match="is in use"):
        check_files(run)
