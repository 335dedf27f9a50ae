"""The supported spaces: flat vector observations and continuous, bounded actions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError

SUPPORTED = "only flat `Box` observations and bounded, continuous `Box` actions are supported"


@dataclass(frozen=True, eq=False)
class Spaces:
    """Sizes of observations and actions, and the real bounds of the actions."""

    observation_dim: int
    action_dim: int
    action_low: NDArray[np.float32]  # (action_dim,)
    action_high: NDArray[np.float32]

    def __post_init__(self) -> None:
        for name, bound in (("low", self.action_low), ("high", self.action_high)):
            if bound.shape != (self.action_dim,) or not np.isfinite(bound).all():
                raise ConfigError(f"action bound `{name}` must be {self.action_dim} finite numbers, got {bound.tolist()}")
        if not (self.action_low < self.action_high).all():
            raise ConfigError(f"action bounds must be low < high, got {self.action_low.tolist()} {self.action_high.tolist()}")

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "action_low": self.action_low.tolist(),
            "action_high": self.action_high.tolist(),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Spaces":
        """Return the spaces that `to_json` wrote."""
        low, high = (np.asarray(values[key], dtype=np.float32) for key in ("action_low", "action_high"))
        return cls(int(values["observation_dim"]), int(values["action_dim"]), low, high)

    def normalize_actions(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Map real actions to [-1, 1]."""
        middle, half = (self.action_high + self.action_low) / 2.0, (self.action_high - self.action_low) / 2.0
        return np.asarray((actions - middle) / half, dtype=np.float32)

    def denormalize_actions(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Map actions in [-1, 1] to the real bounds, never outside them."""
        middle, half = (self.action_high + self.action_low) / 2.0, (self.action_high - self.action_low) / 2.0
        return np.asarray(np.clip(actions * half + middle, self.action_low, self.action_high), dtype=np.float32)


def spaces_of(observation_space: Any, action_space: Any, where: str) -> Spaces:
    """Return the sizes and bounds of Gymnasium spaces, or refuse a space by name."""
    from gymnasium.spaces import Box

    if not isinstance(action_space, Box) or action_space.dtype.kind != "f":
        raise ConfigError(f"{where}: action space {action_space} is not supported; {SUPPORTED}")
    if not isinstance(observation_space, Box) or len(observation_space.shape) != 1:
        raise ConfigError(f"{where}: observation space {observation_space} is not supported; {SUPPORTED}")
    if len(action_space.shape) != 1 or not action_space.is_bounded():
        raise ConfigError(f"{where}: action space {action_space} is not supported; {SUPPORTED}")
    low, high = (np.asarray(bound, dtype=np.float32) for bound in (action_space.low, action_space.high))
    return Spaces(observation_space.shape[0], action_space.shape[0], low, high)
