"""Learning-rate schedules: non-increasing factors of the learning rate over a run, or over the first part of it."""

from collections.abc import Callable, Mapping
from math import cos, pi
from types import MappingProxyType
from typing import Final

from rl_training.config.schedules import ScheduleConfig

SCHEDULES: Final[Mapping[str, Callable[[float], float]]] = MappingProxyType(
    {
        "constant": lambda _done: 1.0,
        "linear": lambda done: 1.0 - done,
        "cosine": lambda done: 0.5 * (1.0 + cos(pi * done)),
    }
)


def schedule_factor(schedule: ScheduleConfig, step: int, total_steps: int) -> float:
    """Return the factor of the learning rate at a step; beyond the schedule's share of the steps it stays constant."""
    done = min(step / (schedule.over * total_steps), 1.0) if total_steps > 0 else 0.0
    return schedule.to + (1.0 - schedule.to) * SCHEDULES[schedule.kind](done)
