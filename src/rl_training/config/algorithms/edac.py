"""The settings of EDAC."""

from typing import ClassVar

from pydantic import Field

from rl_training.config.algorithms.sac_n import SACNKnobs, SACNNetworkKnobs
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs


class EDACKnobs(SACNKnobs):
    """Ensemble-diversified actor-critic (An, Moon, Kim, Song, 2021)."""

    more_cloning: ClassVar[str] = (
        "Use an algorithm that clones, such as iql or td3_bc; more critics (algo_kwargs.num_critics) need wide data"
    )

    eta: float = Field(1.0, ge=0.0)
    """Weight of the alignment of the critics' gradients at the actions of the data."""


class EDACNetworkKnobs(SACNNetworkKnobs):
    """Shapes of EDAC's networks."""

    num_critics: int = Field(10, ge=2, le=1024)
    """Critics in the ensemble; the minimum of all is the target."""


class EDACKwargs(EDACKnobs, EDACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of EDAC."""
