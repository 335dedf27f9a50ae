"""The settings of Cal-QL."""

from typing import Literal

from rl_training.config.algorithms.cql import CQLKnobs
from rl_training.config.algorithms.sac import SACNetworkKnobs
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs


class CalQLKnobs(CQLKnobs):
    """Calibrated Q-learning (Nakamoto and others, 2023)."""

    tail: Literal["last_penalty", "last_reward", "zero", "none"] = "last_penalty"
    """How the return of an episode cut by a time limit continues: its last reward forever if it is negative and nothing
    otherwise; its last reward forever; nothing (the authors' choice); or no floor at all."""
    failure_reward: float | None = None
    """Sparse rewards: an episode whose processed rewards all equal this counts as failed, with return r / (1 - gamma)."""

    @property
    def data_knobs(self) -> tuple[str, ...]:
        """Knobs that the data is processed with: those of the returns are among them."""
        return ("n_step", "gamma", "tail", "failure_reward")


class CalQLKwargs(CalQLKnobs, SACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of Cal-QL."""
