"""The best time of each of several functions, timed in turn."""

from collections.abc import Callable, Sequence

from rl_training.bench.rounds import alternate, clocked


def best_times(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the shortest time of each function, all timed in turn after one warm-up round."""
    for function in functions:
        function()
    return [timing.best for timing in alternate([clocked(function) for function in functions], rounds=rounds)]
