"""The settings of flow Q-learning."""

from typing import ClassVar, Literal

from pydantic import Field

from rl_training.config.base import Sizes
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs
from rl_training.config.shared_knobs import Activation, CriticKnobs, CriticNetworkKnobs, Initialization


class FQLKnobs(CriticKnobs):
    """Flow Q-learning (Park, Li, Levine, 2025)."""

    more_cloning: ClassVar[str] = "Raise algo_kwargs.alpha"

    alpha: float = Field(10.0, ge=0.0)
    """Weight of the distance to the cloned flow against the Q value; larger stays closer to the data."""
    flow_steps: int = Field(10, ge=1, le=1000)
    """Euler steps from the noise to the action of the cloned flow."""
    q_aggregation: Literal["mean", "min"] = "mean"
    """How the target critics become one value; the policy always maximises their mean."""
    normalize_q: bool = False
    """Divide the policy's Q value by its mean absolute value, so that `alpha` does not depend on the scale of the rewards."""


class FQLNetworkKnobs(CriticNetworkKnobs):
    """Shapes of FQL's networks; both policies have the widths of the policy."""

    hidden_sizes: Sizes = (512, 512, 512, 512)
    """Widths of the hidden layers of every network."""
    activation: Activation = "gelu"
    """Activation of every network; `gelu` is its tanh approximation."""
    critic_layer_norm: bool = True
    """LayerNorm in each hidden layer of the critics."""
    layer_norm_position: Literal["before", "after"] = "after"
    """Whether LayerNorm comes before or after the activation."""
    initialization: Initialization = "xavier"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), or EDAC's."""
    action_candidates: int = Field(8, ge=1, le=1000)
    """Draws of the noise, the first of them 0, of whose actions a deterministic one is that with the highest Q value."""


class FQLKwargs(FQLKnobs, FQLNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of flow Q-learning."""
