"""What is shown of a run while it goes on, at several sizes, and when it ends."""

import json
import os
import shutil
import socket

import numpy as np
import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.config.loading import make_config
from rl_training.errors import CheckpointError, ConfigError
from rl_training.report.facts import GONE, steps_text
from rl_training.report.live.plot import Glyphs, sparkline
from rl_training.report.live.progress import progress_of, state_of
from rl_training.report.live.screen import Size
from rl_training.report.live.view import view_of
from rl_training.report.live.watching import Watched, present_run, watch_runs
from rl_training.report.tables import markdown
from rl_training.runtime.checkpoints.lock import RunLock
from tests.helpers import contents
from tests.report.run_files import finetune, population, rows_of, timing_rows, without_environment, write_run

NOW = 1_800_000_000.0


def shown(folder, width, height, *, unicode=False, waited=0.0):
    """The lines of a run on a screen, some time after its last row."""
    for file in folder.glob("*.*"):
        os.utime(file, (NOW, NOW))
    run = Watched(folder, lambda: NOW + waited)
    run.poll()
    lines = [line.plain for line in run.lines(Size(width, height, Glyphs(unicode)))]
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert unicode or all(line.isascii() for line in lines)
    return [line.rstrip() for line in lines]


def test_a_finetune_in_ascii_on_a_small_screen(tmp_path):
    assert shown(finetune(tmp_path / "fine"), 40, 14) == [
        "fine: iql on random, then online in Pen~",
        "finished, online: environment step 60 of",
        "60 (100 %)",
        "mean return -10.00 (-11.00 to -9.000),",
        "best -10.00 (-11.00 to -9.000)",
        "return, online from 60, mean of 2 membe~",
        "-9.000|           :***        **********",
        "      |   :*********!**********",
        "-90.00|*****        !",
        "      +---------------------------------",
        "       20                            120",
        "seed    last    best  at step  status",
        "   0  -11.00  -11.00   env 60  finished",
        "   1  -9.000  -9.000   env 60  finished",
    ]


def test_on_the_smallest_screen_what_matters_most_stays(tmp_path):
    assert shown(finetune(tmp_path / "fine"), 20, 6) == [
        "fine: iql on random~",
        "finished, online:",
        "environment step 60",
        "of 60 (100 %)",
        "mean return -10.00",
        "(-11.00 to -9.000),",
    ]


def test_what_is_missing_in_the_metrics_of_an_ended_run_is_told(tmp_path, capsys):
    run = population(tmp_path / "run")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    returns = [json.dumps(row) for row in rows if RETURN in row]
    (run / "metrics.jsonl").write_text("\n".join(returns)[:-9])
    cut = "the last line of metrics.jsonl is incomplete and is left out"
    uneven = "members were last evaluated at different steps, which final returns mix"
    told = " ".join(shown(run, 80, 40))
    assert f"warning: {cut}" in told
    assert f"warning: {uneven}" in told
    watch_runs([run])
    line = capsys.readouterr().out
    assert f"warning: {cut}, warning: {uneven}" in line
    assert line.count("\n") == 1
    (run / "metrics.jsonl").unlink()
    assert "warning: metrics.jsonl is missing, so there are no curves and no returns" in shown(run, 80, 40)


def test_a_run_under_way_on_a_usual_screen(tmp_path):
    folder = population(tmp_path / "run", points=4, status="running")
    (folder / "run.lock").write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    lines = shown(folder, 80, 23, unicode=True, waited=3.0)
    assert lines[:5] == [
        "run: iql on random, 3 members",
        "running, offline: step 40 of 100 (40 %)",
        "2.000 gradient steps/s, 27.0 s left, mean return -82.00 (-85.00 to -79.00), best",
        "-82.00 (-85.00 to -79.00)",
        "return, mean of 3 members, band from the lowest to the highest",
    ]
    assert lines[5].startswith("-79.00│")
    assert lines[5].endswith(" ⡀⡀⡀⡀⡂⡂⡂")
    assert lines[-6:] == [
        "seed    last    best  at step  status",
        "   0  -85.00  -85.00       40  running",
        "   1  -82.00  -82.00       40  running",
        "   2  -79.00  -79.00       40  running",
        "critic_loss █▄▂▁ 0.2056",
        "q_mean      █▆▃▁ -3.000",
    ]


