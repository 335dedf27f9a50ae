"""The table of algorithms: from an id to what it is, its settings and its trainer. Importing it loads no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.config import IQLKwargs, OfflineKwargs


@dataclass(frozen=True)
class AlgorithmSpec:
    """One row of the table."""

    id: str
    title: str
    summary: str
    kwargs: type[OfflineKwargs]
    trainer: str  # our own module; holds `train_<id>` and `build_<id>`

    def train(self) -> Callable[..., Any]:
        """Return the trainer function."""
        function: Callable[..., Any] = getattr(import_module(self.trainer), f"train_{self.id}")
        return function

    def build(self) -> Callable[..., Any]:
        """Return the function that makes a learner."""
        function: Callable[..., Any] = getattr(import_module(self.trainer), f"build_{self.id}")
        return function


REGISTRY: Final[Mapping[str, AlgorithmSpec]] = MappingProxyType(
    {
        "iql": AlgorithmSpec(
            id="iql",
            title="Implicit Q-learning",
            summary="offline; expectile value, advantage-weighted policy",
            kwargs=IQLKwargs,
            trainer="rl_training.runtime.iql_trainer",
        ),
    }
)


def names() -> list[str]:
    """Return the ids of all algorithms."""
    return list(REGISTRY)


def get_spec(algo: str) -> AlgorithmSpec:
    """Return the row of an algorithm, or a ConfigError that suggests one."""
    if algo not in REGISTRY:
        raise ConfigError(f"unknown algorithm `{algo}`.{did_you_mean(algo, REGISTRY)} There are: {', '.join(REGISTRY)}")
    return REGISTRY[algo]
