"""Times another library with the same shapes, threads and device, in its own environment, in turns with ours."""

import contextlib
import json
import os
import select
import subprocess  # used only here, to start the Python that the user named
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, cast

from rl_training.bench.rounds import Clocked, Timing
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError
from rl_training.runtime.execution.mode import Execution

TWINS: Final[Mapping[str, str]] = MappingProxyType(
    {"iql": "IQL", "awac": "AWAC", "td3_bc": "TD3PlusBC", "td3": "TD3", "sac": "SAC", "cql": "CQL", "cal_ql": "CalQL"}
)
"""Our algorithms that d3rlpy also has, with its names for them."""

PYTHON_VARIABLE = "RL_TRAINING_D3RLPY_PYTHON"
LOCAL_PYTHON = Path(".venv-d3rlpy") / "bin" / "python"

_WORKER = Path(__file__).with_name("d3rlpy_worker.py")
_SAME_WORK = {"hidden_sizes", "batch_size", "num_critics", "num_cql_samples"}  # knobs that both libraries have
_START_SECONDS, _ROUND_SECONDS = 600.0, 600.0  # timeouts for the worker's answers
_NO_PYTHON = "does --against-python name a Python?"


def check_comparable(algo: str, settings: Collection[str], precision: str) -> None:
    """Raise a ConfigError if d3rlpy does not have the algorithm, or cannot be given the same work."""
    if algo not in TWINS:
        raise ConfigError(f"d3rlpy has no twin of {algo}; --against d3rlpy compares {', '.join(TWINS)}")
    unknown = sorted(set(settings) - _SAME_WORK)
    if unknown:
        raise ConfigError(
            f"--set {unknown[0]}=... has no twin in d3rlpy; with --against set only {', '.join(sorted(_SAME_WORK))}"
        )
    if precision == "bf16":
        raise ConfigError("d3rlpy has no bf16; use --precision float32 or tf32 with --against")


def find_python(given: str | None) -> Path:
    """Return the Python that has d3rlpy: the one given, else of the environment variable, else of `.venv-d3rlpy`."""
    named = given or os.environ.get(PYTHON_VARIABLE)
    path = Path(named).absolute() if named else LOCAL_PYTHON.absolute()
    if path.is_file() and os.access(path, os.X_OK):
        return path
    where = ("--against-python" if given else PYTHON_VARIABLE) if named else str(LOCAL_PYTHON)
    raise ConfigError(
        f"{where}: {f'{named} is not a program' if named else 'not found'}; d3rlpy needs an environment of its own: "
        "`python3 -m venv .venv-d3rlpy && .venv-d3rlpy/bin/pip install torch d3rlpy`, or name a Python with --against-python"
    )


@dataclass(frozen=True)
class Rival:
    """A Python that has d3rlpy."""

    python: Path

    @contextlib.contextmanager
    def opponent(
        self, config: RunConfig[Any], rows: int, sizes: tuple[int, int], resolved: Execution, device: str
    ) -> Iterator["Opponent"]:
        """Start d3rlpy with the work of a config; it is stopped when the block ends."""
        kwargs = config.algo_kwargs
        settings = {
            "algorithm": TWINS[config.algo],
            "rows": rows,
            "observations": sizes[0],
            "actions": sizes[1],
            "hidden_sizes": list(kwargs.hidden_sizes),
            "batch_size": kwargs.batch_size,
            "num_critics": kwargs.num_critics,
            "num_cql_samples": getattr(kwargs, "num_cql_samples", None),
            "threads": resolved.threads,
            "device": device,
            "tf32": resolved.precision == "tf32",
            "compile_graph": resolved.mode != "eager",
        }
        with tempfile.TemporaryFile() as errors:
            process = self._start(errors, {**os.environ, "OMP_NUM_THREADS": str(resolved.threads)})
            try:
                yield Opponent(process, errors, settings)
            finally:
                process.kill()
                process.communicate()

    def _start(self, errors: IO[bytes], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(  # noqa: S603 - the user named the program, and no shell is used
                [self.python, "-I", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        except OSError as error:
            raise ConfigError(f"{self.python} cannot be started: {error.strerror}; it must be a Python with d3rlpy") from None


class Opponent:
    """A running d3rlpy worker that answers requests; any failure is raised as a one-line ConfigError."""

    name = "d3rlpy"

    def __init__(self, process: "subprocess.Popen[bytes]", errors: IO[bytes], settings: dict[str, Any]) -> None:
        self._process, self._errors, self._settings = process, errors, settings
        self._steps = 2
        self._updating: list[float] = []  # seconds of each round without sampling
        self.versions = self._ask(json.dumps(settings), _START_SECONDS)

    def round_of(self, seconds: float) -> Clocked:
        """Return a round of about `seconds` seconds, with an even number of updates."""
        self._round()
        self._steps = 2 * max(1, round(seconds / self._round()))
        self._updating.clear()
        return self._round

    def _round(self) -> float:
        answer = self._ask(f"round {self._steps}", _ROUND_SECONDS)
        try:
            seconds, sampling = float(answer["seconds"]), float(answer["sampling_seconds"])
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"d3rlpy's worker answered {str(answer)[:60]!r}; {_NO_PYTHON}") from None
        self._updating.append(seconds - sampling)
        return seconds

    def report(self, timing: Timing, ours: float) -> dict[str, Any]:
        """Return d3rlpy's figures, and the ratio of `ours` (member-updates per second), with and without its sampling."""
        without_sampling = self._steps / min(self._updating)
        rates = timing.rates(self._steps)
        return {
            "library": self.name,
            "versions": self.versions,
            "algorithm": self._settings["algorithm"],
            "compile_graph": self._settings["compile_graph"],
            "steps_per_round": self._steps,
            "steps_per_second": rates["best"],
            "steps_per_second_median": rates["median"],
            "steps_per_second_worst": rates["worst"],
            "steps_per_second_without_sampling": without_sampling,
            "ratio": ours / rates["best"],
            "ratio_without_its_sampling": ours / without_sampling,
        }

    def _ask(self, line: str, seconds: float) -> dict[str, Any]:
        requests = cast("IO[bytes]", self._process.stdin)
        try:
            requests.write(line.encode() + b"\n")
            requests.flush()
        except BrokenPipeError:
            raise self._crash() from None
        text = self._line(seconds)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ConfigError(f"d3rlpy's worker answered {text[:60]!r}; {_NO_PYTHON}")
        return answer

    def _line(self, seconds: float) -> str:
        """The next line of the worker's output."""
        deadline, text, pipe = time.monotonic() + seconds, b"", cast("IO[bytes]", self._process.stdout).fileno()
        while not text.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ConfigError(f"d3rlpy did not answer within {seconds:g} s; lower --rows or --batch-size")
            part = os.read(pipe, 65536)
            if not part:
                raise self._crash()
            text += part
        return text.decode(errors="replace").strip()

    def _crash(self) -> ConfigError:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return ConfigError(f"d3rlpy stopped (exit code {code}): {lines[-1][:300] if lines else 'no output'}")
