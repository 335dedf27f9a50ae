"""What training warned of is on the page, in the Markdown and on the screen of a run."""

import json
import re

import pytest

from rl_training.analysis.last_check import last_check
from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.cautions import Caution, cautions_of
from rl_training.report.live.watching import watch_runs
from rl_training.report.page.document import MARK, render_page
from rl_training.report.tables import markdown
from rl_training.runtime.validating.concerns import CODES
from tests.helpers import tiny_run
from tests.logs import plant, table, write_csv
from tests.report.run_files import rows_of, write_run

WARNED = [
    {"at": None, "text": "data: constant-column: `T<1>` is 7 in every row"},
    {
        "at": "step 20",
        "text": "far-from-data: its actions are 60 % of the range away: in most states nobody tried that",
    },
]
FIRST, LAST = "data: constant-column: `T<1>` is 7 in every row", WARNED[1]["text"] + " (at step 20)"


def run_with(folder, warned):
    return LoggedRun.load(write_run(folder, rows_of(RETURN, [[-1.0], [-0.5]], seeds=(0,)), warned=warned))


def test_a_page_lists_them_below_its_cards(tmp_path):
    page = render_page([run_with(tmp_path / "a", WARNED)])
    listed = page[page.index("<h2>Warnings</h2>") : page.index("<h2>Learning curves</h2>")]
    assert listed.count("<li>") == 2
    assert "<li>data: constant-column: <code>T&lt;1&gt;</code> is 7 in every row</li>" in listed
    assert f"<li>{LAST}</li>" in listed
    assert "Warnings" not in render_page([run_with(tmp_path / "b", [])])


def test_of_several_runs_they_have_its_name(tmp_path):
    runs = [run_with(tmp_path / "a", WARNED[1:]), run_with(tmp_path / "b", [])]
    assert f"<li>a: {LAST}</li>" in render_page(runs)
    assert f"## Warnings\n\n* a: {LAST}\n" in markdown(runs, MARK)


def test_markdown_lists_them(tmp_path):
    text = markdown([run_with(tmp_path / "a", WARNED)], MARK)
    assert f"## Warnings\n\n* {FIRST.replace('<', '&lt;').replace('>', '&gt;')}\n* {LAST}\n\n## Members" in text
    assert "Warnings" not in markdown([run_with(tmp_path / "b", [])], MARK)


