"""Worker processes: the same bits as in one process, and clear ends when an environment raises, hangs or dies."""

import os
import select
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import tests.envs.own_environments  # noqa: F401 - registers them
from rl_training.config.environment import EnvSource
from rl_training.envs.environments import EnvBatch
from rl_training.envs.workers.batch import WorkerBatch
from rl_training.envs.workers.count import open_batch, worker_count
from rl_training.errors import ConfigError
from tests.helpers import assert_same_run, die_at_each, environment, small_dataset, tiny_run

COPIES = 5


def played(batch, steps=120):
    """Everything that copies return over several episodes, which end at different times."""
    seen = []
    with batch:
        batch.reset_all(range(COPIES))
        for step in range(steps):
            results = batch.step(np.full((COPIES, batch.spaces.action_dim), np.sin(step), dtype=np.float32))
            seen.append((batch.observations.tobytes(), *(values.tobytes() for values in results)))
            for index in np.flatnonzero(~batch.running):
                batch.reset(int(index), 1000 * step + int(index))
    return seen


@pytest.mark.parametrize("env", ["Pendulum-v1", "Tests/Drift-v0", "HalfCheetah-v5"])
@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_give_the_same_bits(env, workers, looks):
    if env == "HalfCheetah-v5":
        pytest.importorskip("mujoco")
    assert played(WorkerBatch(env, COPIES, workers, 30.0, looks=looks)) == played(EnvBatch(env, COPIES))


def test_only_running_copies_are_stepped():
    for batch in (EnvBatch("Tests/Drift-v0", 3), WorkerBatch("Tests/Drift-v0", 3, 2, 30.0)):
        with batch:
            batch.reset_all([1, 2, 3])
            before = batch.observations.copy()
            batch.running[1] = False
            rewards, _, _ = batch.step(np.zeros((3, 1), dtype=np.float32))
            assert (batch.observations == before).all(axis=1).tolist() == [False, True, False]
            assert rewards[1] == 0.0


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("raise", "ZeroDivisionError: the motor is off"),
        ("exit", "SystemExit: 3"),
        ("huge", "returned NaN or inf"),
    ],
)
def test_a_failure_says_the_same_in_a_worker(failure, words):
    def message(workers):
        with open_batch(EnvSource("Tests/Drift-v0", {"failure": failure, "at": 2}), 3, workers, 30.0) as batch:
            batch.reset_all([1, 2, 3])
            batch.step(np.zeros((3, 1), dtype=np.float32))
            with pytest.raises(ConfigError) as error:
                batch.step(np.zeros((3, 1), dtype=np.float32))
        return str(error.value)

    assert message(0) == message(2)
    assert words in message(2)
    assert "it was step 2 after reset(seed=1)" in message(2)


def test_a_copy_that_hangs_is_given_up():
    with WorkerBatch(EnvSource("Tests/Drift-v0", {"failure": "hang", "at": 1}), 2, 2, 0.2) as batch:
        batch.reset_all([1, 2])
        with pytest.raises(ConfigError, match=r"took over env_timeout = 0.2 s to step"):
            batch.step(np.zeros((2, 1), dtype=np.float32))


def test_what_an_environment_did_before_is_not_its_failure_now():
    """A copy that is not stepped may hold anything."""
    for batch in (EnvBatch("Tests/Drift-v0", 2), WorkerBatch("Tests/Drift-v0", 2, 1, 30.0)):
        with batch:
            batch.reset_all([1, 2])
            batch.observations[1], batch.running[1] = np.nan, False
            batch.step(np.zeros((2, 1), dtype=np.float32))


def test_a_worker_that_dies_is_noticed():
    with WorkerBatch("Tests/Drift-v0", 4, 2, 30.0) as batch:
        batch.reset_all([1, 2, 3, 4])
        os.kill(batch._calls.workers[1].pid, signal.SIGKILL)
        with pytest.raises(ConfigError, match=r"a worker process of environment Tests/Drift-v0 died \(signal 9"):
            batch.step(np.zeros((4, 1), dtype=np.float32))


def test_an_environment_that_cannot_be_made_is_refused_before_a_worker_starts():
    with pytest.raises(ConfigError, match="cannot be created with wings=2"):
        WorkerBatch(EnvSource("Tests/Drift-v0", {"wings": 2}), 2, 2, 30.0)


