"""Who holds a run: not the processes that its holder has started, and nobody before it is loaded."""

import os
import signal
import subprocess
import sys

import pytest

from rl_training.errors import RunBusyError
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
