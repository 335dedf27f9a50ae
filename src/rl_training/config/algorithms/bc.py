"""The settings of behaviour cloning."""

from typing import ClassVar

from rl_training.config.blocks import PurelyOfflineKwargs
from rl_training.config.shared_knobs import GaussianNetworkKnobs, LearnerKnobs


class BCKnobs(LearnerKnobs):
    """Behaviour cloning (Pomerleau, 1991)."""

    only_clones: ClassVar[bool] = True
    more_cloning: ClassVar[str] = (
        "What it learned does not hold for rows it has not seen: try smaller hidden_sizes, more or fewer steps "
        "(total_timesteps), or more data"
    )


class BCNetworkKnobs(GaussianNetworkKnobs):
    """Shape of the cloned policy."""


class BCKwargs(BCKnobs, BCNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of behaviour cloning."""
