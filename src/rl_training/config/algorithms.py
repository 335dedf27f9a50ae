"""The settings of each algorithm, one class each for hyper-parameters, networks and all of `algo_kwargs`; free of torch.

Each default and each range is written here once. Learners check their keyword arguments against these classes, and the
config schema is built from them, so a value refused in a YAML file is refused in Python with the same message.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rl_training.config.base import Alpha, PositiveRate
from rl_training.config.blocks import (
    OfflineKwargs,
    OnlineKwargs,
    PurelyOfflineKwargs,
    RewardConfig,
    RewardKwargs,
    UnfittedReward,
)
from rl_training.config.shared_knobs import (
    CriticKnobs,
    CriticNetworkKnobs,
    Initialization,
    LearnerKnobs,
    NetworkKnobs,
    check_subset,
)

HUBER_DELTA = 20.0
PUBLISHED_ALPHA = 2.5  # of TD3+BC


class BCKnobs(LearnerKnobs):
    """Behaviour cloning (Pomerleau, 1991)."""


class BCNetworkKnobs(NetworkKnobs):
    """Shape of the cloned policy."""

    policy: Literal["gaussian", "deterministic"] = "gaussian"
    """`gaussian`: maximum likelihood, with a standard deviation per action; `deterministic`: squared error."""


class BCKwargs(BCKnobs, BCNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of behaviour cloning."""


class IQLKnobs(CriticKnobs):
    """Implicit Q-learning (Kostrikov, Nair, Levine, 2021)."""

    more_cloning: ClassVar[str] = "Lower algo_kwargs.beta or expectile"

    value_learning_rate: PositiveRate = 3e-4
    """Adam step size of the value network."""
    expectile: float = Field(0.7, ge=0.5, lt=1.0)
    """Asymmetry of the value regression; 0.5 is the mean, towards 1 the best action in the data."""
    beta: float = Field(3.0, ge=0.0)
    """Inverse temperature of the advantage weights; 0 is behaviour cloning."""
    max_advantage_weight: float = Field(100.0, gt=0.0)
    """Upper clip of exp(beta * advantage)."""
    critic_loss: Literal["mse", "huber"] = "mse"
    """Regression of the critics: squared error, or Huber's with delta 20."""

    @property
    def huber_delta(self) -> float | None:
        """Where Huber's loss becomes linear; None for the squared error."""
        return HUBER_DELTA if self.critic_loss == "huber" else None


class IQLNetworkKnobs(CriticNetworkKnobs):
    """Shapes of IQL's networks."""

    value_layer_norm: bool = False
    """LayerNorm before each activation of the value network."""


