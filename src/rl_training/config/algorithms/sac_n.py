"""The settings of SAC-N."""

from typing import ClassVar

from pydantic import Field

from rl_training.config.algorithms.sac import SACKnobs, SACNetworkKnobs
from rl_training.config.base import Sizes
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs
from rl_training.config.shared_knobs import Initialization, LogStdRange


class SACNKnobs(SACKnobs):
    """SAC with an ensemble of N critics on data (An, Moon, Kim, Song, 2021)."""

    more_cloning: ClassVar[str] = (
        "Use an algorithm that clones, such as iql or td3_bc; more critics (algo_kwargs.num_critics) need wide data"
    )


class SACNNetworkKnobs(SACNetworkKnobs):
    """Shapes of the networks of SAC-N and EDAC."""

    hidden_sizes: Sizes = (256, 256, 256)
    """Widths of the hidden layers of every network."""
    initialization: Initialization = "edac"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), EDAC's, or CORL's for EDAC."""
    log_std_range: LogStdRange = (-5.0, 2.0)
    """Lowest and highest log standard deviation of the policy."""
    num_critics: int = Field(10, ge=1, le=1024)
    """Critics in the ensemble; the minimum of all is the target."""


class SACNKwargs(SACNKnobs, SACNNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of SAC-N."""
