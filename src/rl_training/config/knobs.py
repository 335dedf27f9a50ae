"""Hyper-parameters and their legal ranges: one frozen, typed object per algorithm, importable without torch.

Each default and each range is written here once. Learners check their keyword arguments against these classes, and the
config schema is built from them, so a value refused in a YAML file is refused in Python with the same words.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from rl_training.errors import ConfigError, did_you_mean

_LIMITS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class StrictModel(BaseModel):
    """A frozen set of named values: no unknown key, no bool for a number, no NaN or inf."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
        defer_build=True,  # a run uses few of these classes, and building all takes longer than most commands
    )

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, values: Any) -> Any:
        """Take numpy's numbers and arrays for Python's."""
        if not isinstance(values, Mapping):
            return values
        foreign = {key for key, value in values.items() if type(value).__module__ == "numpy" and hasattr(value, "tolist")}
        return {key: value.tolist() if key in foreign else value for key, value in values.items()}

    @classmethod
    def checked(cls, values: Mapping[str, Any], where: str = "") -> Self:
        """Return the validated object, or raise one ConfigError that names every fault in `values`."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            faults = [fault for _, fault in describe_faults(cls, error)]
            raise ConfigError("; ".join(f"{where}{fault}" for fault in faults)) from None


HUBER_DELTA = 20.0
VALIDATION_ROWS = 25_600  # held-out rows that one look takes

PositiveRate = Annotated[float, Field(gt=0.0, le=1.0)]


def _number_or_auto(value: Any) -> Any:
    if value == "auto" or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= sys.float_info.max
    ):
        return value if value == "auto" else float(value)
    raise ValueError("must be a number >= 0 or `auto`")


Alpha = Annotated[float | Literal["auto"], BeforeValidator(_number_or_auto)]
Sizes = Annotated[
    tuple[Annotated[int, Strict(), Field(ge=1, le=65536)], ...], Field(strict=False, min_length=1, max_length=16)
]


class LearnerKnobs(StrictModel):
    """What every learner has."""

    gamma: float = Field(0.99, ge=0.0, lt=1.0)
    """Discount of future rewards."""
    tau: float = Field(0.005, gt=0.0, le=1.0)
    """Share of the online network that a target network takes over at each update."""
    actor_learning_rate: PositiveRate = 3e-4
    """Adam step size of the policy."""
    critic_learning_rate: PositiveRate = 3e-4
    """Adam step size of the critics."""
    max_grad_norm: float | None = Field(None, gt=0.0)
    """Largest gradient norm of a group, per member; null clips nothing."""

    data_knobs: ClassVar[tuple[str, ...]] = ()
    """Knobs that the data is processed with, before any member sees it."""

    @classmethod
    def sweepable(cls) -> list[str]:
        """Return the knobs that members of one run may differ in: real numbers that shape neither networks nor data."""
        numbers = [
            name for name, field in cls.model_fields.items() if float in (field.annotation, *get_args(field.annotation))
        ]
        return [name for name in numbers if name not in cls.data_knobs]

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that do nothing beside the others as they are, each with the reason."""
        return {}

    @property
    def rows_per_transition(self) -> int:
        """Rows that the critics score for one transition."""
        return 1


class IQLKnobs(LearnerKnobs):
    """Implicit Q-learning (Kostrikov, Nair, Levine, 2021)."""

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
        """Where Huber's loss turns linear; None for the squared error."""
        return HUBER_DELTA if self.critic_loss == "huber" else None


