"""The table of algorithms: from an id to what it is, its settings and its trainer. Importing it loads no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.kwargs import (
    AlgorithmKwargs,
    CalQLKwargs,
    CQLKwargs,
    IQLKwargs,
    OfflineKwargs,
    OnlineKwargs,
    REDQKwargs,
    RLPDKwargs,
    SACKwargs,
    TD3BCKwargs,
    XQLKwargs,
)


@dataclass(frozen=True)
class AlgorithmSpec:
    """One row of the table."""

    id: str
    title: str
    summary: str
    kwargs: type[AlgorithmKwargs]
    trainer: str  # our own module; holds `train_<id>` and `build_<id>`

    @property
    def online(self) -> bool:
        """Whether it learns in an environment."""
        return issubclass(self.kwargs, OnlineKwargs)

    @property
    def takes_data(self) -> bool:
        """Whether it learns from a dataset, alone or beside an environment."""
        return issubclass(self.kwargs, OfflineKwargs)

    def train(self) -> Callable[..., Any]:
        """Return the trainer function."""
        function: Callable[..., Any] = getattr(import_module(self.trainer), f"train_{self.id}")
        return function

    def build(self) -> Callable[..., Any]:
        """Return the function that makes a learner."""
        function: Callable[..., Any] = getattr(import_module(self.trainer), f"build_{self.id}")
        return function


def _row(id: str, title: str, summary: str, kwargs: type[AlgorithmKwargs]) -> tuple[str, AlgorithmSpec]:
    return id, AlgorithmSpec(id, title, summary, kwargs, trainer=f"rl_training.runtime.{id}_trainer")


REGISTRY: Final[Mapping[str, AlgorithmSpec]] = MappingProxyType(
    dict(
        (
            _row("iql", "Implicit Q-learning", "offline; expectile value, advantage-weighted policy", IQLKwargs),
            _row("xql", "Extreme Q-learning", "offline; IQL with a Gumbel value regression", XQLKwargs),
            _row("td3_bc", "TD3+BC", "offline; TD3 with a cloning term in the policy's loss", TD3BCKwargs),
            _row("cql", "Conservative Q-learning", "offline; SAC with values pushed down off the data", CQLKwargs),
            _row("cal_ql", "Calibrated Q-learning", "offline; CQL with values floored by the data's returns", CalQLKwargs),
            _row("sac", "Soft actor-critic", "online; maximum-entropy policy, learned temperature", SACKwargs),
            _row("redq", "Randomized ensembled double Q-learning", "online; SAC with a critic ensemble", REDQKwargs),
            _row("rlpd", "RL with prior data", "online, from data; SAC on mixed batches", RLPDKwargs),
        )
    )
)


def names() -> list[str]:
    """Return the ids of all algorithms."""
    return list(REGISTRY)


def get_spec(algo: str) -> AlgorithmSpec:
    """Return the row of an algorithm, or a ConfigError that suggests one."""
    if algo not in REGISTRY:
        raise ConfigError(f"unknown algorithm `{algo}`.{did_you_mean(algo, REGISTRY)} There are: {', '.join(REGISTRY)}")
    return REGISTRY[algo]
