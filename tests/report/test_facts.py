"""The numbers that a report says of a run."""

import json
import re

import numpy as np
import pytest

from rl_training.analysis.logged_run import DISTANCE, RETURN, LoggedRun
from rl_training.analysis.scores.arguments import read_groups
from rl_training.analysis.scores.groups import Choice
from rl_training.output import duration
from rl_training.report import data_facts, facts
from rl_training.report.bands import groups_of
from rl_training.report.page.document import MARK, render_page
from rl_training.report.tables import markdown
from rl_training.report.timing import timing_of
from tests.report.run_files import finetune, population, rows_of, timing_rows, without_environment, write_run


def loaded(*folders):
    return [LoggedRun.load(folder) for folder in folders]


def test_members_have_their_last_return_and_their_best(tmp_path):
    rows = rows_of(RETURN, [[1.0, 5.0], [4.0, 2.0], [3.0, None]], seeds=(7, 9))
    rows.append({"step": 20, "member": 1, "seed": 9, "event": "diverged"})
    (run,) = loaded(write_run(tmp_path / "run", rows))
    first, second = facts.member_facts(run)
    assert (first.seed, first.final, first.best, first.best_at, first.status) == (7, 3.0, 4.0, 20, "finished")
    assert (second.final, second.best, second.best_at, second.status) == (2.0, 5.0, 10, "diverged at step 20")
    assert facts.returns_of([first, second], "final").tolist() == [3.0, 2.0], "one that diverged counts with its last"
    assert (facts.count_text([first]), facts.count_text([first, second])) == ("1", "2 (1 diverged)")


def finetuned_elsewhere(folder, best, unit):
    """60 environment steps from gradient step 40 of a run in another directory; the checkpoint has the member's best."""
    rows = [
        {"env_step": step, "step": 40 + step, "member": 0, "seed": 0, RETURN: -float(100 - step)} for step in (20, 40, 60)
    ]
    write_run(folder, rows, finetune={"env_steps": 60, "from_step": 40})
    saved = folder / "checkpoints" / "env-000000060_step-000000100"
    saved.mkdir(parents=True)
    (saved.parent / "latest.json").write_text(json.dumps({"checkpoint": saved.name}))
    member = {"best_return": best[0], "best_step": best[1], "best_unit": unit}
    (saved / "state.json").write_text(json.dumps({"members": [member]}))
    return folder


@pytest.mark.parametrize(
    ("best", "unit", "expected"),
    [
        ((-10.0, 30), "step", (-10.0, 30, "gradient step 30, offline")),  # of which there is no row here
        ((-40.0, 60), "env step", (-40.0, 100, "environment step 60, online")),
        ((-70.0, 30), "step", (-40.0, 100, "environment step 60, online")),  # written before the last row
        ((-10.0, 30), None, (-40.0, 100, "environment step 60, online")),  # an earlier version's
        (("none", 30), "step", (-40.0, 100, "environment step 60, online")),
    ],
)
def test_a_finetune_elsewhere_knows_the_best_before_it(tmp_path, best, unit, expected):
    (run,) = loaded(finetuned_elsewhere(tmp_path / "run", best, unit))
    (member,) = facts.member_facts(run)
    assert (member.final, member.best, member.best_at, member.best_text) == (-40.0, *expected)
    for name in ("env-000000060_step-000000100/state.json", "latest.json"):
        (run.path / "checkpoints" / name).write_text("[")
        assert facts.member_facts(run)[0].best == -40.0


def test_steps_are_those_of_the_directory_as_the_time_is(tmp_path):
    folder = finetuned_elsewhere(tmp_path / "run", (-40.0, 60), "env step")
    told = "60 gradient steps (after 40 in another run), 60 environment steps"
    record = json.loads((folder / "run.json").read_text())
    for start in ((40, None), (70, 30)):  # the finetune itself, and its own resume
        phase = {"name": "finetune", "from_step": start[0], "from_env_step": start[1]}
        (folder / "run.json").write_text(json.dumps({**record, "phases": [phase]}))
        assert facts.steps_text(LoggedRun.load(folder)) == told
    both = finetune(tmp_path / "both")
    phase = {"name": "finetune", "from_step": 60, "from_env_step": None}
    (both / "run.json").write_text(json.dumps({**record, "phases": [phase]}))
    assert facts.steps_text(LoggedRun.load(both)) == "120 gradient steps, 60 environment steps", "it began here"


