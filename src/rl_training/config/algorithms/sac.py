"""The settings of SAC."""

from pydantic import Field, field_validator

from rl_training.config.base import Alpha, PositiveRate
from rl_training.config.blocks import DatalessKwargs
from rl_training.config.shared_knobs import CriticKnobs, CriticNetworkKnobs, Initialization, LogStdRange, ordered


class SACKnobs(CriticKnobs):
    """Soft actor-critic (Haarnoja and others, 2018)."""

    temperature_learning_rate: PositiveRate = 3e-4
    """Adam step size of the temperature."""
    alpha: Alpha = "auto"
    """Entropy temperature: a fixed number, or `auto` to hold the policy's entropy at the target."""
    target_entropy: float | None = None
    """Entropy that an automatic temperature aims at; null is that of `target_entropy_multiplier`."""
    target_entropy_multiplier: float = Field(1.0, ge=0.0)
    """An automatic temperature aims at minus this times the number of action dimensions."""
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
    def learned(self) -> tuple[str, ...]:
        """Knobs whose value is a dual variable."""
        return ("alpha",) if self.trains_alpha else ()

    @property
    def trains_alpha(self) -> bool:
        """Whether the temperature is learned."""
        return isinstance(self.alpha, str)  # `auto` is the only legal string

    @property
    def trains_multiplier(self) -> bool:
        """Whether CQL's multiplier is learned."""
        return False

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that have no effect given the other values, each with the reason."""
        if not self.trains_alpha:
            entropy = ("target_entropy", "target_entropy_multiplier", "temperature_learning_rate")
            return dict.fromkeys(entropy, "alpha is a fixed number")
        return {} if self.target_entropy is None else {"target_entropy_multiplier": "target_entropy is set"}

    def learning_rate(self, group: str) -> float:
        """Return the step size of a group; SAC itself never trains the multiplier."""
        return self.temperature_learning_rate if group == "multiplier" else super().learning_rate(group)


class SACNetworkKnobs(CriticNetworkKnobs):
    """Shapes of the networks of the SAC family."""

    initialization: Initialization = "xavier"
    """Initial weights: orthogonal (gain sqrt 2), Xavier uniform, uniform in +-1/sqrt(inputs), EDAC's, or CORL's for EDAC."""
    initial_alpha: float = Field(1.0, gt=0.0)
    """Entropy temperature at which an automatic one starts."""
    log_std_range: LogStdRange = (-20.0, 2.0)
    """Lowest and highest log standard deviation of the policy."""
    log_std_offset: float = 0.0
    """Added to the network's log standard deviation, before it is clipped."""

    _ordered = field_validator("log_std_range")(ordered)


class SACKwargs(SACKnobs, SACNetworkKnobs, DatalessKwargs):
    """Everything under `algo_kwargs` of SAC."""
