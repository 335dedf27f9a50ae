"""Signals set flags; the loop acts on them at points where its state is consistent. Before a run they interrupt."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

from rl_training.errors import StoppedBySignal

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SAVING = b"\nstopping and saving once the current step is done; the same signal again ends the run at once\n"
_early: list[int] = []  # the stop signal that came while no run watched for it, or too late for the run that did


def _heeded(*numbers: int) -> list[int]:
    """Those of some signals that this process was not started to ignore, as `nohup` does with SIGHUP."""
    return [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]


class _Interruption(KeyboardInterrupt):
    """Python ends a process by SIGINT if a plain KeyboardInterrupt has left any `exec`, even where it was caught later."""


def interrupt_on_stop_signals() -> None:
    """Let SIGTERM and SIGHUP interrupt this process as Ctrl-C does, so that it cleans up; a second stop ends it at once."""
    own = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []
    for number in _heeded(signal.SIGTERM, signal.SIGHUP, *own):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    if not _early:
        _early.append(number)
        raise _Interruption
    if number != signal.SIGHUP:  # where a terminal is lost, both the system and the shell send one
        os._exit(128 + number)


def _interrupt_block(number: int, _frame: FrameType | None) -> None:
    if not _early:
        _early.append(number)
        raise _Interruption
    if number == signal.SIGINT:  # another signal would interrupt the cleaning up for nothing
        os._exit(128 + number)


def _note(number: int, _frame: FrameType | None = None) -> None:
    _early[:] = _early or [number]


def exit_code(code: int) -> int:
    """Return the exit code of a process: that of the signal which interrupted it before it had anything to save, if one did.

    Whatever the interruption became on its way counts for nothing: libraries that load turn it into errors of their own.
    """
    return 128 + _early[0] if _early and code else code


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Block stop signals in this context, also for child processes: a Ctrl-C reaches the whole process group."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupted_by_stop_signals(message: str) -> Iterator[None]:
    """Let stop signals interrupt the block, so that it cleans up, and tell this message alone of a stop.

    A training run inside saves and stops as ever; what it says about that is left out, for a block that keeps nothing. A
    stop that comes too late for a run, which then finishes, stops the next one, and `raise_if_interrupted` raises it.
    """
    main, known = threading.current_thread() is threading.main_thread(), list(_early)
    own = [] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]
    before = {n: signal.getsignal(n) for n in _heeded(signal.SIGTERM, signal.SIGHUP, *own)} if main else {}
    try:
        for number in before:
            signal.signal(number, _interrupt_block)
        yield
    except (KeyboardInterrupt, StoppedBySignal) as stop:
        number = stop.signal_number if isinstance(stop, StoppedBySignal) else next(iter(_early), signal.SIGINT)
        raise StoppedBySignal(number, f"{signal.Signals(number).name}: {message}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _early[:] = known


def raise_if_interrupted() -> None:
    """Raise StoppedBySignal if a stop came too late for a run, or interrupted code that has swallowed it."""
    if _early:
        raise StoppedBySignal(_early[0], f"{signal.Signals(_early[0]).name}: stopped between two runs")


def stopped_by_parent() -> None:
    """Let SIGTERM alone stop the runs of this process, which its parent started with stop signals blocked.

    A Ctrl-C reaches the whole process group, so the parent decides. One SIGTERM stops all runs to come; more change nothing.
    """
    signal.signal(signal.SIGTERM, _note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


class SignalWatch:
    """While open, SIGTERM, SIGINT and SIGHUP request a save and a stop, SIGUSR1 a save; a second stop signal exits at once.

    With `patient` it does not: who started several ranks passes on the signal that the ranks may have got themselves; nor
    in a process that is `stopped_by_parent`. Nor does a second SIGHUP: where a terminal is lost, both the system and the
    shell send one. An ignored SIGHUP stays so. Whoever waits for a stop around the watch learns of it when it closes.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self.stop_signal: int | None = None
        self.save_requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "SignalWatch":
        if threading.current_thread() is threading.main_thread():
            for number in _heeded(*_STOP, signal.SIGUSR1):
                self._previous[number] = signal.signal(number, self._handle)
            self._patient |= self._previous[signal.SIGTERM] is _note
            if _early:  # an interruption that other code has swallowed, or a stop that came too late for another run
                self.stop_signal = _early[0]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if self.stop_signal is not None and self._previous.get(self.stop_signal) in (_interrupt_block, _note):
            _note(self.stop_signal)
        self._previous.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.save_requested = True
        elif self.stop_signal is None:
            self.stop_signal = number
            if os.isatty(2):  # print is not for signal handlers
                with suppress(OSError):  # the terminal is gone
                    os.write(2, _SAVING)
        elif not self._patient and number != signal.SIGHUP:
            os._exit(128 + number)  # the second request: exit now, the last checkpoint is complete

    def raise_if_stopped(self, message: str = "stopped before anything had to be saved") -> None:
        """Raise StoppedBySignal if a stop was requested."""
        if self.stop_signal is not None:
            name = signal.Signals(self.stop_signal).name
            raise StoppedBySignal(self.stop_signal, f"{name}: {message}")
