"""Scripted controllers: behaviour worth learning from, without a trained policy."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import ConfigError

Controller = Callable[[NDArray[Any]], NDArray[np.float32]]


def pendulum_swing_up(observation: NDArray[Any]) -> NDArray[np.float32]:
    """Return the torque that swings `Pendulum-v1` up by pumping energy and balances it with a linear law near the top."""
    cosine, sine, speed = (float(value) for value in observation)
    angle = float(np.arctan2(sine, cosine))  # 0 is upright
    # With m = l = 1 and g = 10 the energy is speed^2 / 6 + 5 cos(angle), and 5 when resting upright.
    missing_energy = 5.0 - (speed * speed / 6.0 + 5.0 * cosine)
    if cosine > 0.85 and abs(missing_energy) < 1.5:
        torque = -(12.0 * angle + 3.0 * speed)
    else:
        torque = 2.0 * np.sign(missing_energy * speed) if abs(speed) > 1e-3 else 2.0
    return np.array([min(max(torque, -2.0), 2.0)], dtype=np.float32)


CONTROLLERS: Final = MappingProxyType({"Pendulum-v1": pendulum_swing_up})


def scripted_controller(env_id: str) -> Controller:
    """Return the controller written for an environment."""
    if env_id not in CONTROLLERS:
        raise ConfigError(f"no scripted controller for {env_id!r}; there is one for {', '.join(CONTROLLERS)}")
    return CONTROLLERS[env_id]
