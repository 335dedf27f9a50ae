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
        return np.concatenate(list(_parts(self.env.observation_space, observation)))


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


def _parts(space: Any, observation: Any) -> Iterator[NDArray[np.float32]]:
    """Yield the numbers of a nested observation box by box, in their order; raise if its space describes another."""
    if isinstance(space, Dict):
        if not isinstance(observation, dict) or set(observation) != set(space.spaces):
            given = sorted(observation) if isinstance(observation, dict) else type(observation).__name__
            raise ValueError(f"the observation has {given}, its space {sorted(space.spaces)}")
        for key in sorted(space.spaces):
            yield from _parts(space.spaces[key], observation[key])
    elif isinstance(space, Tuple):
        for one, part in zip(space.spaces, observation, strict=True):
            yield from _parts(one, part)
    else:
        values = np.asarray(observation, dtype=np.float32)
        if values.shape != space.shape:
            raise ValueError(f"a part of the observation has shape {values.shape}, its space {space.shape}")
        yield values.reshape(-1)
