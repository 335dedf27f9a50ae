"""The settings of flow Q-learning."""

from collections.abc import Callable
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from rl_training.config.base import Alpha, Sizes
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs, narrowness
from rl_training.config.shared_knobs import Activation, CriticKnobs, CriticNetworkKnobs, Initialization

BALANCE = 2.0  # weight of cloning against a normalised Q value, inside the 0.03 to 10 that the authors advise for new tasks


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
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), EDAC's, or CORL's for EDAC."""
    action_candidates: int = Field(1, ge=1, le=1000)
    """Draws of the noise, the first of them 0, of whose actions a deterministic one is that with the highest Q value. More of
    them suit data with several ways to act, but trust the critics, which may lead away from it."""


class FQLKwargs(FQLKnobs, FQLNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of flow Q-learning."""

    alpha: Alpha = "auto"  # type: ignore[assignment]
    """Weight of the distance to the cloned flow against the Q value; larger stays closer to the data. `auto`: 2,
    and more in proportion where the logged actions vary less than if they filled their range evenly."""
    normalize_q: bool = True
    """Divide the policy's Q value by its mean absolute value, so that `alpha` does not depend on the scale of the rewards.
    The authors advise it for new tasks; their tables are without."""

    @model_validator(mode="after")
    def _normalised_balance(self) -> Self:
        if isinstance(self.alpha, str) and not self.normalize_q:
            raise ValueError("`alpha: auto` is a balance with a normalised Q value; give a number, or `normalize_q: true`")
        return self

    def fitted(self, action_variance: Callable[[], float]) -> Self:
        """Return the settings with `alpha` as a number; for the reason see TD3+BC's `alpha`."""
        if not isinstance(self.alpha, str):
            return self
        return self.model_copy(update={"alpha": BALANCE / narrowness(action_variance())})
