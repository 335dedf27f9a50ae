"""The settings of ReBRAC."""

from collections.abc import Callable
from typing import ClassVar, Literal, Self

from pydantic import Field

from rl_training.config.algorithms.td3 import TD3Knobs, TD3NetworkKnobs
from rl_training.config.algorithms.td3_bc import TD3_BC_BALANCE
from rl_training.config.base import Alpha, PositiveRate, Sizes
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs, narrowness
from rl_training.config.shared_knobs import Initialization


class ReBRACKnobs(TD3Knobs):
    """Revisited behaviour-regularized actor-critic (Tarasov, Kurenkov, Nikulin, Kolesnikov, 2023)."""

    more_cloning: ClassVar[str] = "Raise algo_kwargs.actor_bc_coef or critic_bc_coef"

    actor_learning_rate: PositiveRate = 1e-3
    """Adam step size of the policy."""
    critic_learning_rate: PositiveRate = 1e-3
    """Adam step size of the critics."""
    actor_bc_coef: float = Field(0.01, ge=0.0)
    """Weight of the policy's squared distance to the logged action against the Q value."""
    critic_bc_coef: float = Field(0.01, ge=0.0)
    """Weight of the target action's squared distance to the logged next action, subtracted from the next value."""
    normalize_q: bool = True
    """Divide the policy's Q value by its mean absolute value, so that `actor_bc_coef` does not depend on its scale."""


class ReBRACNetworkKnobs(TD3NetworkKnobs):
    """Shapes of ReBRAC's networks."""

    hidden_sizes: Sizes = (256, 256, 256)
    """Widths of the hidden layers of every network."""
    critic_layer_norm: bool = True
    """LayerNorm in each hidden layer of the critics."""
    layer_norm_position: Literal["before", "after"] = "after"
    """Whether LayerNorm comes before or after the activation."""
    initialization: Initialization = "edac"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), EDAC's, or CORL's for EDAC."""


class ReBRACKwargs(ReBRACKnobs, ReBRACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of ReBRAC."""

    actor_bc_coef: Alpha = "auto"  # type: ignore[assignment]
    """Weight of the policy's squared distance to the logged action against the Q value. `auto`: TD3+BC's balance,
    0.4, and more in proportion where the logged actions vary less than if they filled their range evenly. The paper chooses
    0.001 to 0.1 for each dataset."""
    batch_size: int = Field(1024, ge=1, le=1_000_000)
    """Transitions per gradient step and member."""

    def fitted(self, action_variance: Callable[[], float]) -> Self:
        """Return the settings with `actor_bc_coef` as a number; for the reason see TD3+BC's `alpha`."""
        if not isinstance(self.actor_bc_coef, str):
            return self
        return self.model_copy(update={"actor_bc_coef": TD3_BC_BALANCE / narrowness(action_variance())})
