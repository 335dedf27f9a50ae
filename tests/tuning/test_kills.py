"""A study whose process is killed with SIGKILL, again and again, ends with the same trials."""

import random
import signal
import subprocess
import time

import pytest
import yaml

from rl_training.tuning.folder import StudyFolder
from tests.helpers import command, environment, run_values

SPACE = "expectile: {low: 0.6, high: 0.95}\nbeta: {low: 1, high: 20, log: true}\nhidden_sizes: {choices: [[8, 8], [16]]}\n"
KILLS = 5


def trials_of(path):
    folder = StudyFolder(path)
    found = folder.open(folder.read()).trials
    return [
        (one.number, one.state.name, one.params, one.values, dict(one.intermediate_values), one.user_attrs) for one in found
    ]


def finish(*words):
    done = subprocess.run(command(*words), env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.faults
@pytest.mark.parametrize("jobs", [1, 2])
def test_five_kills_change_nothing(tmp_path, jobs):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run_values()))
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ["tune", tmp_path / "config.yaml", "--space", tmp_path / "space.yaml", "--trials", 16, "--batch", 4]
    words += ["--seeds", "0,1", "--prune", "median"]
    began = time.monotonic()
    finish(*words, "--run-dir", tmp_path / "whole")
    took = time.monotonic() - began
    draw, kills = random.Random(jobs), 0  # noqa: S311 - any moments do
    path = tmp_path / "killed"
    while kills < KILLS:
        process = subprocess.Popen(
            command(*words, "--run-dir", path, "--jobs", jobs),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            process.wait(timeout=draw.uniform(0.1, 0.3) * took)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            assert process.returncode == 0, process.stderr.read().decode()
            break
        finally:
            process.stderr.close()
    assert kills == KILLS
    finish(*words, "--run-dir", path, "--jobs", jobs)
    assert trials_of(path) == trials_of(tmp_path / "whole")
    assert {entry[1] for entry in trials_of(path)} <= {"COMPLETE", "PRUNED"}
