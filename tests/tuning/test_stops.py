"""A stop signal at any moment of a study saves and stops it, and the same command goes on to the same trials."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from rl_training.experiment.run_record import run_status
from rl_training.faults import VARIABLE
from tests.helpers import environment, small_arrays
from tests.tuning.test_kills import trials_of

pytest.importorskip("optuna")

HEEDING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # who started the tests may ignore it
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); from rl_training.__main__ import main; main()"
)
SPACE = "beta: {low: 1, high: 9}\nhidden_sizes: {choices: [[8], [4]]}\n"
SETTINGS = ("total_timesteps=60", "eval_interval=60", "algo_kwargs.batch_size=8", "device=cpu", "select_by=action_distance")


class Command:
    """A study without an environment: two batches of two populations, each with one evaluation, at its end."""

    def __init__(self, folder):
        np.savez(folder / "log.npz", **small_arrays(rows=200))
        (folder / "space.yaml").write_text(SPACE)
        words = ["tune", "iql", "--dataset", folder / "log.npz", "--space", folder / "space.yaml", "--confirm", 1]
        words += ["--sampler", "grid", "--trials", 8, "--batch", 4, "--seeds", "0"]
        self.words = [*words, *(word for one in SETTINGS for word in ("--set", one))]

    def run(self, path, *more, fault=""):
        line = [sys.executable, "-c", HEEDING, *map(str, [*self.words, "--run-dir", path, *more])]
        own = environment(**{VARIABLE: fault})
        return subprocess.run(line, env=own, capture_output=True, text=True, timeout=300, check=False)

    def goes_on(self, path, fault, *more):
        """Stop a study at a point, and continue it to its end; return how many populations were finished at the stop."""
        number = signal.Signals[fault.partition("=")[2]]
        stopped = self.run(path, *more, fault=fault)
        assert stopped.returncode == 128 + number, stopped.stderr
        assert stopped.stderr.splitlines()[-1] == f"{number.name}: {path} is saved; the same command goes on"
        count = sum(run_status(entry) == "finished" for entry in path.glob("populations/*"))
        done = self.run(path, *more)
        assert done.returncode == 0, done.stderr
        return count


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return Command(tmp_path_factory.mktemp("stops"))


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """The trials of the study when nothing stops it."""
    path = tmp_path_factory.mktemp("studies") / "whole"
    done = command.run(path)
    assert done.returncode == 0, done.stderr
    return trials_of(path)


POINTS = {  # and how many populations are finished then
    "held-out:begin@3=SIGTERM": 3,  # in the last evaluation of the third population, which then finishes
    "tune:ask=SIGTERM": 0,  # while the first trial is asked for
    "tune:ask@5=SIGINT": 2,  # between two batches
    "tune:told=SIGINT": 1,  # between two populations
    "tune:told@4=SIGHUP": 4,  # after the last trial
    "held-out:begin@5=SIGINT": 5,  # while the best is confirmed
}


def test_a_stop_in_the_last_evaluation_of_a_population_ends_the_study(command, whole, tmp_path):
    assert command.goes_on(tmp_path / "study", "held-out:begin=SIGINT") == 1
    assert trials_of(tmp_path / "study") == whole


@pytest.mark.faults
@pytest.mark.parametrize("fault", POINTS)
def test_a_stop_at_any_point_ends_a_study_and_changes_nothing(fault, command, whole, tmp_path):
    assert command.goes_on(tmp_path / "study", fault) == POINTS[fault]
    assert trials_of(tmp_path / "study") == whole


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["jobs:submitted=SIGTERM", "tune:told=SIGINT"])
def test_a_stop_ends_the_processes_of_all_jobs(fault, command, tmp_path):
    """With more jobs than processes: one whose job was stopped takes no other."""
    assert command.goes_on(tmp_path / "study", fault, "--jobs", 2, "--population", 1) <= 3
