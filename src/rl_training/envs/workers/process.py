"""Worker processes: forks of this process that end when it does, and leave nothing behind.

A worker keeps no file of its parent open and does nothing at the signals that stop a run, because the parent decides. Nothing
has a name that could stay behind: memory is anonymous and processes wake each other through pipes.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

GRACE_SECONDS = 1.0  # in which a worker may answer late, as one that was suspended does, or end
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Worker:
    """A process, and the parent's ends of its pipes."""

    pid: int
    commands: int
    replies: int


def shared_arrays(layout: Mapping[str, tuple[Any, tuple[int, ...]]]) -> dict[str, NDArray[Any]]:
    """Return arrays of zeros in one piece of anonymous memory, which forks share; wider types come first in a layout."""
    sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for kind, shape in layout.values()]
    memory, begin = mmap.mmap(-1, max(1, sum(sizes))), 0
    found: dict[str, NDArray[Any]] = {}
    for (name, (kind, shape)), size in zip(layout.items(), sizes, strict=True):
        found[name] = np.frombuffer(memory, dtype=kind, count=int(np.prod(shape)), offset=begin).reshape(shape)
        begin += size
    return found


def start_worker(serve: Callable[[int, int], None], niceness: int = 0) -> Worker:
    """Start a process that calls `serve` with its ends of two pipes, one to be woken by and one to wake this process."""
    command, commands = os.pipe()
    replies, reply = os.pipe()
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # what is not yet written would be written by the worker too
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it needs nothing that other threads may have locked
            pid = os.fork()
        if pid == 0:
            _worker_main(serve, command, reply, parent, mask, niceness)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(command)
    os.close(reply)
    return Worker(pid, commands, replies)


def _worker_main(
    serve: Callable[[int, int], None], command: int, reply: int, parent: int, mask: Any, niceness: int
) -> NoReturn:
    """Serve until the parent is gone; never returns, and leaves nothing of the parent's to be cleaned up twice."""
    try:
        for number in _IGNORED:
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs that an environment starts would inherit
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setpgid(0, 0)  # with what an environment starts, so that all can be ended
        end_with(parent)
        os.nice(niceness)
        gc.freeze()  # objects of the parent are not to close files whose numbers are used again here
        _close_all_but(command, reply)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # its threads do not exist in a fork
        serve(command, reply)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def end_with(parent: int) -> None:
    """Have the system end this process when its parent ends, where it can; elsewhere it notices within a second."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Close what was inherited: locks and pipes of other workers would otherwise outlive the parent."""
    begin = 3
    for end in sorted(kept):
        os.closerange(begin, end)
        begin = end + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))


def end_workers(workers: Sequence[Worker]) -> None:
    """End processes and wait until they are gone."""
    for worker in workers:
        os.close(worker.commands)  # which tells it to end
        os.close(worker.replies)
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        _wait_or_kill(worker.pid, deadline)


def how_it_ended(worker: Worker) -> str:
    """Say how a process that closed its pipe ended; what its environments had started is ended too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)  # itself has ended, but others may be left in its group
    status = _wait_or_kill(worker.pid, time.monotonic() + GRACE_SECONDS)
    if status is None:
        return "how is not known"
    if not os.WIFSIGNALED(status):
        return f"exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        return "signal 9: killed by someone, or memory ran out; then use fewer `workers` or members"
    return f"signal {number}: a crash in code that is not Python"


def _wait_or_kill(pid: int, deadline: float) -> int | None:
    """Wait for a process that is about to end, and kill it and what it started if it does not; return its status if known."""
    with contextlib.suppress(ChildProcessError):  # already waited for, here or by who ignores the ends of children
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    return None