def test_members_of_a_run_whose_process_is_gone_do_not_run(tmp_path):
    lines = shown(population(tmp_path / "run", points=4, status="running"), 90, 23, waited=11.0)
    assert lines[1].startswith("failed: its process is gone; go on with `rl-training resume ")
    assert [line for line in lines if line.endswith(" running")] == []
    assert "   0  -85.00  -85.00       40  failed: its process is gone" in lines


def test_the_step_of_the_best_evaluation_is_whole(tmp_path):
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[5.0, 1.0]], every=2500), total_timesteps=2500)
    assert shown(folder, 60, 13)[-2:] == ["   0  5.000  5.000    2,500  finished", "   1  1.000  1.000    2,500  finished"]


def test_a_population_of_64_shows_the_best_and_sums_up_the_others(tmp_path):
    lines = shown(population(tmp_path / "pop", members=64), 120, 23)
    table = lines[lines.index("seed   last   best  at step  status") + 1 :]
    assert table[0] == "  63  648.0  648.0      120  finished"
    assert table[4] == "and 60 more: -45.00 to 604.0"
    assert "return, interquartile mean of 64 members, band over the middle half" in lines


def test_a_run_without_an_environment_shows_its_figures_on_held_out_rows(tmp_path):
    lines = shown(without_environment(tmp_path / "no"), 80, 23)
    assert lines[2] == "distance to held-out actions 0.1050 (0.1000 to 0.1100)"
    assert lines[-6:-2] == [
        "   0    0.1000  finished",
        "   1    0.1100  finished",
        "validation/constant_dista~ ___ 0.4000",
        "validation/cloning_distan~ ___ 0.05000",
    ]


def test_members_without_any_figure_have_no_column_for_it(tmp_path):
    folder = write_run(tmp_path / "run", rows_of("train/critic_loss", [[1.0, 2.0]]))
    assert shown(folder, 60, 13)[-3:] == ["seed  status", "   0  finished", "   1  finished"]


def test_a_diverged_member_comes_last(tmp_path):
    rows = [*rows_of(RETURN, [[5.0, 1.0, 2.0]], (0, 1, 2)), {"step": 10, "member": 0, "seed": 0, "event": "diverged"}]
    lines = shown(write_run(tmp_path / "run", rows), 60, 14)
    assert lines[-2:] == ["   2  2.000  2.000       10  finished", "and 2 more: 1.000, 1 diverged"]
    assert lines[1:5] == [
        "finished, 1 of 3 members diverged, offline: step 10 of 100",
        "(10 %)",
        "mean of each member's last return 2.667 (1.000 to 5.000),",
        "best 2.667 (1.000 to 5.000)",
    ]


def test_a_population_that_lost_members_has_the_colour_of_a_warning(tmp_path):
    rows = rows_of(RETURN, [[5.0, 1.0], [None, 2.0]])
    whole = write_run(tmp_path / "whole", rows)
    lost = write_run(tmp_path / "lost", [*rows, {"step": 20, "member": 0, "seed": 0, "event": "diverged"}])
    for folder, style in ((whole, "bold green"), (lost, "yellow")):
        run = Watched(folder, lambda: NOW)
        run.poll()
        assert run.lines(Size(60, 13, Glyphs(unicode=False)))[1].style == style
    assert "return, mean of 2 to 1 of 2 members, band from the lowest t~" in shown(lost, 60, 13)
    assert run.line().startswith("lost: finished, 1 of 2 members diverged, offline: step 20 of 100")


def test_the_best_is_that_of_the_report(tmp_path):
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[1.0, 8.0], [3.0, 2.0]]))
    assert "mean return 2.500 (2.000 to 3.000), best 5.500 (3.000 to 8.000)" in shown(folder, 80, 13)
    assert "| 2.500 (2.000 to 3.000) | 5.500 (3.000 to 8.000) |" in markdown([LoggedRun.load(folder)], "")


