"""Reports as Markdown and CSV."""

import csv
import io
import json
import re
from html import escape

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.bands import groups_of
from rl_training.report.charts import held_out_charts
from rl_training.report.data_facts import data_note
from rl_training.report.facts import NOTHING
from rl_training.report.page.document import MARK, render_page
from rl_training.report.tables import comma_separated, markdown
from tests.report.run_files import DATASET, finetune, population, rows_of, timing_rows, without_environment, write_run


def test_markdown_has_the_results_of_every_run(tmp_path):
    runs = [LoggedRun.load(population(tmp_path / "first")), LoggedRun.load(finetune(tmp_path / "second"))]
    text = markdown(runs, MARK)
    lines = text.splitlines()
    assert lines[:2] == [MARK, "# first, second"]
    (row,) = [line for line in lines if line.startswith("| first | -34.00 (")]
    assert row == (
        "| first | -34.00 (-45.00 to -23.00) | -34.00 (-45.00 to -23.00) | finished | iql | random | 3 | "
        "120 gradient steps | 20.0 s |"
    )
    assert "| second | 60 | -20.00 | -50.00 at 20 | 30.00 | 40 |" in lines
    assert "| first | 2 | 2 | -23.00 | -23.00 | gradient step 120 | finished |" in lines
    assert f"| `finetune.env_steps` | {NOTHING} | 60 |" in lines
    assert "| gradient steps | 15.0 s | 15.0 s |" in lines
    assert "| torch | 2.13.0 | 2.13.0 |" in lines


def test_markdown_of_data_alone_shows_the_distance_and_no_empty_columns(tmp_path):
    text = markdown([LoggedRun.load(without_environment(tmp_path / "run"))], MARK, "Plant | <b>")
    assert "# Plant \\| &lt;b&gt;" in text
    assert "| run | member | seed | from logged actions | status |" in text
    assert "| run | 1 | 1 | 11.0% | finished |" in text


def test_markdown_of_data_alone_has_the_figures_on_held_out_rows_in_their_units(tmp_path):
    folder = without_environment(tmp_path / "run")
    own = {"step": 30, "validation/action_distance/flow": 6.0, "validation/constant_distance/flow": 0.7}
    rows = [{**own, "member": member, "seed": member, "validation/cloning_distance/flow": 0.8} for member in (0, 1)]
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    record = json.loads((folder / "run.json").read_text())
    record["dataset"] |= {"action_bounds": {"flow": [0.0, 40.0], "u10": [0.0, 1.0], "u2": [0.0, 1.0]}, "held_out_rows": 398}
    (folder / "run.json").write_text(json.dumps(record))
    lines = markdown([LoggedRun.load(folder)], MARK).splitlines()
    assert lines[3] == "| run | from logged actions | status | algorithm | learned on | members | steps |"
    assert "| run | 10.5% (best constant 40.0%) | finished | iql | plant.csv | 2 | 30 gradient steps |" in lines
    dash = NOTHING
    assert f"| run | distance, share of the range | 10.5% | 40.0% | 5.0% | {dash} |" in lines
    flow = "distance of flow, which may be 0 to 40"
    assert f"| run | {flow} | 6.000, worse than a constant | 0.7000 | 0.8000 | {dash} |" in lines
    assert f"| run | actions at a bound | 2.0% | {dash} | {dash} | 2.0% |" in lines
    assert "| held-out rows scored | 398 |" in lines
    bounds = [line for line in lines if line.startswith("| bounds of")]
    assert bounds == ["| bounds of flow | 0 to 40 |", "| bounds of u2 | 0 to 1 |", "| bounds of u10 | 0 to 1 |"]
    assert "A return is" not in "".join(lines)


def test_what_returns_are_is_said_with_their_episodes(tmp_path):
    runs = [LoggedRun.load(population(tmp_path / "a")), LoggedRun.load(finetune(tmp_path / "b"))]
    assert "A return is the mean over the 10 episodes of an evaluation in Pendulum-v1. Of several members" in markdown(
        runs, MARK
    )
    other = write_run(tmp_path / "c", rows_of(RETURN, [[1.0]], (0,)), eval_episodes=3)
    runs += [LoggedRun.load(other), LoggedRun.load(without_environment(tmp_path / "d"))]
    text = markdown(runs, MARK)
    assert "over the 10 (a, b) or 3 (c) episodes of" in text, "d has no returns"
    assert "tells `rl-training compare`" in text
    assert "rl-training compare" not in markdown(runs[:1], MARK)


def test_of_many_members_every_figure_on_held_out_rows_is_the_same_mean(tmp_path):
    """The overview and the table: of five the middle three."""
    rows = rows_of("validation/action_distance", [[0.1, 0.2, 0.2, 0.2, 0.9]], range(5))
    rows += rows_of("validation/constant_distance", [[0.4] * 5], range(5))
    lines = markdown([LoggedRun.load(write_run(tmp_path / "run", rows, env_id=None))], MARK).splitlines()
    assert any("| 20.0% (best constant 40.0%) | finished |" in line for line in lines)
    assert f"| run | distance, share of the range | 20.0% | 40.0% | {NOTHING} | {NOTHING} |" in lines


