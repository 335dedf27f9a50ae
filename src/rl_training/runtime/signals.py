"""Signals set flags; the loop acts on them at points where its state is consistent."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from rl_training.errors import StoppedBySignal

_STOP = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Block SIGTERM and SIGINT in this context, also for child processes: a Ctrl-C reaches the whole process group."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupted_by_stop_signals(message: str) -> Iterator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does, so that it cleans up, and tell this message alone of a stop.

    A training run inside saves and stops as ever; what it says about that is left out, for a block that keeps nothing.
    """
    stopped_by: int = signal.SIGINT

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_by
        stopped_by = signal.SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the cleaning up
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if main else None
    try:
        yield
    except (KeyboardInterrupt, StoppedBySignal) as stop:
        number = stop.signal_number if isinstance(stop, StoppedBySignal) else stopped_by
        raise StoppedBySignal(number, f"{signal.Signals(number).name}: {message}") from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


class SignalWatch:
    """While open, SIGTERM and SIGINT request a save and a stop, SIGUSR1 a save; a second stop signal exits at once.

    With `patient` it does not: who started several ranks passes on the signal that the ranks may have got themselves.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self.stop_signal: int | None = None
        self.save_requested = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "SignalWatch":
        if threading.current_thread() is threading.main_thread():
            for number in (*_STOP, signal.SIGUSR1):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.save_requested = True
        elif self.stop_signal is None:
            self.stop_signal = number
            if os.isatty(2):  # print is not for signal handlers
                os.write(
                    2, b"\nstopping and saving once the current step is done; the same signal again ends the run at once\n"
                )
        elif not self._patient:
            os._exit(128 + number)  # the second request: exit now, the last checkpoint is complete

    def raise_if_stopped(self, message: str = "stopped before anything had to be saved") -> None:
        """Raise StoppedBySignal if a stop was requested."""
        if self.stop_signal is not None:
            name = signal.Signals(self.stop_signal).name
            raise StoppedBySignal(self.stop_signal, f"{name}: {message}")
