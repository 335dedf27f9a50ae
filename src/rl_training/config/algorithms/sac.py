"""The settings of SAC."""

from pydantic import Field, field_validator

from rl_training.config.base import Alpha, PositiveRate
from rl_training.config.blocks import OnlineKwargs, RewardConfig, UnfittedReward
from rl_training.config.shared_knobs import CriticKnobs, CriticNetworkKnobs, Initialization, LogStdRange, ordered


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
    actor_interval: int | None = Field(1, ge=1)
    """Gradient steps per update of policy and temperature; null: one update per round, with its last gradient step, and
    offline, where there are no rounds, one per gradient step."""

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
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), or EDAC's."""
    log_std_range: LogStdRange = (-20.0, 2.0)
    """Lowest and highest log standard deviation of the policy."""
    log_std_offset: float = 0.0
    """Added to the network's log standard deviation, before it is clipped."""

    _ordered = field_validator("log_std_range")(ordered)


class SACKwargs(SACKnobs, SACNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of SAC."""

    reward: UnfittedReward = RewardConfig()
    """Reward transform."""
