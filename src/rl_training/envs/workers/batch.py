"""Copies of an environment stepped in worker processes over shared memory, bit for bit as in one process.

A worker is a fork of this process that steps a contiguous part of the copies. It keeps no file of its parent open, does
nothing at the signals that stop a run (the parent decides), and ends when the parent does, however that ends. Nothing has a
name that could stay behind: memory is anonymous and messages go through pipes.
"""

import contextlib
import ctypes
import gc
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
_GRACE_SECONDS = 1.0  # in which a worker may answer late, as one that was suspended does, or end
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass
class _Worker:
    """A process, the parent's ends of its pipes, and the copies it steps."""

    pid: int
    commands: int
    replies: int
    part: slice


class WorkerBatch(EnvBatch):
    """As `EnvBatch`, in `workers` processes; a copy that raises gives a ConfigError, one that hangs or dies ends them."""

    def __init__(self, env: EnvLike, count: int, workers: int, timeout: float) -> None:
        self.env, self.timeout = env, timeout
        self._parent, self._workers, self._fault = os.getpid(), list[_Worker](), ""
        self.spaces = environment_spaces(env).spaces
        self._shared = _SharedArrays(count, self.spaces.observation_dim, self.spaces.action_dim)
        self.observations, self.running = self._shared.observations, self._shared.running
        bounds = [round(number * count / workers) for number in range(workers + 1)]
        try:
            for begin, end in pairwise(bounds):
                self._workers.append(self._start(slice(begin, end)))
            self._await(self._workers, "be created", np.ones(count, dtype=bool))
        except BaseException:
            self.close()
            raise

    def _start(self, part: slice) -> _Worker:
        command, commands = os.pipe()
        replies, reply = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # what is not yet written would be written by the worker too
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # it needs nothing that other threads may have locked
                pid = os.fork()
            if pid == 0:
                _worker_main(self._shared, self.env, part, command, reply, self._parent, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
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
        if self._fault:
            raise ConfigError(self._fault)
        asked = [worker for worker in self._workers if concerned[worker.part].any()]
        for worker in asked:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which its reply pipe tells
                os.write(worker.commands, command)
        self._await(asked, doing, concerned)

    def _await(self, asked: Sequence[_Worker], doing: str, concerned: NDArray[np.bool_]) -> None:
        """Wait for the replies; raise what the first copy that failed says, or that a worker died or hangs."""
        waiting, faults = {worker.replies: worker for worker in asked}, dict[int, str]()
        longest = max((int(concerned[worker.part].sum()) for worker in asked), default=0)  # copies that take turns
        deadline, poller = time.monotonic() + self.timeout * longest, select.poll()
        for replies in waiting:
            poller.register(replies, select.POLLIN)
        while waiting:
            ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000.0) or poller.poll(_GRACE_SECONDS * 1000.0)
            if not ready:
                raise self._ended(f"environment {self.env} took over env_timeout = {self.timeout:g} s to {doing}")
            for replies, _ in ready:
                worker = waiting.pop(replies)
                poller.unregister(replies)
                faults |= self._reply(worker, doing)
        if faults:
            raise ConfigError(faults[min(faults)])

    def _ended(self, fault: str) -> ConfigError:
        """End all workers after one has failed for good; the batch cannot be used any more, and says why."""
        self._fault = fault
        self.close()
        return ConfigError(fault)

    def _reply(self, worker: _Worker, doing: str) -> dict[int, str]:
        """Read a worker's reply; return the fault of a copy, if it has one."""
        sign = os.read(worker.replies, 1)
        if sign == _DONE:
            return {}
        head = _read_exactly(worker.replies, _FAULT.size) if sign == _FAILED else b""
        if len(head) < _FAULT.size:
            how = _how_it_ended(worker.pid)
            raise self._ended(f"a worker process of environment {self.env} died ({how}) and did not {doing}")
        index, length = _FAULT.unpack(head)
        return {index: _read_exactly(worker.replies, length).decode(errors="replace")}

    def close(self) -> None:
        """End the worker processes and wait until they are gone."""
        if os.getpid() != self._parent:
            return
        workers, self._workers = self._workers, []
        for worker in workers:
            os.close(worker.commands)  # which tells it to end
            os.close(worker.replies)
        deadline = time.monotonic() + _GRACE_SECONDS
        for worker in workers:
            _wait_or_kill(worker.pid, deadline)

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


def _worker_main(
    shared: _SharedArrays, env: EnvLike, part: slice, command: int, reply: int, parent: int, mask: Any
) -> NoReturn:
    """Serve commands until the parent is gone; never returns, and leaves nothing of the parent's to be cleaned up twice."""
    try:
        for number in _IGNORED:
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs that an environment starts would inherit
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setpgid(0, 0)  # with what an environment starts, so that all can be ended
        _end_with(parent)
        gc.freeze()  # objects of the parent are not to close files whose numbers are used again here
        _close_all_but(command, reply)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # its threads do not exist in a fork
        _serve(shared, env, range(part.start, part.stop), command, reply, parent)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
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
    try:
        _answer(shared, made, env, part, command, reply, parent)
    finally:
        for one in made.values():
            with contextlib.suppress(Exception):
                one.close()


def _answer(
    shared: _SharedArrays, made: dict[int, Any], env: EnvLike, part: range, command: int, reply: int, parent: int
) -> None:
    """Do what the parent asks for until it is gone."""
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
            message = text.encode(errors="replace")[:4000]
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
    """Say how a process that closed its pipe ended."""
    status = _wait_or_kill(pid, time.monotonic() + _GRACE_SECONDS)
    if status is not None and os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}; perhaps memory ran out: use fewer `workers` or members"
    return "how is not known" if status is None else f"exit code {os.WEXITSTATUS(status)}"


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
