"""Copies of an environment stepped in worker processes over shared memory, bit for bit as in one process.

A worker is a fork of this process that steps a contiguous part of the copies. It keeps no file of its parent open, ignores
the signals that stop a run (the parent decides), and ends when the parent does, however that ends. Nothing has a name that
could stay behind: memory is anonymous and messages go through pipes.
"""

import contextlib
import ctypes
import mmap
import os
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rl_training.config.environment import EnvLike
from rl_training.envs.environments import EnvBatch, environment_spaces, make_env, reset_env, step_env
from rl_training.errors import ConfigError

_STEP, _RESET, _DONE, _FAILED = b"s", b"r", b".", b"!"
_FAULT = struct.Struct("<iI")  # the copy that failed, and the length of the message
_PARENT_CHECK_SECONDS = 1.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass
class _Worker:
    """A process, the parent's ends of its pipes, and the copies it steps."""

    pid: int
    commands: int
    replies: int
    part: slice


class WorkerBatch(EnvBatch):
    """As `EnvBatch`, in `workers` processes; a copy that raises, hangs or dies gives a ConfigError and ends them all."""

    def __init__(self, env: EnvLike, count: int, workers: int, timeout: float) -> None:
        self.env, self.timeout = env, timeout
        self._parent, self._workers = os.getpid(), list[_Worker]()
        self.spaces = environment_spaces(env).spaces
        self._shared = _SharedArrays(count, self.spaces.observation_dim, self.spaces.action_dim)
        self.observations, self.running = self._shared.observations, self._shared.running
        bounds = [round(number * count / workers) for number in range(workers + 1)]
        try:
            for begin, end in pairwise(bounds):
                self._workers.append(self._start(slice(begin, end)))
            self._await(self._workers, "be created")
        except BaseException:
            self.close()
            raise

    def _start(self, part: slice) -> _Worker:
        command, commands = os.pipe()
        replies, reply = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a worker runs none of what other threads may have locked
            pid = os.fork()
        if pid == 0:
            _worker_main(self._shared, self.env, part, command, reply, self._parent)
        os.close(command)
        os.close(reply)
        return _Worker(pid, commands, replies, part)

    def reset(self, index: int, seed: int) -> None:
        """Start a new episode in one environment."""
        self._reset({index: seed})

    def reset_all(self, seeds: Sequence[int]) -> None:
        """Start an episode in each environment with its own seed."""
        self._reset(dict(enumerate(seeds)))

    def _reset(self, seeds: dict[int, int]) -> None:
        self._shared.chosen[:] = False
        for index, seed in seeds.items():
            self._shared.chosen[index], self._shared.seeds[index] = True, seed
        self._ask(_RESET, self._shared.chosen, "reset")

    def step(self, actions: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Step every running environment with real actions; return rewards, terminated and truncated."""
        shared = self._shared
        shared.actions[:] = actions
        shared.rewards[:] = 0.0
        shared.terminated[:] = shared.truncated[:] = False
        self._ask(_STEP, self.running, "step")
        return shared.rewards.copy(), shared.terminated.copy(), shared.truncated.copy()

    def _ask(self, command: bytes, concerned: NDArray[np.bool_], doing: str) -> None:
        """Have the workers of the concerned copies do something, and wait until all have."""
        asked = [worker for worker in self._workers if concerned[worker.part].any()]
        for worker in asked:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which its reply pipe tells
                os.write(worker.commands, command)
        self._await(asked, doing)

    def _await(self, asked: Sequence[_Worker], doing: str) -> None:
        """Wait for the replies; raise what the first copy that failed says, or that a worker died or hangs."""
        waiting = {worker.replies: worker for worker in asked}
        poller, deadline, faults = select.poll(), time.monotonic() + self.timeout, dict[int, str]()
        for replies in waiting:
            poller.register(replies, select.POLLIN)
        while waiting:
            ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000.0)
            if not ready:
                raise ConfigError(f"environment {self.env} took over env_timeout = {self.timeout:g} s to {doing}")
            for replies, _ in ready:
                worker = waiting.pop(replies)
                poller.unregister(replies)
                faults |= self._reply(worker, doing)
        if faults:
            raise ConfigError(faults[min(faults)])

    def _reply(self, worker: _Worker, doing: str) -> dict[int, str]:
        """Read a worker's reply; return the fault of a copy, if it has one."""
        sign = os.read(worker.replies, 1)
        if sign == _DONE:
            return {}
        head = _read_exactly(worker.replies, _FAULT.size) if sign == _FAILED else b""
        if len(head) < _FAULT.size:
            how = _how_it_ended(worker.pid)
            return {worker.part.start: f"a worker process of environment {self.env} died ({how}) and did not {doing}"}
        index, length = _FAULT.unpack(head)
        return {index: _read_exactly(worker.replies, length).decode()}

    def close(self) -> None:
        """End the worker processes and wait until they are gone."""
        if os.getpid() != self._parent:
            return
        for worker in self._workers:
            os.close(worker.commands)  # which tells it to end
            os.close(worker.replies)
        for worker in self._workers:
            _wait_or_kill(worker.pid, seconds=1.0)
        self._workers = []

    def __del__(self) -> None:
        self.close()


class _SharedArrays:
    """Arrays in one piece of anonymous memory, which a forked process shares."""

    def __init__(self, count: int, observation_dim: int, action_dim: int) -> None:
        layout: dict[str, tuple[Any, tuple[int, ...]]] = {
            "rewards": (np.float64, (count,)),
            "seeds": (np.int64, (count,)),
            "observations": (np.float32, (count, observation_dim)),
            "actions": (np.float32, (count, action_dim)),
            "running": (np.bool_, (count,)),
            "chosen": (np.bool_, (count,)),
            "terminated": (np.bool_, (count,)),
            "truncated": (np.bool_, (count,)),
        }
        sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for kind, shape in layout.values()]
        memory, begin = mmap.mmap(-1, max(1, sum(sizes))), 0
        found: dict[str, NDArray[Any]] = {}
        for (name, (kind, shape)), size in zip(layout.items(), sizes, strict=True):
            found[name] = np.frombuffer(memory, dtype=kind, count=int(np.prod(shape)), offset=begin).reshape(shape)
            begin += size
        self.rewards, self.seeds, self.observations, self.actions = (
            found[name] for name in ("rewards", "seeds", "observations", "actions")
        )
        self.running, self.chosen, self.terminated, self.truncated = (
            found[name] for name in ("running", "chosen", "terminated", "truncated")
        )


