"""Output for people, who may be unable to read it: a full disk, a closed pipe or a missing stream never ends a run."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from html import escape
from typing import Any, TextIO, cast

_CODE = re.compile(r"`([^`]*`[^`]+`|[^`]+)`(?!`)")  # an expression may quote the name of a column itself


def return_text(value: float | None) -> str:
    """Return a return (or its spread) for people: one decimal, two below 10, or three digits below 1; a dash for none."""
    if value is None:
        return "-"
    if abs(value) >= 1e12:
        return f"{value:.3e}"
    if 0.0 < abs(value) < 10.0:
        return f"{value:.3g}" if abs(value) < 1.0 else f"{value:.2f}"
    return f"{value:z.1f}"


def duration(seconds: float, *, exact: bool = False) -> str:
    """Return a time for people, such as `2 h 05 min`; one that is `exact`, not estimated, has seconds up to ten minutes."""
    if seconds < 60:
        return f"{seconds:.{1 if seconds >= 1 else 2}f} s"
    if exact and seconds < 599.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def printable(text: str) -> str:
    """Return a text that any file can hold and no terminal obeys: control characters and bytes outside UTF-8 are escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def prose(sentences: str) -> str:
    """Return escaped HTML of sentences; what they quote as `code` is shown as code."""
    return _CODE.sub(r"<code>\1</code>", escape(sentences))


class NobodyReadsError(Exception):
    """Standard output was closed by who read it, such as `head`; not an OSError, which a parser of arguments would take."""


class ForgivingStream:
    """Standard error, by default whatever it is at the time; what cannot be written there is left out."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._own = stream

    @property
    def _stream(self) -> Any:
        return sys.stderr if self._own is None else self._own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Leave out what cannot be written: full or without a reader; closed; no such stream."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            yield

    def write(self, text: str) -> int:
        """Write a text; letters that the stream cannot hold are written as escapes."""
        with self._forgiving():
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        """Flush what was written, where it can be."""
        with self._forgiving():
            self._stream.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        with contextlib.suppress(ValueError):
            return self._stream is not None and bool(self._stream.isatty())
        return False


class _Results(ForgivingStream):
    """Standard output, which has the results: who cannot get them is told, unless nobody reads them."""

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise NobodyReadsError from None


def say(text: str) -> None:
    """Print a line on standard error, if it can be printed; names in it cannot command the terminal."""
    print(printable(text), file=ForgivingStream(), flush=True)


@contextlib.contextmanager
def forgiving_output() -> Iterator[None]:
    """Let this process print to standard error without failing; if nobody reads standard output, raise NobodyReadsError.

    Descriptors of streams that were closed are taken, or the next file that is opened would get what is printed there.
    """
    for _ in range(3):
        handle = os.open(os.devnull, os.O_RDWR)
        if handle > 2:
            os.close(handle)
            break
    before = sys.stdout, sys.stderr
    if sys.stdout is not None:
        sys.stdout = cast(TextIO, _Results(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, ForgivingStream(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            if stream is not None:
                _give_up_if_broken(stream)


def _give_up_if_broken(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere if it cannot be written: Python would exit with another code for it."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
