"""Runs that are killed before a single file-system call, or halfway through a file, end bit for bit as undisturbed ones."""

import os
import signal
import sys

import pytest

from rl_training import faults
from rl_training.config.loading import make_config
from rl_training.experiment.manager import ExperimentManager
from rl_training.integrity.comparing import differences
from tests.faults.kinds import values
from tests.helpers import generator

SHORT = {"total_timesteps": 160, "checkpoint_interval": 20, "log_interval": 10, "eval_interval": 60, "workers": 0}
KILLS = 10  # of each kind, half of them before calls and half at fault points, where files are half written
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree")


class Calls:
    """Counts the calls that change files in a directory, and kills the process before one of them."""

    def __init__(self, directory, fatal=None):
        self.directory, self.fatal, self.count = str(directory), fatal, 0

    def __call__(self, event, arguments):
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and str(arguments[0]).startswith(self.directory):
            self.count += 1
            if self.count == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def in_a_child(work):
    """Do some work in a forked process; return its exit status, negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_in_a_child(tmp_path, train):
    """How many calls and visits of fault points an undisturbed run makes."""

    def work():
        calls = Calls(tmp_path / "counted")
        sys.addaudithook(calls)
        os.environ[faults.VARIABLE] = "any@1000000000"
        train(tmp_path / "counted")
        (tmp_path / "counts").write_text(f"{calls.count} {faults._visits['any']}")

    assert in_a_child(work) == 0
    return map(int, (tmp_path / "counts").read_text().split())


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["solo", "population", "online", "finetune"])
def test_killed_before_single_calls(wholes, fault_count, tmp_path, kind):
    changes = SHORT if kind != "finetune" else {**SHORT, "total_timesteps": 80, "finetune": {"env_steps": 80}}
    whole, _ = wholes(kind, **changes)
    config = make_config(values(kind, wholes.folder, **changes))

    def train(run_dir):
        ExperimentManager(config, run_dir).train(resume=True)

    calls, visits = count_in_a_child(tmp_path, train)
    draw, passed = generator(5), 0
    for number in range(KILLS):
        run_dir, before_call = tmp_path / f"run-{number}", number % 2 == 0
        fatal = int(draw.integers(1, 1 + (calls if before_call else visits)))

        def die(run_dir=run_dir, before_call=before_call, fatal=fatal):
            if before_call:
                sys.addaudithook(Calls(run_dir, fatal))
            else:
                os.environ[faults.VARIABLE] = f"any@{fatal}"
            train(run_dir)

        assert in_a_child(die) == -signal.SIGKILL
        train(run_dir)
        passed += differences(whole, run_dir) == []
    fault_count("kills at calls", passed, KILLS)
