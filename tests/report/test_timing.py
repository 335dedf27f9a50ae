"""The time of a run, over the processes that worked on it."""

import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.report import facts
from rl_training.report.live.progress import progress_of
from rl_training.report.timing import processes, timing_of
from tests.report.run_files import write_run


def test_time_adds_up_over_processes(tmp_path):
    rows = [
        {"step": 50, "seconds": 5.0, "seconds/gradient_steps": 4.0, "seconds/rest": 1.0},
        {"step": 100, "seconds": 10.0, "seconds/gradient_steps": 8.0, "seconds/rest": 2.0},
        {"step": 80, "seconds": 2.0, "seconds/gradient_steps": 2.0},  # resumed at 60
        {"step": 120, "seconds": 6.0, "seconds/gradient_steps": 5.0},
    ]
    run = LoggedRun.load(write_run(tmp_path / "run", [], timings=rows))
    timing = timing_of(run)
    assert (timing.seconds, timing.activities) == (16.0, {"gradient_steps": 13.0, "rest": 2.0})
    assert (timing.positions, timing.elapsed) == ([50, 80, 120], [5.0, 12.0, 16.0])
    assert timing.speeds == {"step": (50 + 40) / (5 + 4)}, "without the start of either process"
    assert facts.speed_text(timing) == "10 gradient steps per second"


def test_a_run_without_timings_has_no_speed(tmp_path):
    run = LoggedRun.load(write_run(tmp_path / "run", []))
    assert (timing_of(run).seconds, timing_of(run).speeds, facts.speed_text(timing_of(run))) == (0.0, {}, "")
    assert facts.steps_text(run) == "no steps yet"


def test_speeds_are_of_a_phase_and_of_late_while_a_run_goes_on(tmp_path):
    offline = [{"step": 10 * i, "seconds": float(i)} for i in range(1, 21)]
    online = [{"step": 200 + i, "env_step": i, "seconds": 100.0 + (i if i < 20 else 20 + 4 * (i - 20))} for i in range(1, 31)]
    run = LoggedRun.load(write_run(tmp_path / "run", [], timings=[*offline, *online], finetune={"env_steps": 90}))
    assert timing_of(run).speeds == {"step": 10.0, "env_step": pytest.approx(29 / 59)}
    assert facts.speed_text(timing_of(run)) == (
        "10 gradient steps per second offline, 0.4915 environment steps per second online"
    )
    going_on = LoggedRun.load(
        write_run(tmp_path / "now", [], timings=[*offline, *online], finetune={"env_steps": 90}, status="running")
    )
    assert timing_of(going_on).speeds == {"step": 10.0, "env_step": 0.25}
    assert progress_of(going_on).speed == 0.25


def rows_of_a_slow_start(*marks):
    """Killed at step 10 after 100 s; the next process goes on from there, and has its first row only after 130 s."""
    rows = [
        {"step": 5, "seconds": 50.0, "seconds/gradient_steps": 50.0, "seconds/rest": 0.0},
        {"step": 10, "seconds": 100.0, "seconds/gradient_steps": 100.0, "seconds/rest": 0.0},
        {"step": 15, "seconds": 130.0, "seconds/gradient_steps": 101.0, "seconds/rest": 29.0},
        {"step": 20, "seconds": 230.0, "seconds/gradient_steps": 201.0, "seconds/rest": 29.0},
    ]
    return [{**row, "started": mark} for row, mark in zip(rows, marks, strict=True)] if marks else rows


def test_a_restart_is_known_by_its_mark(tmp_path):
    """No count falls from the second row to the third."""
    run = LoggedRun.load(write_run(tmp_path / "run", [], timings=rows_of_a_slow_start(1.5, 1.5, 2.5, 2.5)))
    timing = timing_of(run)
    assert (timing.seconds, timing.activities) == (330.0, {"gradient_steps": 301.0, "rest": 29.0})
    assert (timing.positions, timing.elapsed) == ([5, 10, 15, 20], [50.0, 100.0, 230.0, 330.0])
    assert progress_of(run).speed == timing.speeds["step"] == pytest.approx(10 / 150)  # as a whole, since it is over
    run = LoggedRun.load(write_run(tmp_path / "one", [], timings=rows_of_a_slow_start(1.5, 1.5, 1.5, 1.5)))
    assert timing_of(run).seconds == 230.0


@pytest.mark.parametrize(
    "change",
    [
        {"step": 10},
        {"step": 9, "env_step": 0},
        {"seconds": 99.0},
        {"seconds/gradient_steps": 30.0},
        {"started": 2.5},  # an earlier version wrote the rows before it
    ],
)
def test_rows_without_marks_are_told_apart_by_what_cannot_fall(change):
    rows = rows_of_a_slow_start()
    assert len(processes(rows)) == 1
    assert [len(one) for one in processes([*rows[:2], {**rows[2], **change}])] == [2, 1]
    assert processes([]) == []


def test_online_rows_rise_by_environment_steps():
    rows = [
        {"step": 10, "seconds": 1.0},
        {"step": 10, "env_step": 5, "seconds": 2.0},
        {"step": 10, "env_step": 9, "seconds": 3.0},
    ]
    assert processes(rows) == [rows]
