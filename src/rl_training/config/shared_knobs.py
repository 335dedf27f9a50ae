"""Hyper-parameters: the knobs that learners and networks share, and which of them may differ between members."""

from collections.abc import Iterable
from typing import ClassVar, Literal, get_args

from pydantic import Field

from rl_training.config.base import PositiveRate, Sizes, StrictModel
from rl_training.errors import ConfigError, did_you_mean

Initialization = Literal["orthogonal", "xavier", "uniform"]


class LearnerKnobs(StrictModel):
    """Knobs of every learner."""

    actor_learning_rate: PositiveRate = 3e-4
    """Adam step size of the policy."""
    max_grad_norm: float | None = Field(None, gt=0.0)
    """Largest gradient norm of a group, per member; null is no clipping."""

    data_knobs: ClassVar[tuple[str, ...]] = ()
    """Knobs that the data is processed with, before any member sees it."""
    more_cloning: ClassVar[str] = "Check the data"
    """What keeps the policy closer to the data, as an advice."""

    @classmethod
    def sweepable(cls) -> list[str]:
        """Return the knobs that may differ between members of a run: real numbers that shape neither networks nor data."""
        numbers = [
            name for name, field in cls.model_fields.items() if float in (field.annotation, *get_args(field.annotation))
        ]
        return [name for name in numbers if name not in cls.data_knobs]

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that have no effect given the other values, each with the reason."""
        return {}

    @property
    def rows_per_transition(self) -> int:
        """Rows that the largest network scores for one transition."""
        return 1


class CriticKnobs(LearnerKnobs):
    """Knobs of every learner with critics."""

    gamma: float = Field(0.99, ge=0.0, lt=1.0)
    """Discount of future rewards."""
    tau: float = Field(0.005, gt=0.0, le=1.0)
    """Share of the online network that is blended into the target network at each update."""
    critic_learning_rate: PositiveRate = 3e-4
    """Adam step size of the critics."""


class NetworkKnobs(StrictModel):
    """Shapes of the networks."""

    hidden_sizes: Sizes = (256, 256)
    """Widths of the hidden layers of every network."""
    initialization: Initialization = "orthogonal"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


class CriticNetworkKnobs(NetworkKnobs):
    """Shapes of networks that include critics."""

    num_critics: int = Field(2, ge=1, le=256)
    """Critics in the ensemble."""
    critic_layer_norm: bool = False
    """LayerNorm before each activation of the critics."""


def check_sweepable(knobs: type[LearnerKnobs], names: Iterable[str], shared: Iterable[str] = ()) -> None:
    """Raise a ConfigError for the first name that cannot be swept, listing those that can; `shared` are other known keys."""
    legal = knobs.sweepable()
    for name in names:
        if name in knobs.data_knobs:
            reason = "the data that all members share is processed with it."
        elif name in {*knobs.model_fields, *shared}:
            reason = "it sets a shape or a choice that all members share."
        else:
            reason = f"there is no such knob.{did_you_mean(name, legal)}"
        if name not in legal:
            raise ConfigError(f"`{name}` cannot be swept: {reason} What can be: {', '.join(legal)}")


def check_subset(subset_size: int, num_critics: int) -> None:
    """Raise a ValueError for a subset larger than the ensemble."""
    if subset_size > num_critics:
        raise ValueError(f"`subset_size` = {subset_size} is not legal: must be at most num_critics = {num_critics}")
