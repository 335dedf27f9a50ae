"""Numbered calls from a process to its workers, in shared memory.

Who waits looks at the memory for a moment, which takes microseconds, and then goes to sleep until the other wakes it through
a pipe. Where cores are scarce, and on processors that may reorder writes, everyone goes to sleep at once.
"""

import contextlib
import os
import platform
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from rl_training.envs.workers.process import GRACE_SECONDS, Worker, end_workers, how_it_ended, shared_arrays, start_worker
from rl_training.errors import ConfigError

_LOOK_SECONDS = 1e-3  # before going to sleep
_CHECK_SECONDS = 0.1
_PARENT_CHECK_SECONDS = 1.0
_LONGEST_FAULT = 4000  # bytes of a message
_ORDERED = platform.machine() in ("x86_64", "AMD64")  # what is written first is seen first
_barrier = threading.Lock()

Move = Callable[[], None]
"""Called by a worker now and then, to tell that it has not come to a stop."""
Task = Callable[[int, int, Move], str]
"""What a worker does with its number and a command; returns a message if it failed."""


class Calls:
    """Workers that do what they are asked, one call at a time; one that hangs or dies ends all of them."""

    def __init__(
        self, subject: str, count: int, task: Task, finish: Callable[[], None], *, looks: bool, niceness: int = 0
    ) -> None:
        """Start `count` workers for the environment `subject`, as messages call it; each calls `finish` when it ends.

        With `looks`, workers look for calls before going to sleep, which keeps a core busy for each.
        """
        self._finish = finish
        self._subject, self._parent, self._fault = subject, os.getpid(), ""
        self._look_seconds = _LOOK_SECONDS if looks and _ORDERED else 0.0
        shared = shared_arrays(
            {
                "asked": (np.int64, (count,)),
                "answered": (np.int64, (count,)),
                "commands": (np.int64, (count,)),
                "lengths": (np.int64, (count,)),
                "moves": (np.int64, (count,)),
                "asleep": (np.bool_, (count + 1,)),
                "faults": (np.uint8, (count, _LONGEST_FAULT)),
            }
        )
        self._asked, self._answered, self._commands = shared["asked"], shared["answered"], shared["commands"]
        self._asleep, self._lengths, self._faults = shared["asleep"], shared["lengths"], shared["faults"]
        self._moves = shared["moves"]
        self._asleep[:-1] = True  # until a worker looks for the first time; the last is this process
        self.workers: list[Worker] = []
        try:
            for number in range(count):
                self.workers.append(start_worker(self._serving(number, task), niceness))
        except BaseException:
            self.close()
            raise

    def ask(self, numbers: NDArray[np.int64], command: int) -> None:
        """Ask workers to do something; the answers to the last call must have been waited for."""
        if self._fault:
            raise ConfigError(self._fault)
        self._commands[numbers] = command
        self._asked[numbers] += 1
        _fence()
        for number in numbers if not _ORDERED else numbers[self._asleep[numbers]]:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which its other pipe tells
                os.write(self.workers[number].commands, b"!")

    def _has_answered(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which workers have answered their last call."""
        return np.asarray(self._answered[numbers] == self._asked[numbers])

    def wait(self, numbers: NDArray[np.int64], doing: str, timeout: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait for the answers of workers; raise the message of the first that failed, or that one died or hangs.

        A worker hangs if it neither answers nor moves for longer than `timeout`. `check` is called often and may raise.
        """
        check()
        moves, since = self._moves[numbers], np.full(len(numbers), time.monotonic())
        while not self._poll(numbers, doing, _CHECK_SECONDS):
            check()
            moved = (self._moves[numbers] != moves) | self._has_answered(numbers)
            moves[:], since[moved] = self._moves[numbers], time.monotonic()
            if time.monotonic() - since.min() > timeout + GRACE_SECONDS:
                self._give_up(
                    f"environment {self._subject} took over env_timeout = {timeout:g} s to {doing}; "
                    "mend it, or raise env_timeout"
                )
        self._raise_failure(numbers)

    def _poll(self, numbers: NDArray[np.int64], doing: str, seconds: float) -> bool:
        """Wait for the answers of workers, at most for some seconds; return whether all are there, or raise if one died."""
        if self._fault:
            raise ConfigError(self._fault)
        begin = time.monotonic()
        while not self._has_answered(numbers).all():
            if time.monotonic() - begin >= self._look_seconds:
                return self._sleep(numbers, doing, begin + seconds)
            os.sched_yield()  # on a busy machine the worker may be waiting for this core
        return True

    def _raise_failure(self, numbers: NDArray[np.int64]) -> None:
        """Raise the message of the first of the workers that failed, if any did."""
        failed = numbers[self._lengths[numbers] > 0]
        if len(failed):
            text = self._faults[failed[0], : self._lengths[failed[0]]].tobytes()
            self._lengths[failed] = 0
            raise ConfigError(text.decode(errors="replace"))

    def _give_up(self, fault: str) -> NoReturn:
        """End all workers after one has failed for good; from now on every call is answered with what happened."""
        self._fault = fault
        self.close()
        raise ConfigError(fault)

    def _sleep(self, numbers: NDArray[np.int64], doing: str, deadline: float) -> bool:
        """Sleep until the answers are there, at most until a deadline; return whether they are."""
        poller, owners = select.poll(), dict[int, Worker]()
        for number in numbers[~self._has_answered(numbers)]:
            owners[self.workers[number].replies] = self.workers[number]
            poller.register(self.workers[number].replies, select.POLLIN)
        self._asleep[-1] = True
        _fence()
        try:
            while not self._has_answered(numbers).all() and (left := deadline - time.monotonic()) > 0.0:
                for replies, _ in poller.poll(left * 1000.0):
                    if not os.read(replies, 64):
                        how = how_it_ended(owners[replies])
                        self._give_up(f"a worker process of environment {self._subject} died ({how}) when asked to {doing}")
        finally:
            self._asleep[-1] = False
        return bool(self._has_answered(numbers).all())

    def close(self) -> None:
        """End the workers and wait until they are gone."""
        if os.getpid() == self._parent:
            workers, self.workers = self.workers, []
            end_workers(workers)

    def _serving(self, number: int, task: Task) -> Callable[[int, int], None]:
        """What a worker does: tasks, until the parent is gone."""

        def move() -> None:
            self._moves[number] += 1

        def serve(command: int, reply: int) -> None:
            done = 0
            while self._called(number, done, command):
                done += 1
                self._answer(number, done, task(number, int(self._commands[number]), move))
                if self._asleep[-1] or not _ORDERED:
                    os.write(reply, b".")
            self._finish()

        return serve

    def _answer(self, number: int, done: int, fault: str) -> None:
        """Answer a call in a worker, with the message of what failed, if anything did."""
        message = fault.encode(errors="replace")[:_LONGEST_FAULT]
        self._faults[number, : len(message)] = np.frombuffer(message, dtype=np.uint8)
        self._lengths[number] = len(message)
        self._answered[number] = done
        _fence()

    def _called(self, number: int, done: int, command: int) -> bool:
        """Wait in a worker for a call after the first `done`; return False once the parent is gone."""
        self._asleep[number] = False
        begin = time.monotonic()
        while self._asked[number] == done:
            if time.monotonic() - begin < self._look_seconds:
                os.sched_yield()
                continue
            self._asleep[number] = True
            _fence()
            if self._asked[number] == done:
                if select.select([command], [], [], _PARENT_CHECK_SECONDS)[0]:
                    if not os.read(command, 64):
                        return False
                elif os.getppid() != self._parent:
                    return False
        self._asleep[number] = False
        return True


def first_failure(tasks: Sequence[Callable[[], None]], move: Move) -> str:
    """Do several things in order until one fails, with a move after each; return the message of the failure, or nothing."""
    for task in tasks:
        try:
            task()
            move()
        except Exception as error:
            return str(error) if isinstance(error, ConfigError) else f"environment failed: {type(error).__name__}: {error}"
    return ""


def _fence() -> None:
    """Have the processor finish its writes before it reads on: a lock does that."""
    with _barrier:
        pass
