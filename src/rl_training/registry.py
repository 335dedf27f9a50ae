"""The table of algorithms: one row says what an algorithm is; names, trainers, exports and listings follow from it.

A literal table without imports: classes are looked up by convention on first use, so that reading the table loads neither
torch nor the config schema.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Literal

from rl_training.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class AlgorithmSpec:
    """One algorithm: a row of the table."""

    id: str  # in configs and on the command line; learner and settings are in modules of this name
    name: str  # of the learner and of the managed class; the settings are `<name>Kwargs`
    title: str
    summary: str
    model: str  # `module:class` of its networks in `models/`
    kind: Literal["offline", "online", "online, from data"] = "offline"
    needs: tuple[str, ...] = ()  # optional fields of a batch that its loss reads
    helpers: tuple[str, ...] = ()  # public functions besides `<id>_loss`

    @property
    def online(self) -> bool:
        """Whether it learns in an environment."""
        return self.kind != "offline"

    @property
    def takes_data(self) -> bool:
        """Whether it learns from a dataset, alone or together with an environment."""
        return self.kind != "online"

    @property
    def losses(self) -> tuple[str, ...]:
        """Its public loss functions."""
        return (f"{self.id}_loss", *self.helpers)

    @property
    def config(self) -> Any:
        """The class of its `algo_kwargs`."""
        return _load(f"config.algorithms.{self.id}", f"{self.name}Kwargs")

    @property
    def learner(self) -> Any:
        """Its learner."""
        return _load(f"algorithms.{self.id}", self.name)

    @property
    def model_type(self) -> Any:
        """Its stack of networks."""
        module, _, name = self.model.partition(":")
        return _load(f"models.{module}", name)

    def train(self) -> Callable[..., Any]:
        """Return the trainer function."""
        function: Callable[..., Any] = _load(f"runtime.{self.id}_trainer", f"train_{self.id}")
        return function


def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"rl_training.{module}"), name)


_ROWS = (
    AlgorithmSpec("bc", "BC", "Behaviour cloning", "policy regressed on the logged actions", "bc:MLPBCModel"),
    AlgorithmSpec("iql", "IQL", "Implicit Q-learning", "expectile value, advantage-weighted policy", "iql:MLPIQLModel"),
    AlgorithmSpec(
        *("xql", "XQL", "Extreme Q-learning", "IQL with a Gumbel value regression", "iql:MLPIQLModel"),
        helpers=("xql_value_loss", "gumbel_rescale_loss"),
    ),
    AlgorithmSpec(
        *("awac", "AWAC", "Advantage-weighted actor-critic", "cloning weighted by the advantage", "awac:MLPAWACModel")
    ),
    AlgorithmSpec("td3_bc", "TD3BC", "TD3+BC", "TD3 with a cloning term in the policy's loss", "td3:MLPTD3Model"),
    AlgorithmSpec(
        *("rebrac", "ReBRAC", "Revisited behaviour-regularized actor-critic"),
        *("TD3, cloning in policy and target", "td3:MLPTD3Model"),
        needs=("next_actions",),
    ),
    AlgorithmSpec("cql", "CQL", "Conservative Q-learning", "SAC with values pushed down off the data", "sac:MLPSACModel"),
    AlgorithmSpec(
        *("cal_ql", "CalQL", "Calibrated Q-learning", "CQL with values floored by the data's returns", "sac:MLPSACModel"),
        needs=("returns_to_go",),
    ),
    AlgorithmSpec("sac_n", "SACN", "SAC-N", "SAC on data with the minimum of N critics", "sac:MLPSACModel"),
    AlgorithmSpec("edac", "EDAC", "EDAC", "SAC-N with critics kept apart by their gradients", "sac:MLPSACModel"),
    AlgorithmSpec("fql", "FQL", "Flow Q-learning", "one-step policy distilled from a flow of the data", "fql:MLPFQLModel"),
    AlgorithmSpec(
        *("td3", "TD3", "Twin delayed DDPG", "deterministic policy, smoothed and delayed targets", "td3:MLPTD3Model"),
        kind="online",
    ),
    AlgorithmSpec(
        *("sac", "SAC", "Soft actor-critic", "maximum-entropy policy, learned temperature", "sac:MLPSACModel"), kind="online"
    ),
    AlgorithmSpec(
        *("redq", "REDQ", "Randomized ensembled double Q-learning", "SAC with a critic ensemble", "sac:MLPSACModel"),
        kind="online",
    ),
    AlgorithmSpec("rlpd", "RLPD", "RL with prior data", "SAC on mixed batches", "sac:MLPSACModel", "online, from data"),
)

REGISTRY: Final[Mapping[str, AlgorithmSpec]] = MappingProxyType({row.id: row for row in _ROWS})


def names() -> list[str]:
    """Return the ids of all algorithms."""
    return list(REGISTRY)


def get_spec(algo: str) -> AlgorithmSpec:
    """Return the row of an algorithm, or a ConfigError that suggests one."""
    if algo not in REGISTRY:
        raise ConfigError(f"unknown algorithm `{algo}`.{did_you_mean(algo, REGISTRY)} There are: {', '.join(REGISTRY)}")
    return REGISTRY[algo]
