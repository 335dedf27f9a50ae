"""Observations and actions that users pass: one or many, in recorded order or by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_training.data.spaces import Names, indexed_names
from rl_training.data.transforms import Ends, Transforms
from rl_training.errors import ConfigError, did_you_mean

_MAX_LISTED = 12  # names in a message
_BEYOND = 0.1  # of its recorded range, by which a column may leave it: nobody records the very ends
_Column = NDArray[np.float64]  # a number for each column

RowsLike = ArrayLike | Mapping[str, Any] | Sequence[Mapping[str, Any]] | Any
"""Numbers (dim,) or (batch, dim), a mapping from names to numbers or to arrays, a list of mappings, or a DataFrame."""


def rows_of(given: RowsLike, what: str, dim: int, names: Names | None, *, finite: bool = True) -> NDArray[np.float32]:
    """Return rows, (dim,) or (batch, dim), in recorded order; `what` names them in messages, in the singular.

    NaN and inf are refused, unless `finite` is false.
    """
    if isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) for row in given):
        rows = [rows_of(row, what, dim, names, finite=finite) for row in given]
        if any(row.ndim != 1 for row in rows):
            raise ConfigError(f"a list of mappings has one {what} each, with one number for each name")
        return np.stack(rows)
    given = _by_name(given, names) if isinstance(given, Mapping) and names is not None else given
    values = _in_order(given, what, names) if is_named(given) else given
    try:
        array = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{what}s are not an array of numbers: {error}") from None
    if array.ndim not in (1, 2) or array.shape[-1] != dim or array.size == 0:
        raise ConfigError(f"{what}s have shape {array.shape}; ({dim},) or (batch, {dim}) is needed")
    if finite and not np.isfinite(array).all():
        raise ConfigError(f"{what}s hold NaN or inf")
    return array


def _by_name(given: Mapping[str, Any], names: Names) -> Mapping[str, Any]:
    """A nested observation, as an environment returns it, by the names its numbers have in the policy; others as they are."""
    leaves = dict(_leaves(given, names))
    if not any(key not in names and set(indexed_names(key, np.shape(value))) <= set(names) for key, value in leaves.items()):
        return leaves
    found: dict[str, Any] = {}
    for key, value in leaves.items():
        parts = indexed_names(key, np.shape(value))
        found |= dict(zip(parts, np.reshape(value, -1), strict=True)) if set(parts) <= set(names) else {key: value}
    return found


def _leaves(given: Mapping[str, Any], names: Names, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested maps and tuples by their paths; what has a name of the policy is not taken apart."""
    for key, value in given.items():
        own = f"{path}.{key}" if path else str(key)
        parts = {str(number): one for number, one in enumerate(value)} if isinstance(value, tuple) else value
        if isinstance(parts, Mapping) and own not in names:
            yield from _leaves(parts, names, own)
        else:
            yield own, value


def _keys(given: Any) -> list[Any]:
    """The names that a mapping, a DataFrame or one of its rows has."""
    return list(given.columns if hasattr(given, "columns") else given.keys())


def is_named(given: Any) -> bool:
    """Return whether numbers come with names: a mapping, a table or a row of one."""
    if isinstance(given, Mapping):
        return True
    has_keys = hasattr(given, "columns") or hasattr(given, "keys")
    return has_keys and any(isinstance(key, str) for key in _keys(given))  # a frame without names has numbers as columns


def _in_order(given: Any, what: str, names: Names | None) -> NDArray[np.float64]:
    """The columns of a mapping or table in recorded order; a mapping has no others, a table may."""
    if names is None:
        raise ConfigError(f"this policy was trained without names of its {what}s; pass numbers in the recorded order")
    keys = _keys(given)
    missing = [name for name in names if name not in keys]
    unknown = [key for key in keys if key not in names] if missing or isinstance(given, Mapping) else []
    if isinstance(given, Mapping) and unknown:
        close = did_you_mean(str(unknown[0]), missing or names)
        raise ConfigError(f"unknown {what} {unknown[0]!r}.{close} There are {_listed(names)}")
    if missing:
        close = did_you_mean(missing[0], [str(key) for key in unknown])
        raise ConfigError(f"{what} `{missing[0]}` is missing.{close} Needed are {_listed(names)}")
    columns = {name: _numbers(given[name], name, what) for name in names}
    lengths = {name: len(column) for name, column in columns.items() if column.ndim}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"`{name}` {length}" for name, length in lengths.items())
        raise ConfigError(f"the {what}s differ in length: {listed}")
    return np.stack(np.broadcast_arrays(*columns.values()), axis=-1)


def _listed(names: Names) -> str:
    more = f", and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _numbers(value: Any, name: str, what: str) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(value)
    except (TypeError, ValueError, OverflowError):  # ragged lists, for example
        numbers = np.asarray(None)
    if numbers.dtype.kind not in "fiu" or numbers.ndim > 1:
        shown = repr(value).splitlines()[0][:60]
        raise ConfigError(f"{what} `{name}` = {shown} is not a number, nor one number per row")
    return numbers.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Familiar:
    """What is known of the observations that a policy learned from: no column is told that stays where it was recorded.

    `seen` is the recorded range, where there is one. Otherwise, and where single outliers widened it, far is many standard
    deviations.
    """

    transforms: Transforms
    seen: Ends | None

    @cached_property
    def _range(self) -> tuple[_Column, _Column]:
        """The recorded range and a little more; without one everything."""
        if self.seen is None:
            everything = np.full(len(self.transforms.observation_mean), np.inf)
            return -everything, everything
        low, high = (end.astype(np.float64) for end in self.seen)
        slack = np.where(low < high, _BEYOND * (high - low), _never_changed(high))
        return low - slack, high + slack

    @cached_property
    def _box(self) -> tuple[_Column, _Column]:
        """What each column may be: within its range, and not too many standard deviations from its mean."""
        mean, std = self.transforms.observation_mean.astype(np.float64), self.transforms.observation_std
        reach = np.where(np.isinf(std), _never_changed(mean), self.transforms.observation_limit * std)
        return np.maximum(mean - reach, self._range[0]), np.minimum(mean + reach, self._range[1])

    def outside(self, rows: NDArray[np.float32]) -> dict[int, str]:
        """Return for each column that is outside the value that is farthest out, and what is known of the data."""
        low, high = self._box
        if ((rows >= low) & (rows <= high)).all():  # nearly always, and a controller asks many times a second
            return {}
        beyond = np.maximum(low - rows, rows - high)
        found = {
            column: rows[beyond[:, column].argmax(), column] for column in np.flatnonzero((beyond > 0.0).any(axis=0)).tolist()
        }
        return {column: f"{value:g}{self._known(column, value)}" for column, value in found.items()}

    def _known(self, column: int, value: float) -> str:
        mean, std = self.transforms.observation_mean[column], self.transforms.observation_std[column]
        if np.isinf(std):
            return f", and was {mean:.4g} in all of the data: the policy does not react to it"
        low, high = self._range
        if self.seen is not None and not low[column] <= value <= high[column]:
            first, last = (end[column] for end in self.seen)
            return f", and was {first:g} to {last:g} in the data that it learned from"
        return f" is {abs(value - mean) / std:.0f} standard deviations from the data ({mean:.4g} +- {std:.3g})"


def _never_changed(values: _Column) -> _Column:
    """How far a column that never changed may be away: rounding."""
    return 1e-4 * np.abs(values) + 1e-6