@pytest.mark.parametrize(
    ("ends", "told"), [(0, "the rewards allow -900.0 to -100.0"), (2, "logged episodes reached -70.00 to -30.00")]
)
def test_values_are_not_held_against_returns_that_stop_at_a_cut(tmp_path, ends, told):
    """Where no episode truly ends, critics count what follows, and a right value is far from every logged return."""
    own = {"q_policy": -500.0, "possible_lowest": -900.0, "possible_highest": -100.0}
    own |= {"reached_lowest": -70.0, "reached_highest": -30.0}
    rows = [{"step": 10, "member": 0, "seed": 0, **{f"validation/{name}": value for name, value in own.items()}}]
    run = LoggedRun.load(write_run(tmp_path / "run", rows, env_id=None, dataset={**DATASET, "true_ends": ends}))
    assert f"| run | value of the actions; {told}, discounted | -500.0 |" in markdown([run], MARK)
    (chart,) = held_out_charts(groups_of([run]))
    assert list(chart.references.values()) == ([-900.0, -100.0] if ends == 0 else [-70.0, -30.0])


def test_a_policy_is_held_against_the_spread_of_cloning_too(tmp_path):
    run = LoggedRun.load(without_environment(tmp_path / "run"))
    assert f"| run | spread of the actions | 20.0% | {NOTHING} | 22.0% | 25.0% |" in markdown([run], MARK)
    (chart,) = [one for one in held_out_charts(groups_of([run])) if one.metric == "validation/spread"]
    assert chart.references == {"logged actions": 0.25, "plain cloning": 0.22}


@pytest.mark.parametrize(
    ("settled", "told"), [(0.139, ", about 14% settled, no measure of returns yet"), (0.9, ", about 90% settled"), (1.0, "")]
)
def test_values_say_how_settled_they_are(tmp_path, settled, told):
    own = {"q_policy": 20.0, "reached_lowest": -70.0, "reached_highest": 130.0, "values_settled": settled}
    rows = [{"step": 10, "member": 0, "seed": 0, **{f"validation/{name}": value for name, value in own.items()}}]
    run = LoggedRun.load(write_run(tmp_path / "run", rows, env_id=None))
    assert f"| 20.00{told} |" in markdown([run], MARK)
    (chart,) = held_out_charts(groups_of([run]))
    end = f" Values begin at 0, and at the end are: run{told[1:]}." if told else "episodes."
    assert chart.note.endswith(end)


def test_the_score_that_chooses_checkpoints_is_a_chart(tmp_path):
    rows = [{"step": step, "member": 0, "seed": 0, "validation/score": step / 10.0} for step in (10, 20)]
    (chart,) = held_out_charts(groups_of([LoggedRun.load(write_run(tmp_path / "run", rows, env_id=None))]))
    assert chart.metric == "validation/score"
    assert chart.lines[0].band.middle.tolist() == [1.0, 2.0]


def test_a_run_without_values_does_not_change_what_the_values_of_others_are_beside(tmp_path):
    own = {"q_policy": -500.0, "possible_lowest": -900.0, "possible_highest": -100.0}
    own |= {"reached_lowest": -70.0, "reached_highest": -30.0}
    rows = [{"step": 10, "member": 0, "seed": 0, **{f"validation/{name}": value for name, value in own.items()}}]
    valued = LoggedRun.load(write_run(tmp_path / "iql", rows, env_id=None))
    cloned = LoggedRun.load(write_run(tmp_path / "bc", rows_of("validation/at_bound", [[0.1]]), env_id=None, algo="bc"))
    for runs in ([valued], [valued, cloned], [cloned, valued]):
        (chart,) = [one for one in held_out_charts(groups_of(runs)) if one.metric == "validation/q_policy"]
        assert list(chart.references.values()) == [-900.0, -100.0]
        assert "what the rewards allow" in chart.note


def test_different_data_are_named_on_the_page_and_in_markdown(tmp_path):
    rows = rows_of("validation/action_distance", [[0.2], [0.1]], (0,))

    def runs(**sets):
        return [
            LoggedRun.load(write_run(tmp_path / name, rows, env_id=None, dataset=data, algo_kwargs={"dataset": file}))
            for name, (data, file) in sets.items()
        ]

    one, other = {**DATASET, "fingerprint": "1" * 64}, {**DATASET, "fingerprint": "2" * 64}
    mixed = runs(a=(one, "data/arm.npz"), b=(other, "veh.csv"), c=(one, "moved/arm2.npz"))
    told = "The runs learned from different data: arm (a, c); veh (b). Charts show them on one axis, but losses, values"
    assert told in markdown(mixed, MARK)
    assert f'<p class="note">{told}' in render_page(mixed)
    same_name = runs(a=(one, "data/arm.npz"), b=(other, "other/arm.npz"))
    assert "different data: arm, 111111 (a); arm, 222222 (b). " in data_note(same_name, ["a", "b"])
    assert "different data" not in render_page(runs(a=(one, "data/arm.npz"), b=(one, "veh.csv")))
    assert data_note(runs(a=(one, "data/arm.npz"), b=(None, "veh.csv")), ["a", "b"]) == ""


