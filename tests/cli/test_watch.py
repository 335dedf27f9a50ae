"""`rl-training watch` on a real terminal, in pipes, and what it refuses."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest

from rl_training.runtime.checkpoints.lock import RunLock
from tests.helpers import call_cli, command, contents, environment, run_cli
from tests.report.run_files import population


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments, columns=80, lines=24, **extra):
        self.side, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        names = {name: value for name, value in environment(**extra).items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        chosen = {"TERM": "xterm", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **extra}
        self.process = subprocess.Popen(
            command(*arguments), stdin=other, stdout=other, stderr=other, env={**names, **chosen}, start_new_session=True
        )
        os.close(other)
        self._bytes = b""

    @property
    def output(self):
        return self._bytes.decode(errors="ignore")  # a character may be under way

    def read_until(self, text):
        """Read until a text was written, or to the end."""
        while text is None or text not in plain(self.output):
            ready, _, _ = select.select([self.side], [], [], 60)
            assert ready, f"nothing more was written; so far:\n{plain(self.output)}"
            try:
                block = os.read(self.side, 65536)
            except OSError:  # the other side is closed
                block = b""
            if not block:
                assert text is None, f"{text!r} was not written:\n{plain(self.output)}"
                return
            self._bytes += block

    def wait(self):
        """Read to the end and return the exit code."""
        self.read_until(None)
        os.close(self.side)
        return self.process.wait(60)


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def after_leaving(text):
    """What is left on the screen: what was written after the alternate screen was left."""
    return plain(text.rpartition("\x1b[?1049l")[2]).replace("\r", "").strip().splitlines()


@pytest.fixture
def run_dir(tmp_path):
    return population(tmp_path / "run", points=4, status="running")


def test_on_a_terminal_it_draws_in_place_and_ends_with_the_run(run_dir):
    with RunLock(run_dir):
        terminal = Terminal("watch", run_dir, "--interval", "0.1")
        terminal.read_until("step 40 of 100")
        population(run_dir, points=6, status="running")
        terminal.read_until("step 60 of 100")
        population(run_dir, points=10)
    assert terminal.wait() == 0
    assert "\x1b[?1049h" in terminal.output
    assert "\x1b[36m" in terminal.output  # colours
    left = after_leaving(terminal.output)
    assert left[1] == "finished, offline: step 100 of 100 (100 %)"
    assert len(left) <= 23
    assert "⣀" in "".join(left)


@pytest.mark.usefixtures("terminal_signals")
def test_ctrl_c_leaves_quietly_and_the_run_alone(run_dir):
    with RunLock(run_dir):
        before = contents(run_dir)
        terminal = Terminal("watch", run_dir, columns=40, lines=15, NO_COLOR="1", LC_ALL="C")
        terminal.read_until("step 40 of 100")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert contents(run_dir) == before
    left = after_leaving(terminal.output)
    assert left[1] == "running, offline: step 40 of 100 (40 %)"
    assert max(map(len, left)) <= 40
    assert "\x1b[36m" not in terminal.output
    assert terminal.output.isascii()


def test_a_terminal_may_be_resized(run_dir):
    with RunLock(run_dir):
        terminal = Terminal("watch", run_dir, "--interval", "0.1")
        terminal.read_until("at step  status")
        fcntl.ioctl(terminal.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
        terminal.read_until("return, mean of 3 members, ba…")
        population(run_dir)
    assert terminal.wait() == 0
    assert max(map(len, after_leaving(terminal.output))) <= 30


def test_a_dumb_terminal_gets_lines(run_dir):
    population(run_dir)
    terminal = Terminal("watch", run_dir, TERM="dumb")
    assert terminal.wait() == 0
    returns = "mean return -34.00 (-45.00 to -23.00), best -34.00 (-45.00 to -23.00)"
    assert terminal.output == f"run: finished, offline: step 120 of 100 (100 %), {returns}, 6.000 gradient steps/s\r\n"


def test_in_pipes(run_dir):
    population(run_dir)
    done = run_cli("watch", run_dir)
    assert done.stdout.startswith("run: finished, offline: step 120 of 100")
    assert done.stdout.count("\n") == 1
    assert "\x1b" not in run_cli("watch", run_dir, "--once", FORCE_COLOR="").stdout
    shell = f"{' '.join(command('watch', run_dir, '--once'))} | head -n 1; exit ${{PIPESTATUS[0]}}"
    head = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment(), check=True)
    assert (head.stdout, head.stderr) == ("run: iql on random, 3 members\n", "")


def test_what_cannot_be_watched_is_one_line(run_dir, tmp_path, capsys):
    cases = [
        ((tmp_path / "no",), 4, "there is no run here; pass a run directory, or wait for it with `rl-training watch --wait`"),
        ((tmp_path,), 4, "is not a run directory (no run.json)"),
        ((run_dir, run_dir), 2, "is named twice; name each run once"),
        ((run_dir, "--interval", "0"), 2, "--interval 0: must be at least 0.1 seconds"),
    ]
    for arguments, code, message in cases:
        error = call_cli(capsys, "watch", *arguments, code=code).stderr
        assert message in error
        assert error.count("\n") == 1