def test_metrics_beside_the_curve_have_the_same_middle_of_the_same_members(tmp_path):
    """The interquartile mean of five members, and of a sweep those of the best combination."""
    seeds = range(5)
    rows = rows_of(RETURN, [[1.0, 2.0, 3.0, 4.0, 5.0]], seeds) + rows_of(
        "train/critic_loss", [[1.0, 2.0, 3.0, 4.0, 90.0]], seeds
    )
    view = view_of(LoggedRun.load(write_run(tmp_path / "run", rows)))
    assert view.metrics["train/critic_loss"].tolist() == [3.0]
    rows = rows_of(RETURN, [[1.0, 30.0, 2.0, 50.0]], (0, 1, 0, 1))
    rows += rows_of("train/critic_loss", [[7.0, 7.0, 2.0, 4.0]], (0, 1, 0, 1))
    view = view_of(LoggedRun.load(write_run(tmp_path / "sweep", rows, seeds=[0, 1], sweep=[{"expectile": [0.7, 0.9]}])))
    assert view.metrics["train/critic_loss"].tolist() == [3.0]
    assert view.result() == "mean return 26.00 (2.000 to 50.00), best 26.00 (2.000 to 50.00)"


def test_a_run_with_no_rows_has_only_a_head(tmp_path):
    folder = write_run(tmp_path / "run", [], status="running")
    (folder / "run.lock").write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    assert shown(folder, 80, 23) == [
        "run: iql on random, seed 0",
        "running; no row has been written yet, offline: step 0 of 100 (0 %)",
    ]


@pytest.mark.parametrize("values", [[[3.0]], [[3.0], [3.0]]])
def test_one_point_and_a_level_curve_are_drawn(tmp_path, values):
    lines = shown(write_run(tmp_path / "run", rows_of(RETURN, values, (0,))), 40, 12)
    assert sum("*" in line for line in lines) == 1
    assert lines[4] == "3.300|"


def test_sparklines():
    glyphs = Glyphs(unicode=False)
    assert sparkline(np.array([0.0, 7.0, np.nan]), 10, glyphs) == "_@"
    assert sparkline(np.array([1.0, 1.0]), 10, glyphs) == "__"
    assert sparkline(np.array([0.0, 2.0, 6.0, 10.0]), 2, glyphs) == "_@"
    assert sparkline(np.array([]), 10, glyphs) == ""
    assert sparkline(np.array([0.0, np.inf, 7.0]), 10, glyphs) == "_@"


def test_infinite_values_are_left_out_of_a_curve(tmp_path):
    rows = rows_of("train/critic_loss", [[1.0, 2.0], [float("inf"), 3.0], [3.0, 4.0]])
    lines = shown(write_run(tmp_path / "run", rows), 60, 13)
    assert lines[2] == "critic_loss 3.500 (3.000 to 4.000)"
    assert lines[4].startswith("4.000|")


def state(folder, alive, waited=0.0, usual=2.0):
    found = state_of(LoggedRun.load(folder), alive, waited, usual)
    return found.kind, found.text, found.code, found.ended


def ended(folder, status, message=None):
    return write_run(folder, rows_of(RETURN, [[1.0]], (0,)), status=status, message=message)


def test_whether_a_run_goes_on(tmp_path):
    running = ended(tmp_path / "run", "running")
    assert state(running, True) == ("running", "running", 0, False)
    assert state(running, True, waited=59.0)[0] == "running"
    still = "not moving: no new row for 1 min, usually at most 2.0 s; its process is alive"
    assert state(running, True, waited=61.0) == ("not moving", still, 0, False)
    assert state(running, True, waited=61.0, usual=30.0)[0] == "running"
    assert state(running, None, waited=400.0, usual=None)[1].endswith("for 7 min; its process is on another machine")
    assert state(running, False, waited=5.0)[0] == "running"  # a copy of a run, to which a row has just come
    gone = f"failed: its process is gone; go on with `rl-training resume {running}`"
    assert state(running, False, waited=11.0) == ("failed", gone, 1, True)


def test_a_killed_process_is_seen_at_once(tmp_path):
    running = ended(tmp_path / "run", "running")
    with RunLock(running):
        assert present_run(running).record["status"] == "running"
    written = (running / "metrics.jsonl").stat().st_mtime  # the lock stays, free, as the kernel leaves it after a kill
    assert present_run(running, lambda: written).record["status"] == GONE
    assert watch_runs([running], once=True, clock=lambda: written) == 1


