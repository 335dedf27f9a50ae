"""The settings of CQL."""

from typing import ClassVar, Literal, Self

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
    """Adam step size of the temperature: the policy's, as in the paper."""
    multiplier_learning_rate: PositiveRate | None = None
    """Adam step size of the multiplier; null is that of the temperature. The authors and JaxCQL take the critics'."""
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
    lagrange_form: Literal["jaxcql", "authors"] = "jaxcql"
    """An automatic weight a' multiplies cql_alpha (difference - gap) and starts at e, as in JaxCQL and CORL, or
    cql_alpha difference - gap and starts at 1, as in the authors' code."""
    max_target_backup: bool = False
    """Whether the target takes the best of num_cql_samples next actions."""
    max_backup_form: Literal["max_of_min", "min_of_max"] = "max_of_min"
    """The best by the smallest critic, as in JaxCQL and CORL, or the smallest of the critics' best, as the authors do."""
    min_q_version: Literal[2, 3] = 3
    """How the log-sum-exp is estimated, by the authors' numbers: 3 with importance sampling; 2 without, the data's Q among
    the values."""
    bc_steps: int = Field(0, ge=0)
    """First gradient steps in which the policy clones the data, with its entropy, instead of following the critics."""
    cql_clip_diff_min: float | None = None
    """Lowest value of the penalty of one row, before the mean; null is unbounded."""
    cql_clip_diff_max: float | None = None
    """Highest value of the penalty of one row, before the mean; null is unbounded."""

    @property
    def backup_actions(self) -> int:
        """Next actions drawn for a target; the best of them counts."""
        return self.num_cql_samples if self.max_target_backup else 1

    @property
    def trains_multiplier(self) -> bool:
        """Whether the weight of the penalty is learned."""
        return self.lagrange_gap is not None

    @property
    def learned(self) -> tuple[str, ...]:
        """Knobs whose value is, or is reached by, a dual variable."""
        return (*super().learned, "lagrange_gap") if self.trains_multiplier else super().learned

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that have no effect given the other values, each with the reason."""
        idle = dict(super().idle)
        if not self.trains_multiplier:
            idle |= dict.fromkeys(("multiplier_learning_rate", "lagrange_form"), "lagrange_gap is null")
        if not self.max_target_backup:
            idle["max_backup_form"] = "max_target_backup is false"
        return idle

    def learning_rate(self, group: str) -> float:
        """Return the step size of a group."""
        own = self.multiplier_learning_rate
        return super().learning_rate(group) if group != "multiplier" or own is None else own

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

    @model_validator(mode="after")
    def _one_best_action(self) -> Self:
        if self.max_target_backup and self.max_backup_form == "min_of_max" and self.backup_entropy:
            raise ValueError("`backup_entropy` needs one best action, and `max_backup_form: min_of_max` has one per critic")
        return self


class CQLKwargs(CQLKnobs, SACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of CQL."""