def test_members_that_diverged_do_not_flatter_a_run(tmp_path):
    """As `compare` counts them: four were at -1000 when they diverged, one reached -100; of five the middle three count."""
    seeds = (0, 1, 2, 3, 4)
    rows = rows_of(RETURN, [[-1000.0] * 5, [-1000.0] * 4 + [-100.0]], seeds)
    rows += [{"step": 20, "member": member, "seed": member, "event": "diverged"} for member in range(4)]
    (run,) = loaded(write_run(tmp_path / "run", rows))
    cells = dict(zip(facts.OVERVIEW, facts.overview_cells(run, "run", timing_of(run)), strict=True))
    assert (cells["final return"], cells["members"]) == ("-1,000.0 (-1,000.0 to -100.0)", "5 (4 diverged)")
    assert {task: values.tolist() for task, values in read_groups([run.path], Choice()).scores["iql"].items()} == {
        "Pendulum-v1": facts.returns_of(facts.member_facts(run), "final").tolist()
    }


def test_a_run_without_an_environment_has_no_returns_but_a_distance(tmp_path):
    (run,) = loaded(without_environment(tmp_path / "run"))
    assert [(one.final, one.distance) for one in facts.member_facts(run)] == [(None, 0.1), (None, pytest.approx(0.11))]
    assert facts.spread_text(facts.returns_of(facts.member_facts(run), "final")) == "none yet"
    assert facts.source_of(run) == "plant.csv"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algo_kwargs": {"dataset": "logs/"}}, "logs"),
        ({"algo_kwargs": {"dataset": [{"path": ["a/1.csv", "2.csv"]}, {"run": "runs/sac"}]}}, "1.csv, 2.csv, replay of sac"),
        ({"algo_kwargs": {"dataset": {"path": [f"{day}.csv" for day in range(40)]}}}, "0.csv and 39 more"),
        ({"algo_kwargs": {"dataset": {"kind": "scripted"}}}, "scripted data of Pendulum-v1"),
        ({"algo": "rlpd", "algo_kwargs": {"dataset": "a.npz"}}, "a.npz and online in Pendulum-v1"),
    ],
)
def test_where_a_run_with_an_environment_learned(tmp_path, changes, told):
    run = LoggedRun.load(write_run(tmp_path / "run", rows_of(RETURN, [[1.0]], seeds=(0,)), **changes))
    assert facts.source_of(run) == told


def test_a_finetune_says_what_it_learned_on_and_a_page_where_it_was_evaluated(tmp_path):
    tuned, offline = (LoggedRun.load(make(tmp_path / make.__name__)) for make in (finetune, population))
    assert facts.source_of(tuned) == "random, then online in Pendulum-v1"
    assert "evaluated in Pendulum-v1" in render_page([offline])
    assert "evaluated in" not in render_page([tuned])


def test_a_combination_that_lost_members_ranks_behind_those_that_lost_fewer(tmp_path):
    results = [(1.0, 0, 5.0), (1.0, 1, 7.0), (3.0, 0, 9.0), (3.0, 1, 8.0)]
    rows = [{"step": 10, "member": m, "seed": s, "knob/beta": b, RETURN: v} for m, (b, s, v) in enumerate(results)]
    rows.append({"step": 10, "member": 3, "seed": 1, "knob/beta": 3.0, "event": "diverged"})
    (run,) = loaded(write_run(tmp_path / "run", rows, sweep={"beta": [1.0, 3.0]}))
    found = [facts.combination_cells(*pair) for pair in facts.combinations(groups_of([run]))]
    assert found == [
        ["beta=1", "2", "6.000 (5.000 to 7.000)", "6.000 (5.000 to 7.000)"],
        ["beta=3", "2 (1 diverged)", "8.500 (8.000 to 9.000)", "8.500 (8.000 to 9.000)"],
    ]
    assert [group.label for group in facts.best_groups(groups_of([run]), 1)] == ["beta=1"]
    assert facts.combinations(groups_of(loaded(population(tmp_path / "plain")))) == []


def test_a_member_that_was_never_measured_has_no_distance(tmp_path):
    rows = [*rows_of(DISTANCE, [[0.1, None]], (0, 1)), {"step": 10, "member": 1, "seed": 1, "event": "diverged"}]
    (run,) = loaded(write_run(tmp_path / "run", rows, env_id=None))
    assert [one.distance for one in facts.member_facts(run)] == [0.1, None]
    assert "nan" not in markdown([run], MARK).lower()
    assert "nan" not in re.search("<main>(.*)</main>", render_page([run]), flags=re.S)[1].lower()


def test_settings_that_differ(tmp_path):
    runs = loaded(population(tmp_path / "a"), write_run(tmp_path / "b", [], total_timesteps=7, algo_kwargs={"beta": 5.0}))
    found = facts.differences(runs)
    assert found["total_timesteps"] == ["100", "7"]
    assert found["algo_kwargs.beta"][1] == "5.0"
    assert found["algo_kwargs.reward.scale"] == ["0.1", "1.0"]
    assert "algo" not in found


