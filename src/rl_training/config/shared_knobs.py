"""Hyper-parameters: the knobs that learners and networks share, and which of them may differ between members."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, Self, get_args, get_origin

from pydantic import Field, field_validator, model_validator

from rl_training.config.base import PositiveRate, SingleModel, Sizes
from rl_training.errors import ConfigError, did_you_mean

Activation = Literal["relu", "gelu", "tanh", "silu"]
Initialization = Literal["orthogonal", "xavier", "uniform", "edac", "corl"]
Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]
DEFAULT_GAMMA = 0.99  # also where policies that learned without a discount are judged by one
LogStdRange = Annotated[tuple[float, float], Field(strict=False)]


def ordered(limits: tuple[float, float]) -> tuple[float, float]:
    """Return limits, or raise a ValueError unless the first is below the second."""
    if not limits[0] < limits[1]:
        raise ValueError("must be [lowest, highest]")
    return limits


class LearnerKnobs(SingleModel):
    """Knobs of every learner."""

    actor_learning_rate: PositiveRate = 3e-4
    """Adam step size of the policy."""
    actor_weight_decay: float = Field(0.0, ge=0.0)
    """Decoupled weight decay (AdamW) of the policy's weight matrices: each step takes rate * decay of them away; biases,
    LayerNorm and standard deviations without a network do not decay."""
    max_grad_norm: float | None = Field(None, gt=0.0)
    """Largest gradient norm of a group, per member; null is no clipping."""

    optimizer_knobs: ClassVar[tuple[str, ...]] = ("tau", "max_grad_norm", "actor_weight_decay", "critic_weight_decay")
    """Knobs that no loss reads."""
    more_cloning: ClassVar[str] = "Check the data"
    only_clones: ClassVar[bool] = False  # and so has no reason to leave the logged actions
    """What keeps the policy closer to the data, as an advice."""

    @property
    def data_knobs(self) -> tuple[str, ...]:
        """Knobs that the data is processed with, before any member sees it."""
        return ()

    def sweepable(self) -> list[str]:
        """Return the knobs that may differ between members of a run: real numbers that shape neither networks nor data."""
        fields = type(self).model_fields.items()
        numbers = [name for name, field in fields if float in (field.annotation, *get_args(field.annotation))]
        return [name for name in numbers if name not in self.data_knobs]

    def learning_rate(self, group: str) -> float:
        """Return the step size of a group of parameters: the knob of its name."""
        rate: float = getattr(self, f"{group}_learning_rate")
        return rate

    def weight_decay(self, group: str) -> float:
        """Return the weight decay of a group of parameters; dual variables have none."""
        return self.actor_weight_decay if group == "actor" else 0.0

    def changeable(self) -> list[str]:
        """Return the knobs that may have another value online: those that may be swept, and choices that shape nothing."""
        sweepable = self.sweepable()
        return [
            name
            for name, field in type(self).model_fields.items()
            if name in sweepable
            or (name not in self.data_knobs and (field.annotation is bool or get_origin(field.annotation) is Literal))
        ]

    @property
    def learned(self) -> tuple[str, ...]:
        """Knobs whose value is learned instead of given."""
        return ()

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

    gamma: float = Field(DEFAULT_GAMMA, ge=0.0, lt=1.0)
    """Discount of future rewards."""
    tau: float = Field(0.005, gt=0.0, le=1.0)
    """Share of the online network that is blended into the target network at each update."""
    critic_learning_rate: PositiveRate = 3e-4
    """Adam step size of the critics."""
    critic_weight_decay: float = Field(0.0, ge=0.0)
    """Decoupled weight decay of the weight matrices of critics and value network."""
    n_step: int = Field(1, ge=1, le=1000)
    """Steps of a transition, fewer at the end of an episode: the critics' target sums their rewards before it bootstraps. Of
    SAC's entropy only that of the bootstrap counts."""

    def weight_decay(self, group: str) -> float:
        """Return the weight decay of a group of parameters; the value network has that of the critics."""
        return self.critic_weight_decay if group in ("critic", "value") else super().weight_decay(group)

    @property
    def target_interval(self) -> int:
        """Gradient steps per update of the targets."""
        return 1

    @property
    def data_knobs(self) -> tuple[str, ...]:
        """Knobs that the data is processed with: over several steps the discount is one of them."""
        return ("n_step", "gamma") if self.n_step > 1 else ("n_step",)


