"""Output that cannot be printed: the run goes on, saves, and ends with the right code."""

import os
import subprocess
import sys

import pytest
import yaml

from rl_training.runtime import progress
from rl_training.runtime.progress import BarReporter, LineReporter
from tests.helpers import call_cli, checkpoints, environment, run_values
from tests.report.run_files import population

WAYS = {
    "full": "{command} 2>/dev/full",
    "gone": "{{ {command} 2>&1; echo $? >code; }} | true; exit $(cat code)",
    "closed": "{command} 2>&- >&- <&-",
    "nameless": "{command} --run-dir \"$(printf 'run\\377')\"",
}


def shell(way, command, cwd):
    script = WAYS[way].format(command=f"{sys.executable} -m rl_training {command}")
    return subprocess.run(["bash", "-c", script], cwd=cwd, env=environment(), capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_where_nothing_can_be_printed(way, tmp_path):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values()))
    command = "train c.yaml" + " --run-dir run" * (way != "nameless")
    done = shell(way, command, tmp_path)
    run = tmp_path / os.fsdecode(b"run\xff") if way == "nameless" else tmp_path / "run"
    assert done.returncode == 0, done.stderr
    assert checkpoints(run)[-1].name == "step-000000120"
    assert b"Traceback" not in done.stderr
    assert (run / "metrics.jsonl").read_bytes().startswith(b"{")  # and nothing that was meant for a closed stream


@pytest.mark.parametrize("way", ["full", "gone", "closed"])
def test_errors_keep_their_code(way, tmp_path):
    assert shell(way, "resume nowhere", tmp_path).returncode == 4


HOSTILE = "é日\x1b[31mred\x1b]0;pwn\x07 \u202e\nline"


def commands(tmp_path):
    first, second = (population(tmp_path / f"{name}{HOSTILE}") for name in ("a", "b"))
    yield 0, ("compare", first, second)
    yield 0, ("compare", f"x{HOSTILE}={first}", second, "--against", f"x{HOSTILE}")
    yield 0, ("report", first, "--out", tmp_path / f"{HOSTILE}.md")
    yield 0, ("report", first, "--no-picture", "--live", "--out", tmp_path / f"{HOSTILE}.html")
    yield 0, ("watch", first, "--once")
    for command in (["report"], ["watch"], ["compare", first]):
        yield (2 if command[0] == "compare" else 4), (*command, tmp_path / HOSTILE)
    yield 2, (f"nothing{HOSTILE}",)


def test_names_do_not_command_the_terminal(tmp_path, capsys):
    for code, arguments in commands(tmp_path):
        done = call_cli(capsys, *arguments, code=code)
        seen = done.stdout + done.stderr
        assert [one for one in seen if not one.isprintable() and one != "\n"] == [], arguments
        assert "é日\\x1b[31mred\\x1b]0;pwn\\x07 \\u202e" in seen, arguments
        if code == 0:
            assert not [line for line in seen.splitlines() if line.startswith("line")], arguments


def test_warnings_beside_a_bar_do_not_command_the_terminal(capsys):
    for reporter in (BarReporter(), LineReporter()):
        reporter.warn(HOSTILE)
        reporter.note(HOSTILE)
    assert "\x1b[31m" not in capsys.readouterr().err


def test_a_long_run_without_a_terminal_tells_once_how_long_it_takes(capsys, monkeypatch):
    """The first chunk, which may have waited for a compiler, does not count; short runs say nothing."""
    now = iter([100.0, 110.0, 125.0, 300.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    reporter = LineReporter()
    reporter.start(0, 100_000, "step")
    for count in (10, 60, 260, 900):
        reporter.advance(count, {"critic": 1.0})
    told = "step 260 of 100,000: about 2 h 46 min left, at 10 steps per second"
    assert capsys.readouterr().err.splitlines() == ["training from step 0 to 100,000", told]
    now = iter([0.0, 30.0])
    reporter.start(0, 400, "env step")
    for count in (100, 200):
        reporter.advance(count, {})
    assert capsys.readouterr().err.splitlines() == ["training from env step 0 to 400"]