def test_returns_that_differ_between_runs_are_not_said_to_be_on_the_chart(tmp_path):
    runs = []
    for name, lowest in (("a", -70.0), ("b", -7.0)):
        rows = rows_of("validation/q_policy", [[-5.0], [-6.0]], (0,)) + rows_of("validation/reached_lowest", [[lowest]], (0,))
        runs.append(LoggedRun.load(write_run(tmp_path / name, rows, env_id=None)))
    for chosen, beside in ((runs[:1], True), (runs, False)):
        (chart,) = held_out_charts(groups_of(chosen))
        assert (bool(chart.references), "beside" in chart.note) == (beside, beside)


def test_an_action_without_a_name_is_called_by_its_number(tmp_path):
    rows = rows_of("validation/action_distance", [[0.2]], (0,)) + rows_of("validation/action_distance/0", [[1.5]], (0,))
    data = {**DATASET, "action_bounds": {"action 0": [-2.5, 2.5]}}
    run = LoggedRun.load(write_run(tmp_path / "run", rows, env_id=None, dataset=data))
    assert "| distance of action 0, which may be -2.5 to 2.5 | 1.500 |" in markdown([run], MARK)
    assert "distance of action 0, which may be" in render_page([run])


def test_time_that_was_not_spent_is_not_listed(tmp_path):
    timings = [{"step": 10, "seconds": 2.0, "seconds/gradient_steps": 2.0, "seconds/acting": 0.0}]
    text = markdown([LoggedRun.load(write_run(tmp_path / "run", [], timings=timings))], MARK)
    assert "| gradient steps | 2.0 s |" in text
    assert "acting" not in text


def test_a_run_that_has_an_environment_but_no_evaluation(tmp_path):
    runs = [write_run(tmp_path / status, [], status=status) for status in ("running", "finished")]
    text = markdown([LoggedRun.load(run) for run in runs], MARK)
    assert "| running | none yet | none yet | running, offline: step 0 of 100 (0 %) |" in text
    assert "| finished | not evaluated | not evaluated | finished |" in text


def test_csv_has_every_logged_number_once(tmp_path):
    rows = rows_of(RETURN, [[1.5, None], [2.5, 3.5]]) + rows_of("train/loss", [[0.1, 0.2]])
    rows.append({"step": 20, "member": 1, "seed": 1, "event": "stopped"})
    runs = [
        LoggedRun.load(write_run(tmp_path / "a", rows)),
        LoggedRun.load(write_run(tmp_path / "b", [], timings=timing_rows())),
        LoggedRun.load(finetune(tmp_path / "c")),
    ]
    table = list(csv.DictReader(io.StringIO(comma_separated(runs))))
    assert list(table[0]) == [
        "run",
        "member",
        "seed",
        "position",
        "step",
        "env_step",
        RETURN,
        "train/loss",
        "data/episode_return",
    ]
    assert [(row["member"], row["step"], row[RETURN], row["train/loss"]) for row in table if row["run"] == "a"] == [
        ("0", "10", "1.5", "0.1"),
        ("1", "10", "", "0.2"),
        ("0", "20", "2.5", ""),
        ("1", "20", "3.5", ""),
    ]
    last = table[-1]
    assert (last["run"], last["position"], last["step"], last["env_step"], last[RETURN]) == ("c", "120", "120", "60", "-9.0")
    assert "b" not in {row["run"] for row in table}


@pytest.mark.parametrize("name", ["=cmd|calc!A1", "+1+1", "-x", "@SUM(1)"])
def test_a_name_is_no_formula_in_a_spreadsheet(tmp_path, name):
    rows = rows_of("=HYPERLINK(1)", [[-1.5]], (0,))
    head, row = csv.reader(io.StringIO(comma_separated([LoggedRun.load(write_run(tmp_path / name, rows))])))
    assert row[0] == f"'{name}"
    assert (head[-1], row[-1]) == ("'=HYPERLINK(1)", "-1.5"), "a number stays one"


MARKED = ["`code` **b** [l](javascript:x)", "_i_ a_b __c__ ~~d~~", "\\*a\\|b\\", "![i](x)", "<b>|&lt;"]


@pytest.mark.parametrize("name", MARKED)
def test_a_name_is_shown_as_it_is_in_markdown(tmp_path, name):
    reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    folders = [finetune(tmp_path / name), finetune(tmp_path / "a_b")]
    text = markdown([LoggedRun.load(folder) for folder in folders], MARK)
    page = reader.render(text)
    shown = escape(name)
    for tag in ("td", "th"):
        assert f"<{tag}>{shown}</{tag}>" in page
    assert f"<h1>{shown}, a_b</h1>" in page
    assert not re.search("<(a|em|strong|s|img|b)[ >]", page)
    assert ", a_b\n" in text, "what is no markup has no backslash"
    assert f"<h1>{shown}</h1>" in reader.render(markdown([LoggedRun.load(folders[1])], MARK, title=name))
