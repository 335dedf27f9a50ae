"""The supported spaces: flat vector observations and continuous, bounded actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError, DatasetError

SUPPORTED = "observations must be flat boxes (or nested ones, in a Dict or Tuple), actions bounded, continuous boxes"
Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Spaces:
    """Sizes of observations and actions, the real bounds of the actions, and the names of the columns where known.

    An action column with equal bounds is held at its value: a learner does not see it, and every command contains it.
    """

    observation_dim: int
    action_dim: int
    action_low: NDArray[np.float32]  # (action_dim,)
    action_high: NDArray[np.float32]
    observation_names: Names | None = None
    action_names: Names | None = None

    def __post_init__(self) -> None:
        for name, bound in (("low", self.action_low), ("high", self.action_high)):
            if bound.shape != (self.action_dim,) or not np.isfinite(bound).all():
                raise ConfigError(f"action bound `{name}` must be {self.action_dim} finite numbers, got {bound.tolist()}")
        if (self.action_low > self.action_high).any():
            low, high = self.action_low.tolist(), self.action_high.tolist()
            raise ConfigError(f"action bounds must be low <= high, got {low} {high}")

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Which action columns can take more than one value, (action_dim,)."""
        return np.asarray(self.action_low < self.action_high)

    @cached_property
    def learned_dim(self) -> int:
        """The number of action columns that a learner sees: those that are not held."""
        return int(self.free.sum())

    @cached_property
    def _center(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The middle of the bounds and half their distance, (action_dim,) each."""
        return (self.action_high + self.action_low) / 2.0, (self.action_high - self.action_low) / 2.0

    def action_name(self, column: int) -> str:
        """Return the name of an action column, or `action 3` where names are not known."""
        return self.action_names[column] if self.action_names else f"action {column}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "action_low": self.action_low.tolist(),
            "action_high": self.action_high.tolist(),
            "observation_names": None if self.observation_names is None else list(self.observation_names),
            "action_names": None if self.action_names is None else list(self.action_names),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Spaces":
        """Return the spaces that `to_json` wrote; a checkpoint of an earlier version has no names."""
        low, high = (np.asarray(values[key], dtype=np.float32) for key in ("action_low", "action_high"))
        found = (values.get(key) for key in ("observation_names", "action_names"))
        names = (None if one is None else tuple(str(name) for name in one) for one in found)
        return cls(int(values["observation_dim"]), int(values["action_dim"]), low, high, *names)

    def unit_actions(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Map real actions to [-1, 1] column by column; held columns become 0."""
        middle, half = self._center
        scaled = (actions - middle) / np.where(self.free, half, 1.0)
        return np.asarray(np.where(self.free, scaled, 0.0), dtype=np.float32)

    def outside(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which real actions lie outside the bounds by more than rounding, (..., action_dim)."""
        half = (self.action_high - self.action_low) / 2.0
        slack = 1e-3 * np.where(self.free, half, np.maximum(1.0, np.abs(self.action_low)))
        return np.asarray((actions < self.action_low - slack) | (actions > self.action_high + slack))

    def normalize_actions(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Map real actions (..., action_dim) to those of a learner, (..., learned_dim) in [-1, 1]."""
        unit = self.unit_actions(actions)
        return unit if self.free.all() else unit[..., self.free]

    def denormalize_actions(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Map a learner's actions (..., learned_dim) to real ones (..., action_dim), never outside the bounds."""
        middle, half = self._center
        unit = actions
        if self.learned_dim < self.action_dim:
            unit = np.zeros((*actions.shape[:-1], self.action_dim), dtype=np.float32)
            unit[..., self.free] = actions
        bounded = np.minimum(np.maximum(unit * half + middle, self.action_low), self.action_high)  # faster than np.clip
        return np.asarray(bounded, dtype=np.float32)


def indexed_names(path: str, shape: Sequence[int]) -> list[str]:
    """Return the name of each number of an array in a nested observation: `goal` alone, `goal[0]`, or `matrix[0,2]`."""
    if tuple(shape) in ((), (1,)):
        return [path]
    return [f"{path}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]


def common_names(parts: Sequence[Names | None], field: str, sources: Sequence[str]) -> Names | None:
    """Return the names of the columns if all parts have the same, else None; the same names in another order are refused."""
    first = parts[0]
    for other, source in zip(parts[1:], sources[1:], strict=True):
        if first is not None and other is not None and first != other and set(first) == set(other):
            column = next(k for k, name in enumerate(first) if name != other[k])
            raise DatasetError(
                f"{source}: its {field} are those of {sources[0]} in another order: column {column} is `{other[column]}`, "
                f"not `{first[column]}`; name them in one order"
            )
    return first if all(names == first for names in parts) else None


def spaces_of(observation_space: Any, action_space: Any, where: str, names: Names | None = None) -> Spaces:
    """Return the sizes and bounds of Gymnasium spaces, or refuse a space by name."""
    from gymnasium.spaces import Box

    if not isinstance(action_space, Box) or action_space.dtype.kind != "f":
        raise ConfigError(f"{where}: action space {action_space} is not supported; {SUPPORTED}")
    if not isinstance(observation_space, Box) or len(observation_space.shape) != 1:
        raise ConfigError(f"{where}: observation space {observation_space} is not supported; {SUPPORTED}")
    if len(action_space.shape) != 1 or not action_space.is_bounded():
        raise ConfigError(f"{where}: action space {action_space} is not supported; {SUPPORTED}")
    low, high = (np.asarray(bound, dtype=np.float32) for bound in (action_space.low, action_space.high))
    return Spaces(observation_space.shape[0], action_space.shape[0], low, high, names)
