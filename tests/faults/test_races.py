"""Eight processes that start at the same moment in one run directory: one trains, the others are refused, nothing breaks."""

import os

import pytest

from rl_training.cli import run
from rl_training.integrity.comparing import differences
from rl_training.integrity.files import check_files

RACES, STARTS = 20, 8
SHORT = {"total_timesteps": 160, "checkpoint_interval": 20, "log_interval": 10, "eval_interval": 60, "workers": 0}
BUSY, USED = 7, 2  # while another trains, and after it has ended


def race(words):
    """Run a command in eight forked processes that wait for one another; return their exit codes."""
    ready, go = os.pipe(), os.pipe()
    children = []
    for _ in range(STARTS):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                os.dup2(2, 1)
                os.close(go[1])
                os.write(ready[1], b".")
                os.read(go[0], 1)  # ends when the other side is closed
                code = run(words)
            finally:
                os._exit(code)
        children.append(child)
    os.close(go[0])
    for _ in range(STARTS):
        os.read(ready[0], 1)
    os.close(go[1])
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for end in ready:
        os.close(end)
    return codes


@pytest.mark.faults
def test_one_of_eight_starts_trains(wholes, fault_count, tmp_path):
    whole, config = wholes("solo", **SHORT)
    passed = 0
    for number in range(RACES):
        run_dir = tmp_path / f"run-{number}"
        codes = race(["train", str(config), "--run-dir", str(run_dir)])
        alone = codes.count(0) == 1 and codes.count(BUSY) + codes.count(USED) == STARTS - 1
        passed += alone and differences(whole, run_dir) == [] and check_files(run_dir).whole
    fault_count("races", passed, RACES)
