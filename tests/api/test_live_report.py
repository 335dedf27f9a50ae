"""A page that is kept fresh while runs go on."""

import shutil
import signal
import subprocess

import pytest

from rl_training.api.reporting import keep_report_fresh
from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.checkpoints.lock import RunLock
from tests.helpers import call_cli, command, contents, environment
from tests.report.run_files import population, without_environment


class Ticks:
    """A wait function that does something to the runs each time, and keeps whether the page is live by then."""

    def __init__(self, page, *steps):
        self.page, self.steps, self.live = page, list(steps), []

    def __call__(self, seconds):
        self.live.append(None if not self.page.exists() else is_live(self.page))
        self.steps.pop(0)()


def is_live(page):
    return '"live":5' in page.read_text()


def interrupt():
    raise KeyboardInterrupt


def test_the_page_follows_the_run_until_it_has_ended(tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "page.html"
    lock, stamps, told = RunLock(run), [], []
    ticks = Ticks(
        page,
        lambda: population(run, points=4, status="running"),
        lambda: stamps.append(page.stat().st_ino),
        lambda: (stamps.append(page.stat().st_ino), population(run, points=5, status="running")),
        lambda: (stamps.append(page.stat().st_ino), population(run, points=12), lock.__exit__(None, None, None)),
    )
    with lock:
        assert keep_report_fresh([run], page, picture=False, sleep=ticks, told=told.append) == 0
    assert (ticks.steps, ticks.live) == ([], [None, True, True, True])
    assert stamps[0] == stamps[1] != stamps[2]  # written again only with news
    assert not is_live(page)
    assert "<dd>120</dd><dd>gradient steps</dd>" in page.read_text()
    opened = f"{page}: open it; it is kept fresh until the runs have ended (Ctrl-C leaves)"
    assert told == [opened, f"{page}: complete, {page.stat().st_size / 1e3:,.0f} kB"]


def test_ctrl_c_leaves_a_page_that_no_longer_loads_itself(tmp_path):
    run, page = population(tmp_path / "run", status="running"), tmp_path / "page.html"
    with RunLock(run):
        before = contents(run)
        ticks = Ticks(page, interrupt)
        assert keep_report_fresh([run], page, sleep=ticks) == 130
        assert contents(run) == before
    assert ticks.live == [True]
    assert not is_live(page)


def test_the_page_loads_itself_as_often_as_the_runs_are_looked_at(tmp_path):
    run, page, seen = population(tmp_path / "run", status="running"), tmp_path / "page.html", []
    with RunLock(run):
        ticks = Ticks(page, lambda: (seen.append(page.read_text()), interrupt()))
        keep_report_fresh([run], page, interval=20.0, sleep=ticks)
    assert "loads itself again every 20 seconds" in seen[0]
    assert '"live":20.0' in seen[0]


def test_a_run_whose_process_was_killed_has_failed_on_the_last_page(tmp_path):
    run, page = population(tmp_path / "run", status="running"), tmp_path / "page.html"
    written = (run / "timings.jsonl").stat().st_mtime
    now = [written]
    ticks = Ticks(page, lambda: now.append(written + 60.0))
    assert keep_report_fresh([run], page, picture=False, sleep=ticks, clock=lambda: now[-1]) == 1
    assert ticks.live == [True]
    assert '<span class="bad">failed: its process is gone</span>' in page.read_text()
    assert f"run: go on with <code>rl-training resume {run}</code>" in page.read_text()
    assert ">running<" not in page.read_text()


@pytest.mark.usefixtures("terminal_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_leaves_a_page_that_no_longer_loads_itself(tmp_path, number):
    run, page = population(tmp_path / "run", status="running"), tmp_path / "page.html"
    with RunLock(run):
        arguments = command("report", run, "--live", "--out", page, "--no-picture")
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        assert "it is kept fresh" in process.stdout.readline()
        assert is_live(page)
        process.send_signal(number)
        assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 130
    assert not is_live(page)


def test_a_run_that_is_removed_leaves_the_page(tmp_path):
    run, page = population(tmp_path / "run", status="running"), tmp_path / "page.html"
    with RunLock(run), pytest.raises(CheckpointError, match="was removed"):
        keep_report_fresh([run], page, sleep=Ticks(page, lambda: shutil.rmtree(run)))
    assert not is_live(page)


def test_a_run_that_failed_gives_its_code(tmp_path):
    runs = [without_environment(tmp_path / "a"), population(tmp_path / "b", status="DivergedError")]
    assert keep_report_fresh(runs, tmp_path / "page.html", picture=False, sleep=Ticks(tmp_path)) == 5


def test_what_cannot_be_kept_fresh_is_refused(tmp_path, capsys):
    run = population(tmp_path / "run")
    for arguments, message in [
        (("--out", tmp_path / "x.md"), "only a page can be kept fresh"),
        (("--format", "csv"), "only a page can be kept fresh"),
        (("--interval", "0.5"), "--interval 0.5: must be at least 1 second"),
        ((run,), "is named twice"),
        (("--out", run / "page.html"), "lies in the run"),
    ]:
        error = call_cli(capsys, "report", run, "--live", "--no-picture", *arguments, code=2).stderr
        assert message in error
        assert error.count("\n") == 1
    with pytest.raises(ConfigError, match="interval"):
        keep_report_fresh([run], tmp_path / "page.html", interval=float("nan"))


def test_the_command_writes_the_page_of_a_finished_run_at_once(tmp_path, capsys):
    run, page = population(tmp_path / "run"), tmp_path / "page.html"
    done = call_cli(capsys, "report", run, "--live", "--out", page, "--no-picture")
    assert done.stdout == f"{page}: complete, {page.stat().st_size / 1e3:,.0f} kB\n"
    assert not is_live(page)
