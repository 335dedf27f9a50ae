"""How runs ended, and what is missing in their files."""

import json

from rl_training.analysis.endings import ended_early, furthest, missing_rows, seeds_text
from rl_training.analysis.logged_run import RETURN, LoggedRun
from tests.report.run_files import rows_of, write_run


def loaded(*folders):
    return [LoggedRun.load(folder) for folder in folders]


def test_a_member_that_stopped_and_was_trained_on_has_not_ended(tmp_path):
    rows = rows_of(RETURN, [[1.0, 5.0], [4.0, 2.0]])
    rows += [
        {"step": 10, "member": 0, "seed": 0, "event": "stopped"},
        {"step": 20, "member": 1, "seed": 1, "event": "stopped"},
    ]
    (run,) = loaded(write_run(tmp_path / "run", rows))
    assert ended_early(run) == {1: "stopped at step 20"}


def test_rows_that_are_missing_are_told(tmp_path):
    rows = rows_of(RETURN, [[1.0, 5.0, 2.0], [4.0, None, 3.0]], seeds=(4, 5, 6))
    folder = write_run(tmp_path / "run", rows)
    text = "members were last evaluated at different steps, which final returns mix: seeds 4, 6 at step 20; seed 5 at step 10"
    assert missing_rows(*loaded(folder)) == [text]
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 20, "mem')
    cut = "the last line of metrics.jsonl is incomplete and is left out"
    assert missing_rows(*loaded(folder)) == [cut, text]
    assert missing_rows(*loaded(write_run(tmp_path / "goes on", rows, status="running"))) == []
    ended = [*rows, {"step": 10, "member": 1, "seed": 5, "event": "diverged"}]
    assert missing_rows(*loaded(write_run(tmp_path / "diverged", ended))) == []
    never = rows_of(RETURN, [[1.0, None]]) + rows_of("train/q_mean", [[1.0, 1.0]])
    assert missing_rows(*loaded(write_run(tmp_path / "never", never)))[0].endswith("seed 0 at step 10; seed 1 never")


def test_a_finished_run_without_rows_says_so(tmp_path):
    folder = write_run(tmp_path / "run", [])
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "step": 5000}))
    (run,) = loaded(folder)
    assert missing_rows(run) == ["metrics.jsonl is empty, so there are no curves and no returns"]
    assert (furthest(run, "step"), furthest(run, "env_step")) == (5000, None)
    (folder / "metrics.jsonl").unlink()
    assert missing_rows(*loaded(folder)) == ["metrics.jsonl is missing, so there are no curves and no returns"]


def test_seeds_for_people():
    assert seeds_text([3]) == "seed 3"
    assert seeds_text([1, 0]) == "seeds 0, 1"
    assert seeds_text([5, 6, 7, 8, 9, 3]) == "seeds 3, 5 to 9"
    assert seeds_text(range(0, 40, 2)) == "seeds 0, 2, 4, 6, 8, 10, ..."
