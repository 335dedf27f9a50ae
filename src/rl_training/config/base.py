"""Strict models: the base of every block of settings, and the messages for invalid values; free of torch."""

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from rl_training.errors import ConfigError, did_you_mean
from rl_training.registry import REGISTRY

SMALLEST, LARGEST = 1.2e-38, 3.4e38  # in size, of numbers in single precision with all their digits
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
        defer_build=True,  # a run uses few of these classes, and building them all takes longer than most commands
    )

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, values: Any) -> Any:
        """Convert numpy numbers and arrays to plain Python values."""
        if not isinstance(values, Mapping):
            return values
        foreign = {key for key, value in values.items() if type(value).__module__ == "numpy" and hasattr(value, "tolist")}
        return {key: value.tolist() if key in foreign else value for key, value in values.items()}

    @classmethod
    def checked(cls, values: Mapping[str, Any], where: str = "", *, inside: str = "") -> Self:
        """Return the validated object, or raise one ConfigError that names every fault in `values`.

        `where` begins each message, `inside` each name in it, such as `algo_kwargs.`.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            faults = [fault for _, fault in describe_faults(cls, error, inside)]
            raise ConfigError("; ".join(f"{where}{fault}" for fault in faults)) from None


class SingleModel(StrictModel):
    """A strict model of numbers for single precision: one that overflows there, or vanishes, is refused."""

    @field_validator("*")
    @classmethod
    def _fits(cls, value: Any) -> Any:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and number != 0.0 and not SMALLEST <= abs(number) <= LARGEST:
                raise ValueError(f"must be 0, or between {SMALLEST:g} and {LARGEST:g} in size")
        return value


PositiveRate = Annotated[float, Field(gt=0.0, le=1.0)]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names, such as `algo_kwargs.expectile`; an empty group stays as it is."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return found


def _number_or_auto(value: Any) -> Any:
    if value == "auto" or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= sys.float_info.max
    ):
        return value if value == "auto" else float(value)
    raise ValueError("must be a number >= 0 or `auto`")


def _flag_or_auto(value: Any) -> Any:
    if isinstance(value, bool) or value == "auto":
        return value
    raise ValueError("must be true, false or `auto`")


FlagOrAuto = Annotated[bool | Literal["auto"], BeforeValidator(_flag_or_auto)]
Alpha = Annotated[float | Literal["auto"], BeforeValidator(_number_or_auto)]


def _widths(value: Any) -> Any:
    if isinstance(value, list | tuple) and value:
        return value
    raise ValueError("must be a list of widths, such as [256, 256]")


Sizes = Annotated[
    tuple[Annotated[int, Strict(), Field(ge=1, le=65536)], ...],
    Field(strict=False, min_length=1, max_length=16),
    BeforeValidator(_widths),
]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]


def _find_model(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The schema class that the key at the end of `path` belongs to, following nested models."""
    current: type[BaseModel] | None = model
    for key in path[:-1]:
        if current is None:
            return None
        if isinstance(key, int):  # an index into a list of models
            continue
        field = current.model_fields.get(str(key))
        current = _nested_model(field.annotation) if field else None
    return current


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    """The schema class that a value of this type holds, alone or in a list."""
    options = [annotation, *getattr(annotation, "__args__", ())]
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)


def _homes(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """The shortest path of every key of a schema; of equally short ones that under `algo_kwargs`."""
    homes: dict[str, tuple[str, ...]] = {}
    level: list[tuple[tuple[str, ...], type[BaseModel]]] = [((), model)]
    while level:
        inner = [((*path, name), field) for path, owner in level for name, field in owner.model_fields.items()]
        inner.sort(key=lambda item: item[0][0] != "algo_kwargs")
        for path, _ in inner:
            homes.setdefault(path[-1], path)
        level = [(path, found) for path, field in inner if (found := _nested_model(field.annotation))]
    return homes


def _unknown_key(model: type[BaseModel], owner: type[BaseModel] | None, path: tuple[int | str, ...]) -> str:
    """What to say about a key that its block does not have: where it belongs, or which one was meant."""
    key, block = str(path[-1]), tuple(part for part in path[:-1] if isinstance(part, str))
    unknown = f"unknown key `{'.'.join(str(part) for part in path)}`"
    homes = _homes(model)
    if owner and len(block) > 1:  # inside a block, what lies below it comes first
        homes |= {name: (*block, *below) for name, below in _homes(owner).items()}
    if key in homes:
        place = f"under `{'.'.join(homes[key])}`" if len(homes[key]) > 1 else "at the top level"
        return f"{unknown}; it belongs {place}"
    if block == ("algo_kwargs",) and (others := [spec.id for spec in REGISTRY.values() if key in spec.config.model_fields]):
        return f"{unknown}; it is a knob of {', '.join(others)}"
    if hint := did_you_mean(key, owner.model_fields if owner else ()):
        return f"{unknown}.{hint}"
    close = get_close_matches(key, [name for name, home in homes.items() if home[: len(block)] == block], n=1)
    return f"{unknown}." + (f" Did you mean `{'.'.join(homes[close[0]])}`?" if close else "")


def describe_faults(
    model: type[BaseModel], error: ValidationError, inside: str = ""
) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the path and the message of every fault, except those that only follow from another one."""
    faults = error.errors()
    deeper = {fault["loc"][:length] for fault in faults for length in range(len(fault["loc"]))}
    own = [fault for fault in faults if not (fault["type"] == "too_short" and fault["loc"] in deeper)]
    return [describe_fault(model, fault, inside) for fault in own]


def describe_fault(model: type[BaseModel], fault: ErrorDetails, inside: str = "") -> tuple[tuple[int | str, ...], str]:
    """Return the path of a validation fault and one message with the name, the value and what is legal."""
    path = fault["loc"]
    name = ".".join(str(part) for part in path) or "value"
    owner = _find_model(model, path)
    if fault["type"] == "extra_forbidden":
        return path, _unknown_key(model, owner, path)
    if fault["type"] == "missing":
        return path, f"`{name}` is required"
    reason = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error" and isinstance(fault["input"], Mapping):  # a rule between keys, not one key's value
        return path, f"{f'in `{name}`: ' if path else ''}{reason}"
    value = fault["input"]
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    legal = "" if fault["type"] == "value_error" else _legal_range(owner, path)
    return path, f"`{inside}{name}` = {shown} is not legal: {legal or reason}"


def _legal_range(owner: type[BaseModel] | None, path: tuple[int | str, ...]) -> str:
    """Text such as `must be a number >= 0.5 and < 1.0` for a bounded field; empty when the field has no bounds."""
    field = owner.model_fields.get(str(path[-1])) if owner and path else None
    if field is None:
        return ""
    metadata = [*field.metadata, *getattr(field.annotation, "__metadata__", ())]
    for option in getattr(field.annotation, "__args__", ()):
        metadata += getattr(option, "__metadata__", ())
    bounds = limits(metadata)
    kind = "an integer" if int in (field.annotation, *getattr(field.annotation, "__args__", ())) else "a number"
    return f"must be {kind} {bounds}" if bounds else ""


def limits(metadata: Iterable[Any]) -> str:
    """Return the bounds among the constraints of a field, such as `>= 0.5 and < 1.0`; empty if there are none."""
    found = ((sign, getattr(item, name, None)) for item in metadata for name, sign in _LIMITS.items())
    return " and ".join(f"{sign} {bound}" for sign, bound in found if bound is not None)
