"""Hyper-parameters and their legal ranges: one frozen, typed object per algorithm, importable without torch.

Each default and each range is written here once. Learners check their keyword arguments against these classes, and the
config schema is built from them, so a value refused in a YAML file is refused in Python with the same words.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
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
    )

    @classmethod
    def checked(cls, values: Mapping[str, Any], where: str = "") -> Self:
        """Return the validated object, or raise one ConfigError that names every fault in `values`."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            faults = [describe_fault(cls, fault)[1] for fault in error.errors()]
            raise ConfigError("; ".join(f"{where}{fault}" for fault in faults)) from None


PositiveRate = Annotated[float, Field(gt=0.0, le=1.0)]
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


class NetworkKnobs(StrictModel):
    """Shapes of the networks."""

    hidden_sizes: Sizes = (256, 256)
    """Widths of the hidden layers of every network."""
    num_critics: int = Field(2, ge=1, le=256)
    """Critics in the ensemble."""
    critic_layer_norm: bool = False
    """LayerNorm before each activation of the critics."""


class IQLNetworkKnobs(NetworkKnobs):
    """Shapes of IQL's networks."""

    value_layer_norm: bool = False
    """LayerNorm before each activation of the value network."""
    initialization: Literal["orthogonal", "xavier", "uniform"] = "orthogonal"
    """First weights: orthogonal (gain sqrt 2), Xavier uniform, or uniform in +-1/sqrt(inputs)."""


def _find_model(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The schema class that the key at the end of `path` belongs to, following nested models."""
    current: type[BaseModel] | None = model
    for key in path[:-1]:
        if current is None:
            return None
        field = current.model_fields.get(str(key))
        annotation = field.annotation if field else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        current = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
    return current


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
    value = fault["input"]
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    reason = fault["msg"].removeprefix("Value error, ")
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
