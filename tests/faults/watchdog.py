"""A limit on the time that a block may take, for faults that might make the package wait forever."""

import signal
from contextlib import contextmanager


class Hang(BaseException):
    """A block took too long; nothing in the package catches it."""


@contextmanager
def watchdog(seconds=60):
    """Raise Hang in a block that takes longer."""

    def bark(_number, _frame):
        raise Hang

    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
