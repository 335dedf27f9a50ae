"""What training warned of is on the page, in the Markdown and on the screen of a run."""

import json

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.live.watching import watch_runs
from rl_training.report.page import MARK, render_page
from rl_training.report.tables import markdown
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
    assert f"<li>{FIRST.replace('<', '&lt;').replace('>', '&gt;')}</li>" in listed
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