def test_a_batch_that_has_failed_for_good_says_so_again():
    with WorkerBatch("Tests/Drift-v0", 2, 2, 30.0) as batch:
        batch.reset_all([1, 2])
        os.kill(batch._calls.workers[0].pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(ConfigError, match="died"):
                batch.step(np.zeros((2, 1), dtype=np.float32))


def test_the_time_limit_is_for_each_copy():
    """Four copies in one worker may take four times as long."""
    with WorkerBatch("Tests/Slow-v0", 4, 1, 0.5) as batch:
        batch.reset_all(range(4))
        assert batch.running.all()


def test_long_messages_in_any_language_arrive():
    with WorkerBatch(EnvSource("Tests/Drift-v0", {"failure": "shout", "at": 1}), 1, 1, 30.0) as batch:
        batch.reset(0, 1)
        with pytest.raises(ConfigError, match="éé"):
            batch.step(np.zeros((1, 1), dtype=np.float32))


def test_a_worker_closes_its_environments(tmp_path):
    with WorkerBatch(EnvSource("Tests/Drift-v0", {"flag": str(tmp_path / "closed")}), 2, 1, 30.0) as batch:
        batch.reset_all([1, 2])
    assert (tmp_path / "closed").exists()


def test_torch_works_in_a_worker():
    """Its threads are those of the parent, and do not exist in a fork."""
    torch.ones(600, 600) @ torch.ones(600, 600)
    with WorkerBatch("Tests/Torch-v0", 1, 1, 30.0) as batch:
        batch.reset(0, 1)
        batch.step(np.zeros((1, 1), dtype=np.float32))
        assert batch.observations[0, 0] == 600.0


def wait_for_end(pid):
    """Wait until a process is gone; fail after a minute."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 60.0)[0], f"process {pid} is still there"
    finally:
        os.close(handle)


@pytest.mark.parametrize("hanging", [False, True])
def test_workers_end_with_a_parent_that_is_killed(hanging):
    """Also in the middle of a step that never ends."""
    program = f"""
import tests.envs.own_environments, numpy as np
from rl_training.config.environment import EnvSource
from rl_training.envs.workers.batch import WorkerBatch
batch = WorkerBatch(EnvSource("Tests/Drift-v0", {{"failure": "hang" if {hanging} else "", "at": 1}}), 4, 3, 60.0)
batch.reset_all(range(4))
print(*(worker.pid for worker in batch._calls.workers), flush=True)
if {hanging}:
    batch.step(np.zeros((4, 1), dtype=np.float32))
input()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.communicate()
    assert len(workers) == 3
    for pid in workers:
        wait_for_end(pid)


def test_auto_measures_the_environment():
    assert worker_count("auto", "Pendulum-v1", 80, cores=2) == 0
    assert worker_count("auto", "Pendulum-v1", 1, cores=16) == 0
    assert worker_count("auto", "Pendulum-v1", 4000, cores=16) > 1
    assert worker_count(3, "Pendulum-v1", 80, cores=2) == 3


ONLINE = {"env_id": "Tests/Drift-v0", "seeds": [0, 1, 2], "seed": 0}


@pytest.mark.parametrize("algo", ["sac", "iql"])
def test_a_run_with_workers_is_the_same_run(algo, tmp_path):
    """Online, and evaluated offline; also if it is cut and resumed with another number of workers."""
    own = ONLINE if algo == "sac" else {"seeds": [0, 1]}
    tiny_run(tmp_path / "here", algo, workers=0, **own)
    tiny_run(tmp_path / "workers", algo, workers=2, **own)
    assert_same_run(tmp_path / "here", tmp_path / "workers")
    die_at_each(lambda **kwargs: tiny_run(tmp_path / "cut", algo, workers=1, **own, **kwargs), [("log", 50)])
    assert_same_run(tmp_path / "here", tmp_path / "cut")


@pytest.mark.parametrize("where", [{"at": 33}, {"at": -1, "resets": 1}])
@pytest.mark.parametrize(("failure", "workers"), [("raise", 0), ("raise", 2), ("die", 2)])
def test_a_failing_environment_loses_nothing(failure, workers, where, tmp_path):
    """The steps before a failure, in a step or in a reset, are saved, and once it is mended the run continues exactly."""
    flag = tmp_path / "flag"
    own = {**ONLINE, "env_kwargs": {"failure": failure, "flag": str(flag), **where}, "workers": workers}
    tiny_run(tmp_path / "whole", "sac", **own)
    flag.touch()
    with pytest.raises(ConfigError, match=r"the run is saved at env step \d+"):
        tiny_run(tmp_path / "cut", "sac", **own)
    flag.unlink()
    tiny_run(tmp_path / "cut", "sac", resume=True, **own)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_in_an_evaluation_says_so(workers, tmp_path):
    own = {"env_id": "Tests/Drift-v0", "env_kwargs": {"failure": "raise", "at": 5}, "workers": workers}
    data = small_dataset(observation_dim=2, action_dim=1)
    says = "in the evaluation at step 40: environment Tests/Drift-v0 failed in step.* the motor is off .*saved at step 40"
    with pytest.raises(ConfigError, match=says):
        tiny_run(tmp_path / "run", dataset=data, **own)