def test_a_range_of_one_value_is_that_value():
    assert facts.spread_text(np.array([-200.0, -200.0])) == "-200.0"
    assert facts.spread_text(np.array([2.0])) == "2.000"
    assert facts.range_text(np.array([1.0, 1.00001, 3.0])) == "1.000 to 3.000"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, facts.NOTHING),
        (-0.0, "0.0000"),
        (-1234.56, "-1,234.6"),
        (0.00012, "1.200e-04"),
        (12345.6, "12,346"),
        (2e9, "2.000e+09"),
    ],
)
def test_numbers_for_people(value, text):
    assert facts.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.02, "0.02 s"), (9.96, "10.0 s"), (61, "1 min"), (3600, "1 h 00 min"), (7500, "2 h 05 min")),
        *((3590, "1 h 00 min"), (7185, "2 h 00 min")),
    ],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.96, "10.0 s"), (61, "1 min 01 s"), (98.4, "1 min 38 s"), (599.6, "10 min"), (7500, "2 h 05 min")]
)
def test_measured_times_have_seconds_up_to_ten_minutes(seconds, text):
    """98 s of which 86 were gradient steps must not read as 2 min of which 1 min."""
    assert duration(seconds, exact=True) == text


def test_a_time_that_nobody_wrote_is_not_zero(tmp_path):
    known, unknown = loaded(population(tmp_path / "a"), write_run(tmp_path / "b", []))
    assert (facts.time_text(timing_of(known)), facts.time_text(timing_of(unknown))) == ("20.0 s", facts.NOTHING)


@pytest.mark.parametrize(
    ("ends", "text"), [((0.0, 97.9), "0 to 97.9"), ((-2.0, 2.0), "-2 to 2"), ((125.0, 4000.0), "125 to 4,000")]
)
def test_bounds_have_no_idle_zeros(ends, text):
    assert data_facts.bounds_text(ends) == text


def test_a_combination_that_was_never_evaluated_and_has_ended_does_not_promise_returns(tmp_path):
    rows = [{"step": 20, "member": member, "seed": 0, "event": "diverged"} for member in (0, 1)]
    (run,) = loaded(write_run(tmp_path / "run", rows, status="DivergedError", sweep=[{"expectile": [0.7, 0.9]}]))
    (group, own), _ = facts.combinations(groups_of([run]))
    assert facts.combination_cells(group, own)[1:] == ["1 (1 diverged)", "not evaluated", "not evaluated"]


@pytest.mark.parametrize(
    ("status", "text"), [("finished", "finished"), ("StoppedBySignal", "stopped by a signal"), ("X", "failed: X")]
)
def test_the_status_in_words(tmp_path, status, text):
    (run,) = loaded(write_run(tmp_path / "run", [], status=status))
    assert facts.status_of(run) == text


def test_a_record_without_dataset_or_hardware_is_read(tmp_path):
    folder = write_run(tmp_path / "run", rows_of(RETURN, [[1.0, 2.0]]), timings=timing_rows())
    (folder / "run.json").write_text(json.dumps({"status": "running", "versions": {"rl_training": "0.1.0"}}))
    (run,) = loaded(folder)
    assert (data_facts.dataset_facts(run), facts.setup_of(run)) == ({}, {"rl_training": "0.1.0"})


def test_a_run_that_did_not_finish_has_a_last_return_and_says_how_far_it_came(tmp_path):
    stopped = write_run(tmp_path / "run", rows_of(RETURN, [[1.0], [2.0]]), status="StoppedBySignal")
    text = markdown(loaded(stopped), "")
    assert "| last return |" in text
    assert "stopped by a signal, offline: step 20 of 100 (20 %)" in text
    finished = markdown(loaded(population(tmp_path / "finished")), "")
    assert "| final return |" in finished
    assert "offline: step" not in finished


def test_a_sweep_among_runs_counts_by_its_best_combination(tmp_path):
    rows = rows_of(RETURN, [[1.0, 30.0, 2.0, 50.0]], (0, 1, 0, 1))
    sweep = write_run(tmp_path / "sweep", rows, seeds=[0, 1], sweep=[{"expectile": [0.7, 0.9]}])
    text = markdown(loaded(sweep, population(tmp_path / "other")), "")
    assert "| 26.00 (2.000 to 50.00) | 26.00 (2.000 to 50.00) |" in text
    assert "Of a sweep it is that of its best combination." in text
    assert "Of a sweep" not in markdown(loaded(tmp_path / "other"), "")


def test_environments_take_turns_where_not_all_groups_are_shown(tmp_path):
    folders = [write_run(tmp_path / f"low{i}", rows_of(RETURN, [[-1e6 + i]])) for i in range(3)]
    folders += [write_run(tmp_path / f"high{i}", rows_of(RETURN, [[float(i)]]), env_id="Acrobot-v1") for i in range(3)]
    groups = groups_of(loaded(*folders))
    assert [group.label for group in facts.best_groups(groups, 3)] == ["low2", "high1", "high2"]
    assert [group.label for group in facts.best_groups(groups, 2)] == ["low2", "high2"]
    assert facts.best_or_first(groups) == "best of each environment, in turns:"
    assert facts.best_or_first(groups[:3]) == "best"
