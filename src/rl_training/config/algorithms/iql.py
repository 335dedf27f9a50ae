"""The settings of IQL."""

from typing import ClassVar, Literal

from pydantic import Field

from rl_training.config.base import PositiveRate
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs
from rl_training.config.shared_knobs import CriticKnobs, CriticNetworkKnobs, GaussianNetworkKnobs

HUBER_DELTA = 20.0


class IQLKnobs(CriticKnobs):
    """Implicit Q-learning (Kostrikov, Nair, Levine, 2021)."""

    more_cloning: ClassVar[str] = "Lower algo_kwargs.beta or expectile"

    value_learning_rate: PositiveRate = 3e-4
    """Adam step size of the value network."""
    expectile: float = Field(0.7, ge=0.5, lt=1.0)
    """Asymmetry of the value regression; 0.5 is the mean, towards 1 the best action in the data."""
    beta: float = Field(3.0, ge=0.0)
    """Inverse temperature of the advantage weights; 0 is behaviour cloning."""
    max_advantage_weight: float = Field(100.0, gt=0.0)
    """Upper clip of exp(beta * advantage)."""
    critic_loss: Literal["mse", "huber"] = "mse"
    """Regression of the critics: squared error, or Huber's with delta 20."""

    @property
    def huber_delta(self) -> float | None:
        """Where Huber's loss becomes linear; None for the squared error."""
        return HUBER_DELTA if self.critic_loss == "huber" else None


class IQLNetworkKnobs(GaussianNetworkKnobs, CriticNetworkKnobs):
    """Shapes of IQL's networks."""

    value_layer_norm: bool = False
    """LayerNorm in each hidden layer of the value network."""


class IQLKwargs(IQLKnobs, IQLNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of IQL."""
