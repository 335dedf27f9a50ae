"""The settings of TD3."""

from typing import ClassVar

from pydantic import Field

from rl_training.config.blocks import DatalessKwargs
from rl_training.config.shared_knobs import CriticKnobs, CriticNetworkKnobs, Initialization


class TD3Knobs(CriticKnobs):
    """Twin delayed deep deterministic policy gradient (Fujimoto, van Hoof, Meger, 2018)."""

    actor_interval: int = Field(2, ge=1)
    """Gradient steps per update of policy and targets."""
    target_noise: float = Field(0.2, ge=0.0)
    """Standard deviation of the noise on the target's action."""
    target_noise_clip: float = Field(0.5, ge=0.0)
    """Largest noise on the target's action."""

    @property
    def target_interval(self) -> int:
        """Gradient steps per update of the targets."""
        return self.actor_interval


class TD3NetworkKnobs(CriticNetworkKnobs):
    """Shapes of the networks of the TD3 family."""

    acting_knobs: ClassVar[tuple[str, ...]] = ("exploration_noise",)

    initialization: Initialization = "uniform"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), EDAC's, or CORL's for EDAC."""
    exploration_noise: float = Field(0.1, ge=0.0)
    """Standard deviation of the noise on the actions that collect data."""


class TD3Kwargs(TD3Knobs, TD3NetworkKnobs, DatalessKwargs):
    """Everything under `algo_kwargs` of TD3."""
