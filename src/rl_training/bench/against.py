"""Times another library with the same shapes, threads and device, in its own environment, in turns with ours."""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rl_training.bench.rounds import Clocked, Timing
from rl_training.bench.worker import Library, Worker, started
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError
from rl_training.runtime.execution.mode import Execution

D3RLPY: Final = Library("d3rlpy", "d3rlpy")
SB3: Final = Library("sb3", "stable-baselines3")

TWINS: Final[Mapping[str, str]] = MappingProxyType(
    {"iql": "IQL", "awac": "AWAC", "td3_bc": "TD3PlusBC", "td3": "TD3", "sac": "SAC", "cql": "CQL", "cal_ql": "CalQL"}
)
"""Our algorithms that d3rlpy also has, with its names for them."""
ONLINE_TWINS: Final[Mapping[str, str]] = MappingProxyType({"sac": "SAC", "td3": "TD3"})
"""Our algorithms that stable-baselines3 also has, with its names for them."""

_SAME_WORK = {"hidden_sizes", "batch_size", "num_critics", "num_cql_samples"}  # knobs that both libraries have
_SAME_RUN = {
    "hidden_sizes",
    "batch_size",
    "buffer_capacity",
    "learning_starts",
    "train_frequency",
    "gradient_updates_per_step",
}


def check_comparable(algo: str, settings: Collection[str], precision: str) -> None:
    """Raise a ConfigError if d3rlpy does not have the algorithm, or cannot be given the same work."""
    _check(D3RLPY, TWINS, _SAME_WORK, algo, settings, precision)


def check_comparable_run(algo: str, settings: Collection[str], precision: str) -> None:
    """Raise a ConfigError if stable-baselines3 does not have the algorithm, or cannot be given the same run."""
    _check(SB3, ONLINE_TWINS, _SAME_RUN, algo, settings, precision)


def _check(
    library: Library, twins: Mapping[str, str], same: set[str], algo: str, settings: Collection[str], precision: str
) -> None:
    name = library.name
    if algo not in twins:
        raise ConfigError(f"{name} has no twin of {algo}; --against {name} compares {', '.join(twins)}")
    unknown = sorted(set(settings) - same)
    if unknown:
        raise ConfigError(f"--set {unknown[0]}=... has no twin in {name}; with --against set only {', '.join(sorted(same))}")
    if precision == "bf16":
        raise ConfigError(f"{name} has no bf16; use --precision float32 or tf32 with --against")


class Opponent:
    """A library that has been given its work and takes rounds of it."""

    def __init__(self, worker: Worker, settings: Mapping[str, Any]) -> None:
        self.name, self._worker, self._settings = worker.name, worker, settings
        self._steps = 2
        self.versions = worker.ask(json.dumps(settings))

    def round_of(self, seconds: float) -> Clocked:
        """Return a round of about `seconds` seconds, with an even number of steps."""
        self.take_round()
        self._steps = 2 * max(1, round(seconds / self.take_round()))
        return self.take_round

    def take_round(self) -> float:
        """Take a round and return its seconds."""
        return self._figures(("seconds",))[0]

    def _figures(self, names: tuple[str, ...]) -> list[float]:
        """The figures of a round."""
        answer = self._worker.ask(f"round {self._steps}")
        try:
            return [float(answer[name]) for name in names]
        except (KeyError, TypeError, ValueError):
            raise self._worker.misunderstood(answer) from None

    def report(self, timing: Timing, ours: float) -> dict[str, Any]:
        """Return the library's figures, and the ratio of `ours`, all members' steps per second."""
        rates = timing.rates(self._steps)
        return {
            "library": self.name,
            "versions": self.versions,
            "algorithm": self._settings["algorithm"],
            "steps_per_round": self._steps,
            "steps_per_second": rates["best"],
            "steps_per_second_median": rates["median"],
            "steps_per_second_worst": rates["worst"],
            "ratio": ours / rates["best"],
        }


class D3rlpyOpponent(Opponent):
    """d3rlpy, whose updates are also timed without its sampling."""

    def __init__(self, worker: Worker, settings: Mapping[str, Any]) -> None:
        self._updating: list[float] = []  # seconds of each round without sampling
        super().__init__(worker, settings)

    def round_of(self, seconds: float) -> Clocked:
        """Return a round of about `seconds` seconds, with an even number of updates."""
        taken = super().round_of(seconds)
        self._updating.clear()
        return taken

    def take_round(self) -> float:
        """Take a round and return its seconds."""
        seconds, sampling = self._figures(("seconds", "sampling_seconds"))
        self._updating.append(seconds - sampling)
        return seconds

    def report(self, timing: Timing, ours: float) -> dict[str, Any]:
        """Return d3rlpy's figures, and the ratio of `ours` (member-updates per second), with and without its sampling."""
        without_sampling = self._steps / min(self._updating)
        return {
            **super().report(timing, ours),
            "compile_graph": self._settings["compile_graph"],
            "steps_per_second_without_sampling": without_sampling,
            "ratio_without_its_sampling": ours / without_sampling,
        }


@dataclass(frozen=True)
class Rival:
    """A Python that has a library to compare with."""

    library: Library
    python: Path

    @contextlib.contextmanager
    def opponent(
        self, config: RunConfig[Any], rows: int, sizes: tuple[int, int], resolved: Execution, device: str
    ) -> Iterator[Opponent]:
        """Start d3rlpy with the updates of a config; it is stopped when the block ends."""
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
        with self._worker(resolved.threads) as worker:
            yield D3rlpyOpponent(worker, settings)

    @contextlib.contextmanager
    def online_opponent(self, config: RunConfig[Any], threads: int, device: str) -> Iterator[Opponent]:
        """Start stable-baselines3 with the run of a config; it is stopped when the block ends."""
        kwargs = config.algo_kwargs
        settings = {
            "algorithm": ONLINE_TWINS[config.algo],
            "env_id": config.env_id,
            "env_kwargs": dict(config.env_kwargs),
            "hidden_sizes": list(kwargs.hidden_sizes),
            "batch_size": kwargs.batch_size,
            "buffer_capacity": min(kwargs.buffer_capacity, config.total_timesteps),
            "learning_starts": kwargs.learning_starts,
            "train_frequency": kwargs.train_frequency,
            "gradient_updates_per_step": kwargs.gradient_updates_per_step,
            "threads": threads,
            "device": device,
            "tf32": config.precision == "tf32",
        }
        with self._worker(threads) as worker:
            yield Opponent(worker, settings)

    def _worker(self, threads: int) -> contextlib.AbstractContextManager[Worker]:
        command: list[str | Path] = [self.python, "-I", self.library.worker]
        return started(self.library.name, command, {"OMP_NUM_THREADS": str(threads)})