def test_watch_shows_the_latest_first_and_counts_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "25")
    watch_runs([run_with(tmp_path / "a", WARNED).path], once=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"warning: {LAST} warning: {FIRST}" in shown
    many = [{"at": None, "text": f"data: finding {number} " + "of many words " * 8} for number in range(9)]
    watch_runs([run_with(tmp_path / "many", many).path], once=True)
    shown = capsys.readouterr().out
    assert "finding 8" in shown
    assert "finding 0" not in shown
    assert "more in `rl-training report`" in shown


def test_records_of_earlier_versions_have_none(tmp_path):
    run = run_with(tmp_path / "a", WARNED)
    record = json.loads((run.path / "run.json").read_text())
    del record["warnings"]
    (run.path / "run.json").write_text(json.dumps(record))
    assert "Warnings" not in render_page([LoggedRun.load(run.path)])


FAR = "far-from-data: its actions are 50.0% of the range away from the logged ones, the best constant action 40.0%"


def checked_run(folder, distances, warned, *, seeds=(0,), missing=()):
    """A run without an environment: the distance of each member at each check; a figure in `missing` is not in the last."""
    rows = []
    for number, column in enumerate(distances, start=1):
        figures = {"constant_distance": 0.4, "cloning_distance": 0.1, "at_bound": 0.0, "at_bound_data": 0.0}
        figures |= {"spread": 0.2, "spread_data": 0.2}
        kept = {f"validation/{name}": value for name, value in figures.items()}
        if number == len(distances):
            kept = {name: value for name, value in kept.items() if name not in missing}
        for member, distance in enumerate(column):
            own = {"step": 10 * number, "member": member, "seed": seeds[member]}
            rows += [{**own, **kept, "validation/action_distance": distance}] if distance is not None else []
    return LoggedRun.load(write_run(folder, rows, env_id=None, warned=warned))


def everywhere(run, capsys):
    """The warnings of a run on the page, in the Markdown and on the screen."""
    listed = re.search(r"<h2>Warnings</h2>(.*?)</section>", render_page([run])).group(1)
    written = re.search(r"## Warnings\n\n(.*?)\n\n", markdown([run], MARK), re.DOTALL).group(1)
    watch_runs([run.path], once=True)
    return listed, written, " ".join(capsys.readouterr().out.split())


def test_a_doubt_that_still_holds_has_the_figures_of_the_last_check(tmp_path, capsys):
    warned = [{"at": "step 20", "text": f"{FAR}: in most states it does what nobody tried. Lower beta"}]
    run = checked_run(tmp_path / "a", [[0.6], [0.5], [0.45]], warned)
    for shown in everywhere(run, capsys):
        assert "its actions are 45.0% of the range away from the logged ones, the best constant action 40.0%" in shown
        assert "(at step 30; first at step 20)" in shown
        assert "50.0%" not in shown
        assert "no longer" not in shown


def test_a_doubt_that_no_longer_holds_is_said_to_be_past_and_comes_last(tmp_path, capsys):
    warned = [{"at": "step 20", "text": FAR}, {"at": None, "text": "data: constant-column: T"}]
    run = checked_run(tmp_path / "a", [[0.6], [0.5], [0.1]], warned)
    listed, written, seen = everywhere(run, capsys)
    past = f"no longer at step 30: {FAR} (at step 20)"
    assert f"<li>data: constant-column: T</li><li class=soft>{past}</li>" in listed
    assert written == f"* data: constant-column: T\n* {past}"
    assert f"warning: data: constant-column: T {past}" in seen


def test_which_members_it_still_holds_for_is_said_and_one_that_ended_counts_with_its_last_check(tmp_path):
    text = FAR.replace(": ", ": all members, with the figures of the first: ", 1)
    warned = [{"at": "step 20", "text": text}]
    (one,) = cautions_of(checked_run(tmp_path / "a", [[0.5, 0.5], [0.5, 0.5], [0.1, 0.43]], warned, seeds=(3, 4)))
    assert one.text.startswith("far-from-data: seed 4: its actions are 43.0% of the range")
    (one,) = cautions_of(checked_run(tmp_path / "b", [[0.5, 0.5], [0.1, 0.42], [0.1, None]], warned, seeds=(3, 4)))
    assert one.text.startswith("far-from-data: seed 4: its actions are 42.0% of the range")


@pytest.mark.parametrize(
    ("text", "missing"), [(FAR, ["validation/spread"]), ("rising-losses: held-out losses rise: `critic_loss` is 3", [])]
)
def test_where_the_figures_do_not_tell_that_is_said(tmp_path, text, missing):
    run = checked_run(tmp_path / "a", [[0.6], [0.5], [0.1]], [{"at": "step 20", "text": text}], missing=missing)
    (one,) = cautions_of(run)
    assert one == Caution(f"{text} (at step 20; whether it still holds at step 30 is not logged)")


def test_a_check_online_is_told_in_environment_steps(tmp_path):
    offline = {"step": 100, "member": 0, "seed": 0, "validation/action_distance": 0.2}
    rows = [offline, {**offline, "step": 160, "env_step": 30}, {**offline, "step": 220, "env_step": 60}]
    text = "rising-losses: held-out losses rise: `value_loss` is 3"

    def told(at):
        warned = [{"at": at, "text": text}]
        folder = write_run(tmp_path / at.replace(" ", ""), rows, warned=warned, finetune={"env_steps": 60})
        return cautions_of(LoggedRun.load(folder))[0].text

    assert told("env step 60") == f"{text} (at env step 60)"
    assert told("env step 30") == f"{text} (at env step 30; whether it still holds at env step 60 is not logged)"
    assert told("step 100") == f"{text} (at step 100; whether it still holds at env step 60 is not logged)"


def test_a_doubt_of_the_last_check_is_as_it_was_given(tmp_path):
    run = checked_run(tmp_path / "a", [[0.6], [0.6], [0.5]], [{"at": "step 30", "text": FAR}])
    assert cautions_of(run) == [Caution(f"{FAR} (at step 30)")]


def test_what_training_warned_of_last_is_found_again_from_what_it_logged(tmp_path):
    """The rules and the words are those of training, whatever the figures are."""
    log = write_csv(tmp_path / "log.csv", table(plant(rows=1200, length=40)))
    kwargs = {"dataset": {"path": str(log)}, "actor_learning_rate": 1e-12}
    tiny_run(tmp_path / "run", "iql", env_id=None, seeds=[0, 1], eval_interval=120, algo_kwargs=kwargs)  # one check, the last
    run = LoggedRun.load(tmp_path / "run")
    found = last_check(run)
    assert {"unsettled-values", "far-from-data"} <= set(found.warnings)  # it could not learn
    kept = {one["text"].partition(":")[0]: one for one in run.record["warnings"] if one["at"] is not None}
    assert found.warnings == {code: one["text"] for code, one in kept.items() if one["at"] == found.place}
    assert set(found.warnings) <= set(CODES)