def _worker_main(shared: _SharedArrays, env: EnvLike, part: slice, command: int, reply: int, parent: int) -> NoReturn:
    """Serve commands until the parent is gone; never returns, and leaves nothing of the parent's to be cleaned up twice."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        _end_with(parent)
        _close_all_but(command, reply)
        _serve(shared, env, range(part.start, part.stop), command, reply, parent)
    finally:
        os._exit(0)


def _end_with(parent: int) -> None:
    """Have the system end this process when its parent ends, where it can; elsewhere the loop notices within a second."""
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


def _serve(shared: _SharedArrays, env: EnvLike, part: range, command: int, reply: int, parent: int) -> None:
    made: dict[int, Any] = {}
    fault = _fault(lambda index: made.update({index: make_env(env)}), part)
    os.write(reply, fault or _DONE)
    while True:
        if not select.select([command], [], [], _PARENT_CHECK_SECONDS)[0]:
            if os.getppid() != parent:
                return
            continue
        wanted = os.read(command, 1)
        if wanted == _STEP:
            fault = _fault(lambda index: _step(shared, made[index], env, index), [i for i in part if shared.running[i]])
        elif wanted == _RESET:
            fault = _fault(lambda index: _reset(shared, made[index], env, index), [i for i in part if shared.chosen[i]])
        else:  # the parent closed the pipe
            return
        os.write(reply, fault or _DONE)


def _fault(action: Any, indices: Sequence[int]) -> bytes:
    """Do something for each copy; return the message of the first that fails, or nothing."""
    for index in indices:
        try:
            action(index)
        except Exception as error:
            text = str(error) if isinstance(error, ConfigError) else f"environment failed: {type(error).__name__}: {error}"
            message = text.encode()[:4000]
            return _FAILED + _FAULT.pack(index, len(message)) + message
    return b""


def _reset(shared: _SharedArrays, made: Any, env: EnvLike, index: int) -> None:
    shared.observations[index] = reset_env(made, env, int(shared.seeds[index]))
    shared.running[index] = True


def _step(shared: _SharedArrays, made: Any, env: EnvLike, index: int) -> None:
    observation, reward, terminal, timeout = step_env(made, env, shared.actions[index].copy())
    shared.observations[index], shared.rewards[index] = observation, reward
    shared.terminated[index], shared.truncated[index] = terminal, timeout
    shared.running[index] = not (terminal or timeout)


def _read_exactly(file: int, size: int) -> bytes:
    """Return `size` bytes, or fewer if the pipe ends."""
    parts = b""
    while len(parts) < size and (part := os.read(file, size - len(parts))):
        parts += part
    return parts


def _how_it_ended(pid: int) -> str:
    """Say how a process ended, once it has."""
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}; perhaps memory ran out: use fewer `workers` or members"
    return f"exit code {os.WEXITSTATUS(status)}"


def _wait_or_kill(pid: int, seconds: float) -> None:
    """Wait for a process that was told to end, and kill it if it does not."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):  # already waited for
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.001)
