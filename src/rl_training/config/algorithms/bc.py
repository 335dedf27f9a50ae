"""The settings of behaviour cloning."""

from rl_training.config.blocks import PurelyOfflineKwargs
from rl_training.config.shared_knobs import GaussianNetworkKnobs, LearnerKnobs


class BCKnobs(LearnerKnobs):
    """Behaviour cloning (Pomerleau, 1991)."""


class BCNetworkKnobs(GaussianNetworkKnobs):
    """Shape of the cloned policy."""


class BCKwargs(BCKnobs, BCNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of behaviour cloning."""
