"""Programs that a benchmark starts: they answer with lines of JSON, and any failure of theirs is a one-line ConfigError."""

import contextlib
import json
import os
import select
import subprocess  # used only here, to start a Python: our own, or the one that the user named
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from rl_training.errors import ConfigError

ANSWER_SECONDS: Final = 600.0  # timeout of an answer


@dataclass(frozen=True)
class Library:
    """A library to compare with, which needs a Python environment of its own."""

    name: str
    """As `--against` takes it."""
    package: str
    """As pip installs it."""

    @property
    def variable(self) -> str:
        """The environment variable that may name its Python."""
        return f"RL_TRAINING_{self.name.upper()}_PYTHON"

    @property
    def local_python(self) -> Path:
        """Where its Python is looked for otherwise."""
        return Path(f".venv-{self.name}") / "bin" / "python"

    @property
    def worker(self) -> Path:
        """The program that its Python runs."""
        return Path(__file__).with_name(f"{self.name}_worker.py")

    def find_python(self, given: str | None) -> Path:
        """Return its Python: the one given, else that of the environment variable, else that of `.venv-<name>`."""
        named = given or os.environ.get(self.variable)
        path = Path(named).absolute() if named else self.local_python.absolute()
        if path.is_file() and os.access(path, os.X_OK):
            return path
        where = ("--against-python" if given else self.variable) if named else str(self.local_python)
        folder = f".venv-{self.name}"
        install = f"`python3 -m venv {folder} && {folder}/bin/pip install torch {self.package}`"
        raise ConfigError(
            f"{where}: {f'{named} is not a program' if named else 'not found'}; {self.name} needs an environment of its own: "
            f"{install}, or name a Python with --against-python"
        )


class Worker:
    """A running program that is asked, and answers, line by line."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
        self.name, self._process, self._errors = name, process, errors
        self._unread = b""

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line and return the answer."""
        requests = cast("IO[bytes]", self._process.stdin)
        try:
            requests.write(line.encode() + b"\n")
            requests.flush()
        except BrokenPipeError:
            raise self._crash() from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        text = self._line(ANSWER_SECONDS)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self.misunderstood(text)
        return answer

    def check_alive(self) -> None:
        """Raise if the program has stopped."""
        if self._process.poll() is not None:
            raise self._crash()

    def misunderstood(self, answer: object) -> ConfigError:
        """Return the error for an answer of the wrong kind."""
        return ConfigError(f"{self.name}'s worker answered {str(answer)[:60]!r}; does --against-python name a Python?")

    def _line(self, seconds: float) -> str:
        """The next line of the program's output."""
        deadline, pipe = time.monotonic() + seconds, cast("IO[bytes]", self._process.stdout).fileno()
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ConfigError(f"{self.name} did not answer within {seconds:g} s; lower --rows or --batch-size")
            part = os.read(pipe, 65536)
            if not part:
                raise self._crash()
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _crash(self) -> ConfigError:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ConfigError(f"{self.name} stopped (exit code {code}): {lines[-1][:300] if lines else 'no output'}")


@contextlib.contextmanager
def started(name: str, command: Sequence[str | Path], variables: Mapping[str, str]) -> Iterator[Worker]:
    """Start a program with these environment variables in addition to ours; it is stopped when the block ends."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user named the program, and no shell is used
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **variables}
            )
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {error.strerror}; it must be a Python with {name}") from None
        try:
            yield Worker(name, process, errors)
        finally:
            process.kill()
            process.communicate()
