"""Following a run directory: only what is new is read, whatever happens to the files."""

import fcntl
import json
import os
import shutil
import socket

import numpy as np
import pytest

from rl_training.analysis.history import History
from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.errors import CheckpointError, ConfigError
from rl_training.report.live.follow import RowTail, RunFollower, check_distinct
from rl_training.runtime.checkpoints.lock import RunLock, is_in_use
from tests.helpers import contents
from tests.report.run_files import population, rows_of, write_run


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_process_that_has_written_how_it_ended_is_about_to_leave(tmp_path):
    run = write_run(tmp_path / "run", [], status="StoppedBySignal")
    follower = RunFollower(run)
    with RunLock(run):
        os.utime(run / "run.lock", (20.0, 20.0))
        os.utime(run / "run.json", (10.0, 10.0))  # another process wrote it: this one has begun to work on the run
        follower.poll()
        assert follower.alive is True
        os.utime(run / "run.json", (30.0, 30.0))
        follower.poll()
        assert follower.alive is False


@pytest.fixture
def tail(tmp_path):
    return RowTail(tmp_path / "metrics.jsonl")


def test_only_complete_new_rows_are_read(tail):
    rows = rows_of(RETURN, [[1.0], [2.0], [3.0]])
    assert tail.news() == ([], False)
    tail.path.write_text(lines(rows[:1]) + '{"step"')
    assert tail.news() == (rows[:1], True)
    assert tail.news() == ([], False)
    tail.path.write_text(lines(rows))
    assert tail.news() == (rows[1:], False)


def test_what_was_read_is_not_read_again(tail, monkeypatch):
    rows = rows_of(RETURN, [[float(i)] for i in range(1000)])
    tail.path.write_text(lines(rows))
    tail.news()
    with tail.path.open("a") as stream:
        stream.write(lines(rows[:1]))
    parsed = []
    monkeypatch.setattr("rl_training.report.live.follow.parse_rows", lambda text, _: (parsed.append(text), ([], 0))[1])
    tail.news()
    assert parsed == [lines(rows[:1]).encode()]


@pytest.mark.parametrize("after", [2, 40])
def test_a_file_that_was_cut_and_written_again_is_read_from_its_start(tail, after):
    old, new = ([[value + i] for i in range(30)] for value in (0.0, 0.5))
    tail.path.write_text(lines(rows_of(RETURN, old)))
    tail.news()
    rows = rows_of(RETURN, [*old[:1], *new, *new][:after])
    with tail.path.open("r+") as stream:  # the same file, as a resume leaves it: shorter, or longer again
        stream.write(lines(rows))
        stream.truncate()
    assert tail.news() == (rows, True)


def test_a_file_that_is_replaced_or_removed(tail):
    tail.path.write_text(lines(rows_of(RETURN, [[1.0], [2.0]])))
    tail.news()
    tail.path.unlink()
    assert tail.news() == ([], True)
    tail.path.write_text(lines(rows_of(RETURN, [[5.0]])))
    assert tail.news() == (rows_of(RETURN, [[5.0]]), True)


def test_a_damaged_file_is_told(tail):
    tail.path.write_text("{]\n")
    with pytest.raises(CheckpointError, match="metrics.jsonl: line 1 is damaged"):
        tail.news()


def test_a_history_grows_to_what_all_rows_give():
    rows = [
        {"step": 10, "member": 0, "train/loss": 0.5, "count": 2},
        {"step": 10, "member": 1, "train/loss": 0.6, "count": 3},
        {"step": 20, "member": 0, "train/loss": 0.7, "count": 4},
        {"step": 10, "member": 0, RETURN: 3.0},  # an evaluation that was written later
        {"step": 20, "member": 1, "event": "stopped"},
        {"env_step": 5, "step": 25, "member": 0, "train/loss": 0.1, "count": 5},
    ]
    whole = History.of_rows(rows)
    assert whole["step"].tolist() == [10, 10, 20, 20, 25]
    assert whole["event"].tolist() == ["", "", "", "stopped", ""]
    np.testing.assert_array_equal(whole[RETURN], [3.0, np.nan, np.nan, np.nan, np.nan])
    assert (whole["step"].dtype, whole["count"].dtype) == (np.int64, np.float64)
    for cut in range(len(rows) + 1):
        grown = History.of_rows(rows[:cut]).extended(rows[cut:])
        assert set(grown) == set(whole)
        for name, column in whole.items():
            np.testing.assert_array_equal(grown[name], column)
            assert grown[name].dtype == column.dtype


def append(run, rows):
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write(lines(rows))


def assert_same(follower, folder):
    fresh = LoggedRun.load(folder)
    assert set(follower.run.history) == set(fresh.history)
    for name, column in fresh.history.items():
        np.testing.assert_array_equal(follower.run.history[name], column)
    assert (follower.run.timings, follower.run.record, follower.run.config) == (fresh.timings, fresh.record, fresh.config)


