"""Learning-rate schedules: non-increasing factors of the learning rate over a run."""

from collections.abc import Callable, Mapping
from math import cos, pi
from types import MappingProxyType
from typing import Final

SCHEDULES: Final[Mapping[str, Callable[[float], float]]] = MappingProxyType(
    {
        "constant": lambda _done: 1.0,
        "linear": lambda done: 1.0 - done,
        "cosine": lambda done: 0.5 * (1.0 + cos(pi * done)),
    }
)


def schedule_factor(name: str, step: int, total_steps: int) -> float:
    """Return the factor of the learning rate at a step; beyond the last step it stays constant."""
    return SCHEDULES[name](min(step / total_steps, 1.0) if total_steps > 0 else 0.0)
