"""The space file: which knobs a study varies, and between which values; every end is checked against the config. No torch.

expectile: {low: 0.6, high: 0.95}
beta: {low: 1, high: 20, log: true}
hidden_sizes: {choices: [[64, 64], [256, 256]]}

A bare name is a knob of `algo_kwargs`; a block of it has dots, such as `reward.scale`.
"""

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.config.yaml_loader import parse_yaml
from rl_training.errors import ConfigError, did_you_mean

_REWARD = ("algo_kwargs", "reward")
_ROOTS = ("algo_kwargs", "learning_rate_schedule")  # what may be tuned; the rest says where and how long a run goes
_KEYS = ("low", "high", "log", "choices")
_LOOKS = "must look like {low: 0.6, high: 0.95}, {low: 1, high: 20, log: true} or {choices: [1, 2, 3]}"


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included."""

    low: float
    high: float
    log: bool = False  # whether equal ratios are equally likely, rather than equal differences
    whole: bool = False

    def points(self) -> list[Any]:
        """Return the values that must be legal."""
        return [self.low, self.high]

    def plain(self) -> dict[str, Any]:
        """Return the entry of a space file."""
        return {"low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Choices:
    """Listed values of any kind."""

    values: tuple[Any, ...]

    def points(self) -> list[Any]:
        """Return the values that must be legal."""
        return list(self.values)

    def plain(self) -> dict[str, Any]:
        """Return the entry of a space file."""
        return {"choices": list(self.values)}

    @property
    def labels(self) -> list[Any]:
        """The values as a search may know them: what is neither a number, a word nor null is its JSON."""
        return [label(value) for value in self.values]


def label(value: Any) -> Any:
    """Return a value as a search may know it: a list or block as its JSON."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


@dataclass(frozen=True)
class Space:
    """The knobs that a study varies, by their names in the file."""

    knobs: Mapping[str, Range | Choices]

    def plain(self) -> dict[str, Any]:
        """Return the space as a file has it."""
        return {name: knob.plain() for name, knob in self.knobs.items()}

    def value(self, name: str, found: Any) -> Any:
        """Return the value of a knob for what a search knows it by."""
        knob = self.knobs[name]
        return knob.values[knob.labels.index(found)] if isinstance(knob, Choices) else found

    def own_values(self, config: RunConfig[Any]) -> tuple[dict[str, Any], list[str]]:
        """Return what a search would call the config's own values, and the knobs whose own value the space does not hold."""
        own = {name: label(_own(config, name)) for name in self.knobs}
        return own, [name for name, knob in self.knobs.items() if not _holds(knob, own[name])]


def _holds(knob: Range | Choices, value: Any) -> bool:
    if isinstance(knob, Choices):
        return any(type(value) is type(one) and value == one for one in knob.labels)
    return isinstance(value, int | float) and knob.low <= value <= knob.high


def _own(config: RunConfig[Any], name: str) -> Any:
    """The config's own value of a knob; a scale of rewards that follows the data is no number."""
    follows = path_of(name)[:-1] == _REWARD and config.algo_kwargs.reward.is_automatic
    return "auto" if follows else setting(config.record(), name)


def path_of(name: str) -> tuple[str, ...]:
    """Return where the config has a knob of a space file."""
    parts = tuple(name.split("."))
    return parts if parts[0] in _ROOTS else ("algo_kwargs", *parts)


def setting(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of a knob in a resolved config; None where a block of it is not set."""
    found: Any = record
    for part in path_of(name):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def changed(record: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resolved config with other values of knobs."""
    result = deepcopy(dict(record))
    for name, value in settings.items():
        *blocks, last = path_of(name)
        group = result
        for block in blocks:
            if not isinstance(group.get(block), dict):
                group[block] = {}
            group = group[block]
        group[last] = value
        if tuple(blocks) == _REWARD and group.get("normalize") == "auto" and last != "normalize":
            group["normalize"] = False  # the scale is this one, also if it is 1
    return result


def read_space(path: str | Path, config: RunConfig[Any]) -> Space:
    """Return the space of a file, or one ConfigError with a line for every fault, each with the line in the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    values, lines = parse_yaml(text, str(path))
    return make_space(values, config, str(path), lines)


def make_space(values: Any, config: RunConfig[Any], where: str, lines: Mapping[Any, int] | None = None) -> Space:
    """Return the space of plain values, all checked against the config."""
    if not isinstance(values, dict) or not values:
        raise ConfigError(f"{where}: must be a mapping from knobs to ranges, such as expectile: {{low: 0.6, high: 0.95}}")
    record, knobs, faults = config.record(), {}, []
    for name, entry in values.items():
        try:
            knobs[name] = _checked(name, entry, record, f"{where}:{lines[name,]}" if lines else where)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    _refuse_two_names(knobs, where)
    return Space(knobs)


def _refuse_two_names(knobs: Mapping[str, Any], where: str) -> None:
    places: dict[tuple[str, ...], str] = {}
    for name in knobs:
        if (other := places.setdefault(path_of(name), name)) != name:
            raise ConfigError(f"{where}: `{other}` and `{name}` are the same knob")


def _checked(name: str, entry: Any, record: Mapping[str, Any], where: str) -> Range | Choices:
    """One entry, after checking that the config takes every value that can come of it."""
    if path_of(name)[:2] == ("algo_kwargs", "dataset"):
        raise ConfigError(f"{where}: `{name}` is no knob: trials on other data cannot be compared")
    first = name.partition(".")[0]
    if first in record and first not in (*_ROOTS, *record["algo_kwargs"]):
        option = "--seeds" if first in ("seed", "seeds") else f"--set {name}=..."
        raise ConfigError(
            f"{where}: `{name}` is no knob, and a space holds knobs alone: give it to all trials, with {option}"
        )
    knob = _entry(name, entry, setting(record, name), where)
    for point in knob.points():
        make_config(changed(record, {name: point}), where)
    return knob


def _entry(name: str, entry: Any, own: Any, where: str) -> Range | Choices:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: `{name}` {_LOOKS}")
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(f"{where}: unknown key `{name}.{key}`.{did_you_mean(str(key), _KEYS)} `{name}` {_LOOKS}")
    if set(entry) == {"choices"}:
        return _choices(name, entry["choices"], where)
    if not {"low", "high"} <= set(entry) or "choices" in entry:
        raise ConfigError(f"{where}: `{name}` {_LOOKS}")
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    numbers = all(type(end) in (int, float) and math.isfinite(end) for end in (low, high))
    if not numbers or not low < high:
        raise ConfigError(f"{where}: `{name}`: low = {low!r} and high = {high!r} must be numbers, low below high")
    if not isinstance(log, bool):
        raise ConfigError(f"{where}: `{name}.log` = {log!r} is not legal: must be true or false")
    if log and low <= 0:
        raise ConfigError(f"{where}: `{name}`: low = {low!r} must be above zero where log is true")
    if type(own) is not int:
        return Range(float(low), float(high), log)
    if not all(isinstance(end, int) for end in (low, high)):
        raise ConfigError(f"{where}: `{name}` takes whole numbers: low = {low!r} and high = {high!r} must be such")
    return Range(low, high, log, whole=True)


def _choices(name: str, values: Any, where: str) -> Choices:
    if not isinstance(values, list) or len(values) < 2:
        raise ConfigError(f"{where}: `{name}.choices` = {values!r} is not legal: must be a list of at least two values")
    seen = [json.dumps(value, sort_keys=True) for value in values]
    if len(set(seen)) != len(seen):
        raise ConfigError(f"{where}: `{name}.choices` has the same value twice")
    return Choices(tuple(values))