class IQLKwargs(IQLKnobs, IQLNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of IQL."""


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


class TD3BCKnobs(CriticKnobs):
    """TD3 with behaviour cloning (Fujimoto and Gu, 2021)."""

    more_cloning: ClassVar[str] = "Lower algo_kwargs.alpha"

    alpha: float = Field(PUBLISHED_ALPHA, ge=0.0)
    """Weight of the normalised Q value against cloning the data; larger trusts the critics more."""
    actor_interval: int = Field(2, ge=1)
    """Gradient steps per update of policy and targets."""
    target_noise: float = Field(0.2, ge=0.0)
    """Standard deviation of the noise on the target's action."""
    target_noise_clip: float = Field(0.5, ge=0.0)
    """Largest noise on the target's action."""


class TD3NetworkKnobs(CriticNetworkKnobs):
    """Shapes of the networks of TD3+BC."""

    initialization: Initialization = "uniform"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


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
        return self.model_copy(update={"alpha": PUBLISHED_ALPHA * min(1.0, 3.0 * action_variance())})


class SACKnobs(CriticKnobs):
    """Soft actor-critic (Haarnoja and others, 2018)."""

    temperature_learning_rate: PositiveRate = 3e-4
    """Adam step size of the temperature (and of CQL's multiplier)."""
    alpha: Alpha = "auto"
    """Entropy temperature: a fixed number, or `auto` to hold the policy's entropy at the target."""
    target_entropy: float | None = None
    """Entropy that an automatic temperature aims at; null is minus the number of action dimensions."""
    backup_entropy: bool = True
    """Whether the critics' target includes the entropy of the next action."""
    actor_interval: int = Field(1, ge=1)
    """Gradient steps per update of policy and temperature."""

    @property
    def backup_actions(self) -> int:
        """Next actions drawn for a target; the best of them counts."""
        return 1

    @property
    def trains_alpha(self) -> bool:
        """Whether the temperature is learned."""
        return isinstance(self.alpha, str)  # `auto` is the only legal string

    @property
    def trains_temperature(self) -> bool:
        """Whether any dual variable is learned."""
        return self.trains_alpha

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that have no effect given the other values, each with the reason."""
        fixed = {} if self.trains_alpha else {"target_entropy": "alpha is a fixed number"}
        return fixed if self.trains_temperature else {**fixed, "temperature_learning_rate": "nothing of its group is learned"}


class SACNetworkKnobs(CriticNetworkKnobs):
    """Shapes of the networks of the SAC family."""

    initialization: Initialization = "xavier"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


class SACKwargs(SACKnobs, SACNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of SAC."""

    reward: UnfittedReward = RewardConfig()
    """Reward transform."""


class REDQKnobs(SACKnobs):
    """Randomized ensembled double Q-learning (Chen, Wang, Zhou, Ross, 2021)."""

    subset_size: int = Field(2, ge=1)
    """Critics, redrawn for every update, whose minimum is the target."""
    actor_interval: int = Field(20, ge=1)
    """Gradient steps per update of policy and temperature."""


class REDQNetworkKnobs(SACNetworkKnobs):
    """Shapes of REDQ's networks."""

    num_critics: int = Field(10, ge=1, le=256)
    """Critics in the ensemble."""


def _subset_fits(kwargs: Any) -> Any:
    check_subset(kwargs.subset_size, kwargs.num_critics)
    return kwargs


class REDQKwargs(REDQKnobs, REDQNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of REDQ."""

    reward: UnfittedReward = RewardConfig()
    """Reward transform."""
    learning_starts: int = Field(5_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    gradient_updates_per_step: int = Field(20, ge=1, le=10_000)
    """Gradient steps of one round."""

    _subset_fits = model_validator(mode="after")(_subset_fits)


class RLPDKnobs(REDQKnobs):
    """RL with prior data (Ball, Smith, Kostrikov, Levine, 2023)."""

    alpha: Alpha = 0.1
    """Entropy temperature: a fixed number, or `auto` to hold the policy's entropy at the target (the paper's choice)."""
    actor_interval: int = Field(1, ge=1)
    """Gradient steps per update of policy and temperature."""


class RLPDKwargs(RLPDKnobs, SACNetworkKnobs, OnlineKwargs, OfflineKwargs):
    """Everything under `algo_kwargs` of RLPD."""

    offline_pretrain_updates: int = Field(0, ge=0)
    """Gradient steps on prior data alone before the first environment step; not part of total_timesteps."""
    offline_batch_ratio: float = Field(0.5, ge=0.0, le=1.0)
    """Share of prior rows in every batch, rounded to whole rows."""

    _subset_fits = model_validator(mode="after")(_subset_fits)


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


class CalQLKnobs(CQLKnobs):
    """Calibrated Q-learning (Nakamoto and others, 2023)."""

    tail: Literal["last_reward", "zero", "none"] = "last_reward"
    """How the return of an episode cut by a time limit continues: its last reward forever, nothing, or no floor at all."""
    failure_reward: float | None = None
    """Sparse rewards: an episode whose processed rewards all equal this counts as failed, with return r / (1 - gamma)."""

    data_knobs: ClassVar[tuple[str, ...]] = ("gamma", "failure_reward")


class CalQLKwargs(CalQLKnobs, SACNetworkKnobs, PurelyOfflineKwargs, RewardKwargs):
    """Everything under `algo_kwargs` of Cal-QL."""