class XQLKnobs(IQLKnobs):
    """Extreme Q-learning (Garg, Hejna, Geist, Ermon, 2023)."""

    loss_temperature: float = Field(1.0, gt=0.0)
    """Temperature of the Gumbel regression: small looks for the best action in the data, large for the mean."""
    max_value_diff_exp: float | None = Field(7.0, gt=0.0)
    """Upper clip of (Q - V) / loss_temperature in the exponential; null clips nothing."""
    vanilla_value_loss: bool = False
    """IQL's expectile regression instead of the Gumbel one."""

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that do nothing beside the others as they are, each with the reason."""
        if self.vanilla_value_loss:
            return dict.fromkeys(("loss_temperature", "max_value_diff_exp"), "vanilla_value_loss is true")
        return {"expectile": "vanilla_value_loss is false"}


class SACKnobs(LearnerKnobs):
    """Soft actor-critic (Haarnoja and others, 2018)."""

    temperature_learning_rate: PositiveRate = 3e-4
    """Adam step size of the temperature (and of CQL's multiplier)."""
    alpha: Alpha = "auto"
    """Entropy temperature: a fixed number, or `auto` to hold the policy's entropy at the target."""
    target_entropy: float | None = None
    """Entropy that an automatic temperature aims at; null is minus the number of action dimensions."""
    backup_entropy: bool = True
    """Whether the critics' target holds the entropy of the next action."""
    actor_interval: int = Field(1, ge=1)
    """Gradient steps per update of policy and temperature."""

    @property
    def backup_actions(self) -> int:
        """Next actions drawn for a target; the best of them counts."""
        return 1

    @property
    def trains_alpha(self) -> bool:
        """Whether the temperature is learned."""
        return isinstance(self.alpha, str)  # `auto` is the only word

    @property
    def trains_temperature(self) -> bool:
        """Whether any dual variable is learned."""
        return self.trains_alpha

    @property
    def idle(self) -> dict[str, str]:
        """Knobs that do nothing beside the others as they are, each with the reason."""
        fixed = {} if self.trains_alpha else {"target_entropy": "alpha is a fixed number"}
        return fixed if self.trains_temperature else {**fixed, "temperature_learning_rate": "nothing of its group is learned"}


class REDQKnobs(SACKnobs):
    """Randomized ensembled double Q-learning (Chen, Wang, Zhou, Ross, 2021)."""

    subset_size: int = Field(2, ge=1)
    """Critics, drawn anew for every update, whose minimum makes the target."""
    actor_interval: int = Field(20, ge=1)
    """Gradient steps per update of policy and temperature."""


class RLPDKnobs(REDQKnobs):
    """RL with prior data (Ball, Smith, Kostrikov, Levine, 2023)."""

    alpha: Alpha = 0.1
    """Entropy temperature: a fixed number, or `auto` to hold the policy's entropy at the target (the paper's choice)."""
    actor_interval: int = Field(1, ge=1)
    """Gradient steps per update of policy and temperature."""


class CQLKnobs(SACKnobs):
    """Conservative Q-learning (Kumar, Zhou, Tucker, Levine, 2020)."""

    actor_learning_rate: PositiveRate = 1e-4
    """Adam step size of the policy."""
    temperature_learning_rate: PositiveRate = 1e-4
    """Adam step size of the temperature and of the multiplier: the policy's, as published for the former."""
    backup_entropy: bool = False
    """Whether the critics' target holds the entropy of the next action; published without."""
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


class CalQLKnobs(CQLKnobs):
    """Calibrated Q-learning (Nakamoto and others, 2023)."""

    tail: Literal["last_reward", "zero", "none"] = "last_reward"
    """How the return of an episode cut by a time limit goes on: its last reward for ever, nothing, or no floor at all."""
    failure_reward: float | None = None
    """Sparse rewards: an episode whose every processed reward is this counts as failed, with r / (1 - gamma) throughout."""

    data_knobs: ClassVar[tuple[str, ...]] = ("gamma", "failure_reward")


class TD3BCKnobs(LearnerKnobs):
    """TD3 with behaviour cloning (Fujimoto and Gu, 2021)."""

    alpha: float = Field(2.5, ge=0.0)
    """Weight of the normalised Q value against cloning the data; larger trusts the critics more."""
    actor_interval: int = Field(2, ge=1)
    """Gradient steps per update of policy and targets."""
    target_noise: float = Field(0.2, ge=0.0)
    """Standard deviation of the noise on the target's action."""
    target_noise_clip: float = Field(0.5, ge=0.0)
    """Largest noise on the target's action."""


def check_sweepable(knobs: type[LearnerKnobs], names: Iterable[str], shared: Iterable[str] = ()) -> None:
    """Raise a ConfigError for the first name that members cannot differ in, with all they can; `shared`: other keys."""
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
    """Raise a ValueError for a subset that the ensemble cannot hold."""
    if subset_size > num_critics:
        raise ValueError(f"`subset_size` = {subset_size} is not legal: must be at most num_critics = {num_critics}")


class NetworkKnobs(StrictModel):
    """Shapes of the networks."""

    hidden_sizes: Sizes = (256, 256)
    """Widths of the hidden layers of every network."""
    num_critics: int = Field(2, ge=1, le=256)
    """Critics in the ensemble."""
    critic_layer_norm: bool = False
    """LayerNorm before each activation of the critics."""
    initialization: Literal["orthogonal", "xavier", "uniform"] = "orthogonal"
    """First weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


class IQLNetworkKnobs(NetworkKnobs):
    """Shapes of IQL's networks."""

    value_layer_norm: bool = False
    """LayerNorm before each activation of the value network."""


class SACNetworkKnobs(NetworkKnobs):
    """Shapes of the networks of the SAC family."""

    initialization: Literal["orthogonal", "xavier", "uniform"] = "xavier"
    """First weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


class REDQNetworkKnobs(SACNetworkKnobs):
    """Shapes of REDQ's networks."""

    num_critics: int = Field(10, ge=1, le=256)
    """Critics in the ensemble."""


class TD3NetworkKnobs(NetworkKnobs):
    """Shapes of the networks of TD3+BC."""

    initialization: Literal["orthogonal", "xavier", "uniform"] = "uniform"
    """First weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


def _find_model(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The schema class that the key at the end of `path` belongs to, following nested models."""
    current: type[BaseModel] | None = model
    for key in path[:-1]:
        if current is None:
            return None
        if isinstance(key, int):  # a place in a list of models
            continue
        field = current.model_fields.get(str(key))
        annotation = field.annotation if field else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        current = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
    return current


def describe_faults(model: type[BaseModel], error: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the path and the sentence of every fault, less those that only follow from another one."""
    faults = error.errors()
    deeper = {fault["loc"][:length] for fault in faults for length in range(len(fault["loc"]))}
    own = [fault for fault in faults if not (fault["type"] == "too_short" and fault["loc"] in deeper)]
    return [describe_fault(model, fault) for fault in own]


def describe_fault(model: type[BaseModel], fault: ErrorDetails) -> tuple[tuple[int | str, ...], str]:
    """Return the path of a validation fault and one sentence with the name, the value and what is legal."""
    path = fault["loc"]
    name = ".".join(str(part) for part in path) or "value"
    owner = _find_model(model, path)
    if fault["type"] == "extra_forbidden":
        hint = did_you_mean(str(path[-1]), owner.model_fields if owner else ())
        return path, f"unknown key `{name}`.{hint}"
    if fault["type"] == "missing":
        return path, f"`{name}` is required"
    reason = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error" and isinstance(fault["input"], Mapping):  # a rule between keys, not one key's value
        return path, f"{f'in `{name}`: ' if path else ''}{reason}"
    value = fault["input"]
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    return path, f"`{name}` = {shown} is not legal: {_legal_range(owner, path) or reason}"


def _legal_range(owner: type[BaseModel] | None, path: tuple[int | str, ...]) -> str:
    """Words like `a number >= 0.5 and < 1.0` for a bounded field; empty when the field has no bounds."""
    field = owner.model_fields.get(str(path[-1])) if owner and path else None
    if field is None:
        return ""
    metadata = [*field.metadata, *getattr(field.annotation, "__metadata__", ())]
    for option in getattr(field.annotation, "__args__", ()):
        metadata += getattr(option, "__metadata__", ())
    limits = [
        f"{sign} {getattr(item, attribute)}"
        for item in metadata
        for attribute, sign in _LIMITS.items()
        if hasattr(item, attribute)
    ]
    if not limits:
        return ""
    kind = "an integer" if field.annotation is int else "a number"
    return f"must be {kind} {' and '.join(limits)}"