def test_how_a_run_ended(tmp_path):
    assert state(ended(tmp_path / "a", "finished"), False) == ("finished", "finished", 0, True)
    assert state(ended(tmp_path / "a", "finished"), True)[0::3] == ("starting", False)
    stopped = ended(tmp_path / "b", "StoppedBySignal", "stopped at step 10;\n saved")
    assert state(stopped, False) == ("stopped", "stopped by a signal: stopped at step 10; saved", 130, True)
    failed = ended(tmp_path / "c", "DatasetError", "x.csv: is gone")
    assert state(failed, False) == ("failed", "failed: DatasetError: x.csv: is gone", 3, True)
    assert state(ended(tmp_path / "d", "DivergedError"), None) == ("failed", "diverged", 5, True)
    assert state(ended(tmp_path / "e", "ZeroDivisionError"), False)[2] == 1
    assert state_of(None, True, 0.0, None).text == "starting"
    assert not state_of(None, False, 0.0, None).ended


def test_a_run_that_stopped_between_two_rows_is_where_it_was_saved(tmp_path):
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[1.0]], (0,)), status="StoppedBySignal")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "latest.json").write_text('{"checkpoint": "step-000000014"}')
    run = LoggedRun.load(folder)
    assert progress_of(run).text() == "offline: step 14 of 100 (14 %)"
    assert steps_text(run) == "14 gradient steps"
    (folder / "checkpoints" / "latest.json").write_text('{"checkpoint": "env-000000030_step-000000120"}')
    assert steps_text(run) == "120 gradient steps, 30 environment steps"


def progress(folder, rows=(), timings=(), **config):
    write_run(folder, rows or rows_of(RETURN, [[1.0]], (0,)), timings=timings, **config)
    return progress_of(LoggedRun.load(folder))


def test_progress_counts_the_steps_of_its_phase(tmp_path):
    timings = timing_rows(40, seconds=20.0)  # step 20 after 10 s, step 40 after 20 s
    found = progress(tmp_path / "a", timings=timings)
    assert (found.text(), found.speed, found.usual_wait) == ("offline: step 40 of 100 (40 %)", 2.0, 10.0)
    assert (found.seconds_left(0.0), found.seconds_left(4.0), found.seconds_left(99.0)) == (30.0, 26.0, 0.0)
    both = progress(tmp_path / "b", timings=timings, finetune={"env_steps": 70})
    assert both.text() == "offline: step 40 of 100 (40 %), then 70 environment steps"
    online = [{"env_step": 35, "step": 135, "member": 0, "seed": 0, RETURN: 1.0}]
    assert progress(tmp_path / "c", online, finetune={"env_steps": 70}).text() == "online: environment step 35 of 70 (50 %)"
    epochs = progress(tmp_path / "d", max_epochs=2, algo_kwargs={"batch_size": 16})  # of 40 rows: three batches
    assert epochs.total == 6
    again = [*timings, {"step": 30, "seconds": 1.0}, {"step": 40, "seconds": 3.0}]
    assert progress(tmp_path / "e", timings=again, status="running").speed == 5.0  # of late
    assert progress(tmp_path / "f", timings=again).speed == 30 / 12  # of all that it took
    slow_start = [{"step": 20, "seconds": 40.0, "steps_per_second": 0.5}, {"step": 30, "seconds": 42.0}]
    single = progress(tmp_path / "f", timings=slow_start[:1])
    assert (single.speed, single.usual_wait) == (None, 40.0), "of the start nothing follows for the steps to come"
    assert progress(tmp_path / "h", timings=slow_start).speed == 5.0
    assert progress(tmp_path / "g").seconds_left(0.0) is None


def test_a_finetune_that_has_just_begun_is_online(tmp_path):
    folder = write_run(tmp_path / "run", [], finetune={"env_steps": 70, "from_step": 50}, status="running")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "phases": [{"name": "finetune", "from_step": 50}]}))
    assert progress_of(LoggedRun.load(folder)).text() == "online: environment step 0 of 70 (0 %)"


def test_an_online_run_counts_environment_steps(tmp_path):
    config = {"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {}, "total_timesteps": 60}
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[1.0]], (0,), env_step=30))
    (folder / "config.yaml").write_text(make_config(config, "x").to_yaml())
    assert progress_of(LoggedRun.load(folder)).text() == "online: environment step 30 of 60 (50 %)"


