"""The settings of TD3+BC."""

from collections.abc import Callable
from typing import ClassVar, Self

from pydantic import Field

from rl_training.config.algorithms.td3 import TD3Knobs, TD3NetworkKnobs
from rl_training.config.base import Alpha
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs, narrowness

PUBLISHED_ALPHA = 2.5
TD3_BC_BALANCE = 1.0 / PUBLISHED_ALPHA  # weight of cloning against a normalised Q value


class TD3BCKnobs(TD3Knobs):
    """TD3 with behaviour cloning (Fujimoto and Gu, 2021)."""

    more_cloning: ClassVar[str] = "Lower algo_kwargs.alpha"

    alpha: float = Field(PUBLISHED_ALPHA, ge=0.0)
    """Weight of the normalised Q value against cloning the data; larger trusts the critics more."""


class TD3BCKwargs(TD3BCKnobs, TD3NetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of TD3+BC."""

    alpha: Alpha = "auto"  # type: ignore[assignment]
    """Weight of the normalised Q value against cloning the data; larger trusts the critics more. `auto`: the published 2.5,
    and less in proportion where the logged actions vary less than if they filled their range evenly."""

    def fitted(self, action_variance: Callable[[], float]) -> Self:
        """Return the settings with `alpha` as a number.

        Cloning errors shrink with the variance of the actions, and the Q value does not: a fixed weight would leave data in
        the middle of a wide range for the sake of the critics.
        """
        if not isinstance(self.alpha, str):
            return self
        return self.model_copy(update={"alpha": PUBLISHED_ALPHA * narrowness(action_variance())})
