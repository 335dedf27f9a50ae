"""The settings of REDQ."""

from typing import Any

from pydantic import Field, model_validator

from rl_training.config.algorithms.sac import SACKnobs, SACNetworkKnobs
from rl_training.config.blocks import DatalessKwargs
from rl_training.config.shared_knobs import check_subset


class REDQKnobs(SACKnobs):
    """Randomized ensembled double Q-learning (Chen, Wang, Zhou, Ross, 2021)."""

    subset_size: int = Field(2, ge=1)
    """Critics, redrawn for every update, whose minimum is the target."""
    actor_interval: int | None = Field(None, ge=1)
    """Gradient steps per update of policy and temperature; null, as in the paper: one update per round, with its last
    gradient step."""


class REDQNetworkKnobs(SACNetworkKnobs):
    """Shapes of REDQ's networks."""

    num_critics: int = Field(10, ge=1, le=1024)
    """Critics in the ensemble."""


def subset_fits(kwargs: Any) -> Any:
    """Return the settings, or raise a ValueError if the subset is larger than the ensemble."""
    check_subset(kwargs.subset_size, kwargs.num_critics)
    return kwargs


class REDQKwargs(REDQKnobs, REDQNetworkKnobs, DatalessKwargs):
    """Everything under `algo_kwargs` of REDQ."""

    learning_starts: int = Field(5_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    gradient_updates_per_step: int = Field(20, ge=1, le=10_000)
    """Gradient steps of one round."""

    _subset_fits = model_validator(mode="after")(subset_fits)