def test_a_followed_run_is_the_run_as_loaded(tmp_path):
    folder = population(tmp_path / "run", status="running")
    before = contents(folder)
    follower = RunFollower(folder)
    assert follower.poll()
    assert not follower.poll()
    assert_same(follower, folder)
    assert contents(folder) == before
    append(folder, rows_of(RETURN, [[1.0, 2.0, 3.0]], (0, 1, 2), every=500))
    assert follower.poll()
    assert follower.run.curve().values[-1].tolist() == [1.0, 2.0, 3.0]
    assert_same(follower, folder)
    population(folder, points=4)  # it starts over, and ends
    assert follower.poll()
    assert_same(follower, folder)
    assert follower.run.record["status"] == "finished"


@pytest.mark.parametrize("failing", ["metrics.jsonl", "timings.jsonl"])
def test_no_row_is_lost_if_a_file_cannot_be_read_for_a_moment(tmp_path, monkeypatch, failing):
    folder = population(tmp_path / "run", status="running")
    follower = RunFollower(folder)
    follower.poll()
    append(folder, rows_of(RETURN, [[1.0, 2.0, 3.0]], (0, 1, 2), every=500))
    with (folder / "timings.jsonl").open("a") as stream:
        stream.write(lines([{"step": 500, "seconds": 90.0}]))
    real = RowTail._read

    def read(tail, *, again):
        if tail.path.name == failing:
            os.utime(folder / "run.json", (1.0, 1.0))  # something changes meanwhile
            raise OSError(5, "Input/output error")
        return real(tail, again=again)

    with monkeypatch.context() as patch:
        patch.setattr(RowTail, "_read", read)
        assert follower.poll()
    assert follower.poll()
    assert_same(follower, folder)


def test_a_run_that_is_removed_or_is_none(tmp_path):
    folder = population(tmp_path / "run")
    follower = RunFollower(folder)
    follower.poll()
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match="run: was removed, or is no longer a run"):
        follower.poll()
    with pytest.raises(CheckpointError, match="there is no run here; pass a run directory, or wait for it with"):
        RunFollower(folder)
    folder.mkdir()
    with pytest.raises(CheckpointError, match="is not a run directory"):
        RunFollower(folder).poll()
    with pytest.raises(ConfigError, match="is named twice"):
        check_distinct([folder, tmp_path / "." / "run"])


def test_a_run_that_lost_its_record_is_not_waited_for(tmp_path):
    folder = population(tmp_path / "run")
    (folder / "run.json").unlink()
    with pytest.raises(CheckpointError, match="its run.json is missing; use another copy of the run, or `rl-training resume"):
        RunFollower(folder, wait=True).poll()


def test_a_run_that_begins_is_waited_for(tmp_path):
    folder = tmp_path / "run"
    follower = RunFollower(folder, wait=True)
    assert (follower.poll(), follower.run) == (True, None)
    assert not follower.poll()
    with RunLock(folder):  # a process reads its data
        other = RunFollower(folder)
        assert (other.poll(), other.run, other.alive) == (True, None, True)
        population(folder)
        assert other.poll()
        assert follower.poll()
    assert follower.run.name == other.run.name == "run"


def test_a_lock_is_seen_and_not_taken(tmp_path):
    assert is_in_use(tmp_path) is False
    with RunLock(tmp_path):
        assert is_in_use(tmp_path) is True
    assert is_in_use(tmp_path) is False
    with RunLock(tmp_path):  # it can be taken again
        pass
    path = tmp_path / "run.lock"
    path.write_text(json.dumps({"host": socket.gethostname() + "-other", "pid": os.getpid()}))
    assert is_in_use(tmp_path) is None
    path.write_text("{")
    assert is_in_use(tmp_path) is None


def test_without_a_list_of_locks_the_process_tells(tmp_path, monkeypatch):
    path = tmp_path / "run.lock"
    monkeypatch.setattr("pathlib.Path.read_text", lambda _, **__: (_ for _ in ()).throw(FileNotFoundError))
    for signal, known in ((None, True), (ProcessLookupError, False), (PermissionError, True)):
        path.write_text(json.dumps({"host": socket.gethostname(), "pid": 12}))

        def kill(process, number, signal=signal):
            assert (process, number) == (12, 0)
            if signal:
                raise signal

        monkeypatch.setattr("os.kill", kill)
        assert is_in_use(tmp_path) is known


def test_a_follower_leaves_the_lock_to_a_run_that_starts(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[1.0]], (0,)), status="running")
    (folder / "run.lock").write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("the lock was touched"))
    assert RunFollower(folder).poll()
