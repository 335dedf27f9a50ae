"""Limits of an export as people write them: `pump=5/s`, `0:8`, `last`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.data.spaces import Spaces
from rl_training.deploy.program import Floats, Safety
from rl_training.errors import ConfigError, did_you_mean

_LISTS = ("max_change", "ranges")
_RESOLUTION = 100.0 * float(np.finfo(np.float32).eps)  # of the largest action: smaller changes are off by more than 1 %
_PER = {"step": None, "s": 1.0, "min": 60.0, "h": 3600.0}  # seconds


@dataclass(frozen=True)
class ExportOptions:
    """What an exported policy must keep to.

    `max_change` and `ranges` hold texts such as `5/s`, `pump=5/s`, `pump=0.2/step`, and `0:8`, `pump=0:8`; `dt` is the time
    between two calls in seconds. `on_nan` is `last`, `nan`, or the actions to take, as JSON: a list, or a mapping by name.
    """

    max_change: Sequence[str] = ()
    dt: float | None = None
    ranges: Sequence[str] = ()
    on_nan: str | None = None
    flag_outside: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "ExportOptions":
        """Return options by name; a single text counts as a list, and actions on NaN may be given as they are."""
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            hint = did_you_mean(unknown[0], cls.__dataclass_fields__)
            raise ConfigError(f"`{unknown[0]}` is not an option of an export;{hint or ' see ExportOptions'}")
        texts = {
            name: (value,) if isinstance(value, str) else tuple(value) for name, value in given.items() if name in _LISTS
        }
        other = given.get("on_nan")
        return cls(**{**given, **texts, "on_nan": other if other is None or isinstance(other, str) else json.dumps(other)})

    def texts(self) -> dict[str, Any]:
        """Return the limits as they were given."""
        given = {"max_change": list(self.max_change), "dt": self.dt, "ranges": list(self.ranges), "on_nan": self.on_nan}
        return {name: value for name, value in given.items() if value}

    def safety(self, spaces: Spaces, seen: tuple[Floats, Floats] | None) -> Safety:
        """Return the rules of an export, or a ConfigError with the option that cannot work."""
        if self.flag_outside and seen is None:
            raise ConfigError("--flag-outside needs the range of the observations: name the data with --data PATH")
        low, high = self._bounds(spaces)
        change = self._change(spaces)
        return Safety(low, high, self._fallback(spaces, low, high, change), change, seen if self.flag_outside else None)

    def _bounds(self, spaces: Spaces) -> tuple[Floats, Floats]:
        _check_once(self.ranges, spaces, "--range")
        low, high = spaces.action_low.copy(), spaces.action_high.copy()
        for text in self.ranges:
            columns, value = _named(text, spaces, "--range")
            match = re.fullmatch(r"([^:]+):([^:]+)", value)
            ends = [_number(part) for part in match.groups()] if match else [None]
            if None in ends or not ends[0] <= ends[-1]:  # type: ignore[operator]
                raise ConfigError(f"--range {text!r}: must be LOW:HIGH or NAME=LOW:HIGH, such as pump=0:8")
            for column in columns:
                lowest, highest = spaces.action_low[column], spaces.action_high[column]
                if np.float32(ends[0]) < lowest or np.float32(ends[-1]) > highest:
                    raise ConfigError(
                        f"--range {text!r}: is not inside the range that the policy was trained with, {lowest:g} to "
                        f"{highest:g} for `{spaces.action_name(column)}`; an export can only narrow it"
                    )
                low[column], high[column] = ends[0], ends[-1]
        return low, high

    def _change(self, spaces: Spaces) -> Floats | None:
        if self.dt is not None and not (np.isfinite(self.dt) and self.dt > 0.0):
            raise ConfigError(f"--dt {self.dt:g}: must be the seconds between two calls, more than 0")
        if not self.max_change:
            if self.dt is not None:
                raise ConfigError("--dt is the time between two calls, which only --max-change needs")
            return None
        _check_once(self.max_change, spaces, "--max-change")
        change = np.full(spaces.action_dim, np.inf, dtype=np.float32)
        largest = np.maximum(np.abs(spaces.action_low), np.abs(spaces.action_high))
        for text in self.max_change:
            columns, value = _named(text, spaces, "--max-change")
            amount, slash, unit = value.partition("/")
            number = _number(amount)
            if number is None or number <= 0.0 or not slash or unit not in _PER:
                raise ConfigError(f"--max-change {text!r}: must be such as 5/s, 0.2/step or pump=5/s (per step, s, min or h)")
            seconds = _PER[unit]
            if seconds is not None and self.dt is None:
                raise ConfigError(f"--max-change {text!r}: is per time, so --dt SECONDS between two calls is needed too")
            amount_per_call = number if seconds is None else number * (self.dt or 0.0) / seconds
            whole = spaces.action_high[list(columns)] - spaces.action_low[list(columns)]
            if (amount_per_call >= whole).all():
                raise ConfigError(
                    f"--max-change {text!r}: allows {amount_per_call:g} in a call, but the whole range is {whole.max():g}: it"
                    " limits nothing; check the unit and --dt, or leave it out"
                )
            for column in columns:
                if amount_per_call < _RESOLUTION * largest[column]:
                    raise ConfigError(
                        f"--max-change {text!r}: is {amount_per_call:.2g} in a call, which float32 cannot keep at values of "
                        f"`{spaces.action_name(column)}` up to {largest[column]:g}; limit it where the action is applied"
                    )
                change[column] = amount_per_call
        return change

    def _fallback(self, spaces: Spaces, low: Floats, high: Floats, change: Floats | None) -> Floats | None:
        """The actions on NaN; None is the last action."""
        if self.on_nan == "last" or (self.on_nan is None and change is not None):
            return None
        if self.on_nan in (None, "nan"):
            return np.full(spaces.action_dim, np.nan, dtype=np.float32)
        values = _actions(str(self.on_nan), spaces)
        for column, value in enumerate(values):
            if not low[column] <= value <= high[column]:
                raise ConfigError(
                    f"--on-nan {self.on_nan}: `{spaces.action_name(column)}` = {value:g} is outside {low[column]:g} to "
                    f"{high[column]:g}"
                )
        return values


def _actions(text: str, spaces: Spaces) -> Floats:
    """Actions from JSON: a list, or a mapping by name."""
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        names = [spaces.action_name(column) for column in range(spaces.action_dim)]
        given = [given[name] for name in names] if sorted(given) == sorted(names) else None
    legal = isinstance(given, list) and len(given) == spaces.action_dim
    if not legal or not all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        shape = f"a JSON list of {spaces.action_dim} numbers, or a mapping with a number for each action"
        raise ConfigError(f"--on-nan {text[:60]!r}: must be last, nan, {shape}")
    try:
        return np.asarray([float(value) for value in given], dtype=np.float32)
    except OverflowError:
        raise ConfigError(f"--on-nan {text[:60]!r}: has a number that is too large") from None


def _check_once(texts: Sequence[str], spaces: Spaces, option: str) -> None:
    """Refuse two limits for one action."""
    columns = [column for text in texts for column in _named(text, spaces, option)[0]]
    for column in columns:
        if columns.count(column) > 1:
            raise ConfigError(f"{option}: is given twice for `{spaces.action_name(column)}`; give it once")


def _named(text: str, spaces: Spaces, option: str) -> tuple[Sequence[int], str]:
    """The columns that a text is about, all without a name, and the rest of it."""
    name, equals, value = (part.strip() for part in text.rpartition("="))
    if not equals:
        return range(spaces.action_dim), value
    names = [spaces.action_name(column) for column in range(spaces.action_dim)]
    if name not in names:
        raise ConfigError(
            f"{option} {text!r}: there is no action `{name}`;{did_you_mean(name, names)} there are: {', '.join(names)}"
        )
    return [names.index(name)], value


def _number(text: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
