"""The settings of RLPD."""

from pydantic import Field, model_validator

from rl_training.config.algorithms.redq import REDQKnobs, subset_fits
from rl_training.config.algorithms.sac import SACNetworkKnobs
from rl_training.config.base import Alpha
from rl_training.config.blocks import OfflineKwargs, OnlineKwargs


class RLPDKnobs(REDQKnobs):
    """RL with prior data (Ball, Smith, Kostrikov, Levine, 2023)."""

    alpha: Alpha = 0.1
    """Entropy temperature: a fixed number, or `auto` to hold the policy's entropy at the target (the paper's choice)."""
    actor_interval: int | None = Field(None, ge=1)
    """Gradient steps per update of policy and temperature; null, as in the paper: one update per round, with its last
    gradient step, and one per gradient step of the pretraining."""


class RLPDKwargs(RLPDKnobs, SACNetworkKnobs, OnlineKwargs, OfflineKwargs):
    """Everything under `algo_kwargs` of RLPD."""

    offline_pretrain_updates: int = Field(0, ge=0)
    """Gradient steps on prior data alone before the first environment step; not part of total_timesteps."""
    offline_batch_ratio: float = Field(0.5, ge=0.0, le=1.0)
    """Share of prior rows in every batch, rounded to whole rows."""

    _subset_fits = model_validator(mode="after")(subset_fits)
