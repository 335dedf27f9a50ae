"""The clocks of a run: every moment counts for one activity."""

import json
from collections import Counter

import pytest

from rl_training.runtime import metrics
from rl_training.runtime.metrics import Stopwatch
from tests.helpers import tiny_run

PARTS = ["environments", "acting", "gradient_steps", "evaluation", "saving", "rest"]


def test_every_second_counts_once(monkeypatch):
    times = iter([100.0, 100.0, 101.0, 103.0, 107.0, 115.0, 131.0, 132.0])
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: next(times))
    monkeypatch.setattr(metrics.time, "time", lambda: 1700000000.25)
    watch = Stopwatch()  # 100
    watch.start(10)  # 100
    watch.switch("acting")  # 101: one second of rest
    watch.switch("gradient_steps")  # 103: two of acting
    with watch.during("evaluation"):  # 107: four of gradient steps
        pass  # 115: eight of evaluation
    lap = watch.lap(41, {"step": 41})  # 131: sixteen more of gradient steps
    assert lap == {
        "step": 41,
        "started": 1700000000.25,
        "seconds": 31.0,
        "steps_per_second": 1.0,
        "seconds/environments": 0.0,
        "seconds/acting": 2.0,
        "seconds/gradient_steps": 20.0,
        "seconds/evaluation": 8.0,
        "seconds/saving": 0.0,
        "seconds/rest": 1.0,
    }
    assert watch.lap(42, {})["steps_per_second"] == 1.0


@pytest.mark.parametrize(("algo", "unused"), [("sac", set()), ("iql", {"environments", "acting"})])
def test_a_run_says_where_its_time_went(tmp_path, algo, unused):
    tiny_run(tmp_path, algo)
    rows = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    for row in rows:
        assert sum(row[f"seconds/{part}"] for part in PARTS) == pytest.approx(row["seconds"], abs=0.004)
    assert {part for part in PARTS if rows[-1][f"seconds/{part}"] == 0.0} == unused


def test_each_process_marks_its_rows(tmp_path):
    tiny_run(tmp_path, learning_rate_schedule="constant")
    tiny_run(tmp_path, learning_rate_schedule="constant", total_timesteps=160, resume=True)
    rows = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert list(Counter(row["started"] for row in rows).values()) == [12, 4]
