"""Timing in turns: functions to compare run alternately in short rounds, and the best round of each counts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Clocked = Callable[[], float]
"""Runs one round and returns the seconds it took."""


@dataclass(frozen=True)
class Timing:
    """The seconds of every round of one function."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The shortest round, because other load can only make a round longer."""
        return min(self.rounds)

    @property
    def median(self) -> float:
        """The median round."""
        return median(self.rounds)

    @property
    def worst(self) -> float:
        """The longest round."""
        return max(self.rounds)

    def rates(self, units: float) -> dict[str, float]:
        """Return units per second in the best, the median and the worst round."""
        return {"best": units / self.best, "median": units / self.median, "worst": units / self.worst}


def clocked(function: Callable[[], object], finish: Callable[[], object] = lambda: None) -> Clocked:
    """Return the function as a timed round; `finish` waits for pending work of a device."""

    def run() -> float:
        finish()
        start = time.perf_counter()
        function()
        finish()
        return time.perf_counter() - start

    return run


def alternate(functions: Sequence[Clocked], *, rounds: int, seconds: float = 0.0, most: int = 1000) -> list[Timing]:
    """Return the timing of each function, all run in turn: at least `rounds` times, and until `seconds` have passed."""
    taken: list[list[float]] = [[] for _ in functions]
    start = time.perf_counter()
    while len(taken[0]) < rounds or (time.perf_counter() - start < seconds and len(taken[0]) < most):
        for function, times in zip(functions, taken, strict=True):
            times.append(function())
    return [Timing(tuple(times)) for times in taken]
