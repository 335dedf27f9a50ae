"""Who holds a run: not the processes that its holder has started, and nobody before it is loaded."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from rl_training.errors import CheckpointError, RunBusyError
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
from rl_training.runtime.checkpoints.lock import RunLock
from tests.helpers import Cut, CutAt, environment, tiny_run

FORKS = """
import os, sys, time
from pathlib import Path
from rl_training.runtime.checkpoints.lock import RunLock
with RunLock(Path(sys.argv[1])):
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # by then it has let go of the lock
        sys.stdin.readline()
        os._exit(0)
    time.sleep(600)
"""


def test_a_forked_process_does_not_keep_the_run_of_a_killed_one(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tmp_path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(holder.stdout.readline())
    with pytest.raises(RunBusyError), RunLock(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    os.kill(child, 0)  # it is still there
    with RunLock(tmp_path):
        pass
    holder.stdin.close()
    holder.stdout.close()


def test_resume_continues_from_what_is_there_once_it_holds_the_lock(tmp_path):
    """Another process went on between the command and the lock: its steps are not thrown away."""
    with pytest.raises(Cut):
        tiny_run(tmp_path, callbacks=[CutAt("checkpoint", 60)])
    manager, checkpoint = ExperimentManager.resuming(tmp_path)
    with pytest.raises(Cut):
        tiny_run(tmp_path, resume=True, callbacks=[CutAt("checkpoint", 90)])
    with pytest.raises(Cut):
        manager.train(resume=True, checkpoint=checkpoint, callbacks=[CutAt("log", 100)])
    assert CheckpointStore(tmp_path / "checkpoints", 2).load().step == 90


def test_a_finetune_does_not_go_back_behind_another_process(tmp_path):
    """Another process went on between the command and the lock: what it has reached is not discarded."""
    tiny_run(tmp_path)
    block = {"env_id": "Pendulum-v1", "env_steps": 10, "learning_starts": 5}
    manager, checkpoint = ExperimentManager.finetuning(tmp_path, block)
    ExperimentManager.finetuning(tmp_path, block)[0].train(resume=True, checkpoint=checkpoint)
    with pytest.raises(RunBusyError, match="another process has gone on from step-000000120; start again"):
        manager.train(resume=True, checkpoint=checkpoint)


def test_a_named_checkpoint_is_read_again_under_the_lock(tmp_path):
    tiny_run(tmp_path)
    first, *_ = sorted((tmp_path / "checkpoints").glob("step-*"))
    manager, checkpoint = ExperimentManager.resuming(first)
    shutil.rmtree(first)
    with pytest.raises(CheckpointError, match=first.name):
        manager.train(resume=True, checkpoint=checkpoint)
