"""Observations of nested boxes as one flat vector: keys of a Dict in alphabetical order, items of a Tuple in turn."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Tuple
from numpy.typing import NDArray

from rl_training.data.spaces import indexed_names
from rl_training.errors import ConfigError


class FlatObservation(gymnasium.ObservationWrapper):
    """Makes the observations of an environment flat; `observation_names` says what each number is."""

    def __init__(self, env: Any, where: str) -> None:
        super().__init__(env)
        leaves = list(_leaves(env.observation_space, "", where))
        self.observation_names = tuple(name for path, box in leaves for name in indexed_names(path, box.shape))
        self.observation_space = Box(
            np.concatenate([box.low.reshape(-1).astype(np.float32) for _, box in leaves]),
            np.concatenate([box.high.reshape(-1).astype(np.float32) for _, box in leaves]),
            dtype=np.float32,
        )

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """Return the numbers of a nested observation in their order."""
        parts = [np.asarray(part, dtype=np.float32).reshape(-1) for part in _parts(observation)]
        return np.concatenate(parts)


def is_nested(space: Any) -> bool:
    """Return whether a space is a Dict or Tuple, to be flattened."""
    return isinstance(space, Dict | Tuple)


def _leaves(space: Any, path: str, where: str) -> Iterator[tuple[str, Box]]:
    """Yield the boxes of a space with their paths."""
    if isinstance(space, Dict):
        for key in sorted(space.spaces):
            yield from _leaves(space.spaces[key], f"{path}.{key}" if path else str(key), where)
    elif isinstance(space, Tuple):
        for number, one in enumerate(space.spaces):
            yield from _leaves(one, f"{path}.{number}" if path else str(number), where)
    elif isinstance(space, Box) and len(space.shape) < 3:
        yield path, space
    else:
        what = "an image" if isinstance(space, Box) else str(space)
        raise ConfigError(f"{where}: observation `{path}` is {what}; nested observations must be boxes of numbers")


def _parts(observation: Any) -> Iterator[Any]:
    """Yield the arrays of a nested observation in their order."""
    if isinstance(observation, dict):
        for key in sorted(observation):
            yield from _parts(observation[key])
    elif isinstance(observation, tuple):
        for one in observation:
            yield from _parts(one)
    else:
        yield observation
