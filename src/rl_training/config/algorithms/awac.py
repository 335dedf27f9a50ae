"""The settings of AWAC."""

from typing import ClassVar, Literal

from pydantic import Field

from rl_training.config.base import Sizes
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs
from rl_training.config.shared_knobs import (
    CriticKnobs,
    CriticNetworkKnobs,
    Initialization,
    LogStdRange,
    StochasticNetworkKnobs,
)


class AWACKnobs(CriticKnobs):
    """Advantage-weighted actor-critic (Nair, Gupta, Dalal, Levine, 2020)."""

    more_cloning: ClassVar[str] = "Raise algo_kwargs.awac_lambda"

    awac_lambda: float = Field(1.0 / 3.0, gt=0.0)
    """Temperature of the advantage weights exp(A / awac_lambda); large values approach behaviour cloning."""
    max_advantage_weight: float = Field(100.0, gt=0.0)
    """Upper clip of exp(A / awac_lambda)."""


class AWACNetworkKnobs(StochasticNetworkKnobs, CriticNetworkKnobs):
    """Shapes of AWAC's networks."""

    hidden_sizes: Sizes = (256, 256, 256)
    """Widths of the hidden layers of every network."""
    initialization: Initialization = "uniform"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), EDAC's, or CORL's for EDAC."""
    policy_mean: Literal["tanh", "linear"] = "linear"
    """Whether the policy's mean is squashed into the bounds; a `linear` one is clipped when it acts."""
    log_std_range: LogStdRange = (-20.0, 2.0)
    """Lowest and highest log standard deviation of the policy."""


class AWACKwargs(AWACKnobs, AWACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of AWAC."""
