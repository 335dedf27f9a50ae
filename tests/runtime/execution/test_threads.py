"""Runs in several threads of one process, and in forks of it."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch

from rl_training.models.mlp import operators
from rl_training.runtime.execution import compiled, mode, tracing
from tests.helpers import assert_same_run, environment, mode_of, tiny_run

CPU = torch.device("cpu")


def in_thread(function):
    """What a function returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(60)
    return found[0]


def test_what_one_thread_traces_is_no_matter_of_another():
    with operators.fused_networks("float32"):
        assert operators.recorded_plainly(CPU)
        assert not in_thread(lambda: operators.recorded_plainly(CPU))
        assert in_thread(lambda: operators.fused_precision(None, CPU)) is None


def test_one_thread_at_a_time_compiles():
    with tracing.COMPILING:
        assert not in_thread(lambda: tracing.COMPILING.acquire(blocking=False))


@pytest.mark.faults
def test_two_compiled_runs_in_two_threads_stay_compiled(tmp_path, monkeypatch):
    """Each traces and compiles while the other does, or did: neither falls back, and the bits are those of a run alone."""
    inside, most = [], []
    trace = tracing.trace_step

    def counted(*arguments):
        inside.append(1)
        most.append(len(inside))
        try:
            return trace(*arguments)
        finally:
            inside.pop()

    monkeypatch.setattr(compiled, "trace_step", counted)
    settings = {"engine": "compile", "total_timesteps": 40}
    tiny_run(tmp_path / "alone", **settings)
    threads = [threading.Thread(target=tiny_run, args=(tmp_path / str(n),), kwargs=settings) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert max(most) == 1
    for number in range(2):
        assert mode_of(tmp_path / str(number)) == "compile"
        assert_same_run(tmp_path / "alone", tmp_path / str(number))


def test_a_fork_uses_the_one_thread_that_it_has(monkeypatch):
    said = []
    monkeypatch.setattr(mode, "_forked", True)
    torch.set_num_threads(2)
    mode.leave_lost_threads(said.append)
    assert torch.get_num_threads() == 1
    assert said == ["this process is a fork, so torch's 2 threads are gone: it uses one; start it with `spawn` for more"]
    mode.leave_lost_threads(said.append)
    assert len(said) == 1


FORK = """
import os, signal, sys
import torch
torch.set_num_threads(2)
for _ in range(3):
    torch.mm(torch.ones(700, 700), torch.ones(700, 700)).exp_()
from tests.helpers import Notes, tiny_run
import rl_training.runtime.trainer
child = os.fork()
if not child:
    signal.alarm(60)
    said = Notes()
    wide = {"hidden_sizes": [256, 256], "batch_size": 512}
    tiny_run(sys.argv[1], reporter=said, total_timesteps=10, eval_interval=10, eval_episodes=1, algo_kwargs=wide)
    os._exit(0 if any("is a fork" in text for text in said.warnings) else 9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.faults
def test_training_in_a_fork_does_not_hang(tmp_path):
    where = environment(OMP_NUM_THREADS="2")
    where["PYTHONPATH"] += f"{os.pathsep}{os.getcwd()}"
    done = subprocess.run([sys.executable, "-c", FORK, tmp_path], env=where, timeout=120, check=False)
    assert done.returncode != -signal.SIGALRM, "it hangs"
    assert done.returncode == 0