class Ticks:
    """A wait function that does something to the runs each time; a wait too many fails the test."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, seconds):
        assert seconds == 1.0
        assert self.steps, "it waits though the runs have ended"
        self.steps.pop(0)()


def append(folder, rows):
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows))


def test_without_a_terminal_there_is_a_line_for_each_evaluation(tmp_path, capsys):
    folder = tmp_path / "run"
    first, losses = rows_of(RETURN, [[1.0]], (0,)), rows_of("train/critic_loss", [[1.0], [2.0]], (0,))
    lock = RunLock(folder)
    ticks = Ticks(
        lambda: write_run(folder, losses, status="running"),  # no evaluation yet
        lambda: append(folder, first),
        lambda: None,
        lambda: append(folder, rows_of(RETURN, [[2.0]], (0,), every=20)),
        lambda: write_run(folder, first, status="running"),  # resumed from an earlier place
        lambda: (write_run(folder, first), lock.__exit__(None, None, None)),
    )
    with lock:
        assert watch_runs([folder], wait=True, sleep=ticks) == 0
    assert not ticks.steps
    assert capsys.readouterr().out.splitlines() == [
        "run: starting",
        "run: offline: step 20 of 100 (20 %), critic_loss 2.000",
        "run: offline: step 20 of 100 (20 %), return 1.000, best 1.000",
        "run: offline: step 20 of 100 (20 %), return 2.000, best 2.000",
        "run: offline: step 10 of 100 (10 %), return 1.000, best 1.000",
        "run: finished, offline: step 10 of 100 (10 %), return 1.000, best 1.000",
    ]


def test_several_runs_end_with_the_code_of_the_one_that_failed(tmp_path, capsys):
    runs = [ended(tmp_path / "a", "finished"), ended(tmp_path / "b", "DatasetError", "no file")]
    before = contents(tmp_path)
    assert watch_runs(runs, sleep=Ticks()) == 3
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "a: finished",
        "b: failed: DatasetError: no file",
    ]
    assert contents(tmp_path) == before


def test_a_run_that_is_removed_meanwhile_is_one_line(tmp_path):
    folder = ended(tmp_path / "run", "running")
    (folder / "run.lock").write_text(json.dumps({"host": socket.gethostname() + "-other", "pid": 1}))
    with pytest.raises(CheckpointError, match="was removed"):
        watch_runs([folder], sleep=Ticks(lambda: shutil.rmtree(folder)))


def test_once_prints_the_present_state(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "13")
    folder = population(tmp_path / "run", points=4)
    assert watch_runs([folder], once=True, ascii_only=True, sleep=Ticks()) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "run: iql on random, 3 members"
    assert "+---" in out
    assert out.isascii()


@pytest.mark.parametrize(("name", "shown"), [(b"x\x1b[2Jy", r"x\x1b[2Jy"), (b"x\xffy", r"x\udcffy")])
@pytest.mark.parametrize("once", [True, False])
def test_a_name_cannot_change_the_terminal(tmp_path, capsys, name, shown, once):
    folder = ended(tmp_path / os.fsdecode(name), "DatasetError", "\x1b]0;title\x07")
    watch_runs([folder], once=once, sleep=Ticks())
    out = capsys.readouterr().out
    assert out.startswith(f"{shown}: ")
    assert r"DatasetError: \x1b]0;title\x07" in out
    assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan")])
def test_an_interval_must_be_positive(tmp_path, interval):
    with pytest.raises(ConfigError, match="--interval .*: must be at least 0.1 seconds"):
        watch_runs([tmp_path], interval=interval)


@pytest.mark.parametrize(("unicode", "point"), [(False, "*"), (True, "⣤")])
def test_a_single_evaluation_is_a_point_above_its_step(tmp_path, unicode, point):
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[-3.0, -2.0, 2.0]], (0, 1, 2)))
    lines = shown(folder, 60, 17, unicode=unicode)
    first = lines.index("return, mean of 3 members") + 1
    drawn = [line.partition("│" if unicode else "|")[2].strip() for line in lines[first : first + 6]]
    assert drawn == ["", "", "", point, "", ""]
    assert abs(lines[first + 3].index(point) - lines[first + 7].index("10")) <= 1
    assert lines[first + 7].strip() == "10"
