"""The settings of XQL."""

from typing import ClassVar

from pydantic import Field

from rl_training.config.algorithms.iql import IQLKnobs, IQLNetworkKnobs
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs


class XQLKnobs(IQLKnobs):
    """Extreme Q-learning (Garg, Hejna, Geist, Ermon, 2023)."""

    more_cloning: ClassVar[str] = "Lower algo_kwargs.beta, or raise loss_temperature"

    loss_temperature: float = Field(1.0, gt=0.0)
    """Temperature of the Gumbel regression: small values approach the best action in the data, large ones the mean."""
    max_value_diff_exp: float | None = Field(7.0, gt=0.0)
    """Upper clip of (Q - V) / loss_temperature in the exponential; null is no clipping."""
    vanilla_value_loss: bool = False
    """IQL's expectile regression instead of the Gumbel one."""

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that have no effect given the other values, each with the reason."""
        if self.vanilla_value_loss:
            return dict.fromkeys(("loss_temperature", "max_value_diff_exp"), "vanilla_value_loss is true")
        return {"expectile": "vanilla_value_loss is false"}


class XQLKwargs(XQLKnobs, IQLNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of XQL."""
