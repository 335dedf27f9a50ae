"""The settings of CQL."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from rl_training.config.algorithms.sac import SACKnobs, SACNetworkKnobs
from rl_training.config.base import PositiveRate
from rl_training.config.blocks import PurelyOfflineKwargs, RewardKwargs


class CQLKnobs(SACKnobs):
    """Conservative Q-learning (Kumar, Zhou, Tucker, Levine, 2020)."""

    more_cloning: ClassVar[str] = "Raise algo_kwargs.cql_alpha"

    actor_learning_rate: PositiveRate = 1e-4
    """Adam step size of the policy."""
    temperature_learning_rate: PositiveRate = 1e-4
    """Adam step size of the temperature and of the multiplier: the policy's, as the paper does for the temperature."""
    backup_entropy: bool = False
    """Whether the critics' target includes the entropy of the next action; the paper leaves it out."""
    cql_alpha: float = Field(5.0, ge=0.0)
    """Weight of the conservative penalty."""
    num_cql_samples: int = Field(10, ge=1, le=1000)
    """Actions per source (uniform, policy at s, policy at s') in the penalty."""
    cql_temperature: float = Field(1.0, gt=0.0)
    """Temperature of the log-sum-exp."""
    lagrange_gap: float | None = None
    """Gap that an automatic weight aims at; null keeps the weight fixed at cql_alpha."""
    max_target_backup: bool = False
    """Whether the target takes the best of num_cql_samples next actions."""
    cql_clip_diff_min: float | None = None
    """Lowest value of the penalty of one row, before the mean; null is unbounded."""
    cql_clip_diff_max: float | None = None
    """Highest value of the penalty of one row, before the mean; null is unbounded."""

    @property
    def backup_actions(self) -> int:
        """Next actions drawn for a target; the best of them counts."""
        return self.num_cql_samples if self.max_target_backup else 1

    @property
    def trains_temperature(self) -> bool:
        """Whether any dual variable is learned."""
        return self.trains_alpha or self.lagrange_gap is not None

    @property
    def rows_per_transition(self) -> int:
        """Rows that the critics score for one transition."""
        return 1 + 3 * self.num_cql_samples

    @model_validator(mode="after")
    def _ordered_clip(self) -> Self:
        low, high = self.cql_clip_diff_min, self.cql_clip_diff_max
        if low is not None and high is not None and low >= high:
            raise ValueError(f"cql_clip_diff_min = {low} must be below cql_clip_diff_max = {high}")
        return self


class CQLKwargs(CQLKnobs, SACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of CQL."""