class NetworkKnobs(SingleModel):
    """Shapes of the networks."""

    acting_knobs: ClassVar[tuple[str, ...]] = ()
    """Knobs that shape nothing: attributes of the model, by the same name, that only acting reads."""

    hidden_sizes: Sizes = (256, 256)
    """Widths of the hidden layers of every network."""
    actor_hidden_sizes: Sizes | None = None
    """Widths of the hidden layers of the policy; null is `hidden_sizes`."""
    activation: Activation = "relu"
    """Activation of every network; `gelu` is its tanh approximation."""
    actor_layer_norm: bool = False
    """LayerNorm in each hidden layer of the policy."""
    layer_norm_position: Literal["before", "after"] = "before"
    """Whether LayerNorm comes before or after the activation."""
    actor_dropout: Dropout = 0.0
    """Share of the policy's hidden units that are zeroed after the activation, where a loss trains the policy."""
    initialization: Initialization = "orthogonal"
    """Initial weights: `orthogonal` (gain sqrt 2), `xavier` uniform, `uniform` in +-1/sqrt(inputs), `edac`: uniform, with
    hidden biases of 0.1 and a last layer in +-0.001 (policy) or +-0.003 (others), or `corl`: `edac`, but for the first layer
    of several critics, in +-1/sqrt(outputs)."""
    last_layer_gain: float | None = Field(None, gt=0.0)
    """Scale of the last layer's initial weights: the gain if orthogonal, otherwise a factor; null is that of the others."""

    @property
    def actor_widths(self) -> tuple[int, ...]:
        """Widths of the hidden layers of the policy."""
        return self.actor_hidden_sizes or self.hidden_sizes

    @model_validator(mode="after")
    def _one_last_layer(self) -> Self:
        if self.initialization in ("edac", "corl") and self.last_layer_gain is not None:
            own = f"`initialization: {self.initialization}`"
            raise ValueError(f"`last_layer_gain` has no effect with {own}, which sets the last layer")
        return self


class CriticNetworkKnobs(NetworkKnobs):
    """Shapes of networks that include critics."""

    num_critics: int = Field(2, ge=1, le=1024)
    """Critics in the ensemble."""
    critic_hidden_sizes: Sizes | None = None
    """Widths of the hidden layers of critics and value network; null is `hidden_sizes`."""
    critic_layer_norm: bool = False
    """LayerNorm in each hidden layer of the critics."""
    critic_dropout: Dropout = 0.0
    """Share of the critics' hidden units that are zeroed after the activation, where a loss trains the critics."""

    @property
    def critic_widths(self) -> tuple[int, ...]:
        """Widths of the hidden layers of critics and value network."""
        return self.critic_hidden_sizes or self.hidden_sizes


class StochasticNetworkKnobs(NetworkKnobs):
    """Shape of a policy that is a plain Gaussian."""

    policy_mean: Literal["tanh", "linear"] = "tanh"
    """Whether the policy's mean is squashed into the bounds; a `linear` one is clipped when it acts."""
    log_std_range: LogStdRange = (-5.0, 2.0)
    """Lowest and highest log standard deviation of the policy."""

    _ordered = field_validator("log_std_range")(ordered)

    @property
    def deterministic(self) -> bool:
        """Whether the policy is its mean alone."""
        return False


class GaussianNetworkKnobs(StochasticNetworkKnobs):
    """Shape of a policy that is a plain Gaussian or its mean alone."""

    policy: Literal["gaussian", "deterministic"] = "gaussian"
    """`gaussian`: maximum likelihood, with a standard deviation per action; `deterministic`: squared error."""

    @property
    def deterministic(self) -> bool:
        """Whether the policy is its mean alone."""
        return self.policy == "deterministic"


def check_sweepable(knobs: LearnerKnobs, names: Iterable[str], shared: Iterable[str] = ()) -> None:
    """Raise a ConfigError for the first name that cannot be swept, listing those that can; `shared` are other known keys."""
    legal = knobs.sweepable()
    for name in names:
        if name in knobs.data_knobs:
            reason = "the data that all members share is processed with it."
        elif name in {*type(knobs).model_fields, *shared}:
            reason = "it sets a shape or a choice that all members share."
        else:
            reason = f"there is no such knob.{did_you_mean(name, legal)}"
        if name not in legal:
            raise ConfigError(f"`{name}` cannot be swept: {reason} What can be: {', '.join(legal)}")


def check_subset(subset_size: int, num_critics: int) -> None:
    """Raise a ValueError for a subset larger than the ensemble."""
    if subset_size > num_critics:
        raise ValueError(f"`subset_size` = {subset_size} is not legal: must be at most num_critics = {num_critics}")
