"""`rl-training report`: what is written where, and what is refused."""

import csv
import io
import os
import re
import shutil

import pytest

from rl_training.report.page.document import MARK
from rl_training.runtime.checkpoints.lock import RunLock
from tests.helpers import call_cli, contents, run_cli
from tests.report.run_files import finetune, population


@pytest.fixture
def run_dir(tmp_path):
    return population(tmp_path / "run")


def test_the_page_of_a_real_run_in_a_process_of_its_own(finished, tmp_path):
    pytest.importorskip("PIL")
    run = finished("iql", [4, 5]).run_dir
    before = contents(run)
    done = run_cli("report", run, cwd=tmp_path)
    page = (tmp_path / "report.html").read_bytes()
    assert done.stdout == f"{tmp_path / 'report.html'}: 1 run, {len(page) / 1e3:,.0f} kB\n"
    assert done.stderr == ""
    assert MARK.encode() in page[:100]
    assert b"data:image/gif" in page
    assert len(page) < 2_000_000
    assert contents(run) == before


def test_a_page_is_the_same_in_a_locale_without_utf_8(run_dir, tmp_path):
    pages = []
    for locale in ({"PYTHONUTF8": "1"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        run_cli("report", run_dir, "--no-picture", "--title", "x", "--out", tmp_path / "page.html", **locale)
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        pages.append(re.sub(r"Training report, [^<]*", "", page))
    assert pages[0] == pages[1]


def test_text_is_printed_unless_a_file_is_named(run_dir, tmp_path, capsys):
    markdown = call_cli(capsys, "report", run_dir, "--format", "md", "--title", "Two slopes").stdout
    assert markdown.splitlines()[1] == "# Two slopes"
    table = list(csv.reader(io.StringIO(call_cli(capsys, "report", run_dir, "--format", "csv").stdout)))
    assert len(table) == 1 + 3 * 12
    out = tmp_path / "table.csv"
    assert call_cli(capsys, "report", run_dir, "--out", out).stdout == f"{out}: 1 run, {out.stat().st_size / 1e3:,.0f} kB\n"
    assert list(csv.reader(out.open())) == table


def test_several_runs_and_members_without_a_picture(run_dir, tmp_path, capsys):
    out = tmp_path / "page.htm"
    other = finetune(tmp_path / "other")
    done = call_cli(capsys, "report", run_dir, other, "--out", out, "--no-picture", "--no-members")
    assert (done.stdout.split(":")[1].split(",")[0], done.stderr) == (" 2 runs", "")
    assert '"members":false' in out.read_text()
    assert "data:image" not in out.read_text()


def test_a_missing_picture_is_a_warning(run_dir, tmp_path, capsys):
    done = call_cli(capsys, "report", run_dir, "--out", tmp_path / "page.html")
    assert done.stderr.startswith("warning: run: no picture of the policy: ")
    assert "no picture: " in (tmp_path / "page.html").read_text()


def refused(run_dir, tmp_path):
    (tmp_path / "notes.html").write_text("mine")
    return [
        (("--out", tmp_path / "notes.html"), "notes.html: was not written by this command; choose another name with --out"),
        (("--out", run_dir / "page.html"), "which a report never changes; choose another --out"),
        (("--out", tmp_path), "does not say what to write"),
        (("--out", tmp_path, "--format", "html"), "is a directory; name a file with --out"),
        (("--out", tmp_path / "page.pdf"), "end the name in .html, .htm, .md, .csv, .png, or pass --format"),
        (("--out", tmp_path / "page.md", "--format", "png"), "ends like md, but --format is png"),
        (("--format", "pdf"), "--format pdf: must be one of html, md, csv, png"),
        ((run_dir,), "is named twice"),
    ]


def test_what_cannot_be_written_is_refused_in_one_line(run_dir, tmp_path, capsys):
    before = contents(run_dir)
    for arguments, message in refused(run_dir, tmp_path):
        error = call_cli(capsys, "report", run_dir, "--no-picture", *arguments, code=2).stderr
        assert message in error
        assert error.count("\n") == 1
    assert (tmp_path / "notes.html").read_text() == "mine"
    assert contents(run_dir) == before


@pytest.mark.parametrize("more", [(), ("--live",)])
def test_a_report_is_written_into_no_run_at_all(run_dir, tmp_path, capsys, more):
    other = finetune(tmp_path / "other")
    (tmp_path / "link").symlink_to(other)
    before = contents(other)
    for place in (other, other / "checkpoints" / "new", tmp_path / "link"):
        error = call_cli(capsys, "report", run_dir, "--no-picture", "--out", place / "page.html", *more, code=2).stderr
        assert error.endswith(f"lies in the run {other}, which a report never changes; choose another --out\n")
    assert contents(other) == before


def test_a_report_is_written_beside_a_run_json_of_another_program(run_dir, tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"script": "go"}')
    call_cli(capsys, "report", run_dir, "--no-picture", "--out", tmp_path / "page.html")


def test_a_folder_means_its_runs(run_dir, tmp_path, capsys):
    finetune(tmp_path / "more" / "other")
    out = tmp_path / "page.md"
    assert ": 2 runs, " in call_cli(capsys, "report", tmp_path, "--out", out).stdout
    assert out.read_text().splitlines()[1] == "# other, run"
    assert "is named twice" in call_cli(capsys, "report", tmp_path, run_dir, "--out", out, code=2).stderr


def test_a_damaged_run_in_a_folder_is_left_out(tmp_path, capsys):
    whole, rows, record, lost = (population(tmp_path / "runs" / name) for name in ("whole", "rows", "record", "x"))
    (rows / "metrics.jsonl").write_text("not a row\n")
    (record / "run.json").write_text("{")
    (lost / "run.json").unlink()
    done = call_cli(capsys, "report", tmp_path / "runs", "--out", tmp_path / "page.md")
    assert ": 1 run, " in done.stdout
    live = call_cli(capsys, "report", tmp_path / "runs", "--live", "--no-picture", "--out", tmp_path / "page.html")
    assert len(live.stderr.splitlines()) == 3
    told = done.stderr.splitlines()
    assert [line.split(": ")[:2] for line in told] == [["warning", "left out"]] * 3
    printed = call_cli(capsys, "report", tmp_path / "runs", "--format", "md").stdout
    for page in (printed, (tmp_path / "page.md").read_text(), (tmp_path / "page.html").read_text()):
        assert f"left out: {rows / 'metrics.jsonl'}: line 1 is damaged" in page
        assert f"left out: {record}: its run.json is damaged" in page
        assert f"left out: {lost}: its run.json is missing; use another copy of the run" in page
    assert str(record) in told[0]
    assert "its run.json is damaged" in told[0]
    assert str(rows / "metrics.jsonl") in told[1]
    shutil.rmtree(whole)
    error = call_cli(capsys, "report", tmp_path / "runs", "--format", "md", code=4).stderr.splitlines()[-1]
    assert error == f"error: {tmp_path / 'runs'}: none of its 3 runs can be read; use another copy of them"
    assert "metrics.jsonl" in call_cli(capsys, "report", rows, "--format", "md", code=4).stderr


def test_only_a_full_disk_is_told_with_its_size(run_dir, capsys):
    error = call_cli(capsys, "report", run_dir, "--out", "/proc/x.md", code=6).stderr
    assert error == "error: /proc/x.md: cannot be written: No such file or directory\n"


def test_a_pipe_is_not_written_to(run_dir, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.html")
    error = call_cli(capsys, "report", run_dir, "--no-picture", "--out", tmp_path / "pipe.html", code=2).stderr
    assert "pipe.html: is not a plain file; name another with --out" in error


def test_a_killed_run_has_failed(tmp_path, capsys):
    run = population(tmp_path / "run", status="running")
    assert "| running, offline: step 120 of 100 (100 %)" in call_cli(capsys, "report", run, "--format", "md").stdout, (
        "its rows are new"
    )
    for file in run.iterdir():
        os.utime(file, (1e9, 1e9))
    assert (
        "| failed: its process is gone, offline: step 120 of 100" in call_cli(capsys, "report", run, "--format", "md").stdout
    )


def test_a_run_that_has_yet_to_begin_is_told(tmp_path, capsys):
    with RunLock(tmp_path / "run"):
        error = call_cli(capsys, "report", tmp_path / "run", code=4).stderr
    assert "is only starting; try again once it trains" in error


def test_what_is_no_run_is_told(tmp_path, capsys):
    assert "is not a run directory" in call_cli(capsys, "report", tmp_path, code=4).stderr
    assert "there is no run or checkpoint here" in call_cli(capsys, "report", tmp_path / "no", code=4).stderr
