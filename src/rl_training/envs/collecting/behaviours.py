"""Behaviours to collect data with: random actions, a scripted controller, a trained policy."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.algorithms.learner import Learner
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.controllers import Controller

LANES = 32  # rows of every batch that a policy acts on, since the last bit of a product depends on its shape


class Behaviour(ABC):
    """Acts on observations and random numbers alone, so that an action does not depend on what happens beside it."""

    def __init__(self, spaces: Spaces, numbers: int) -> None:
        self.spaces = spaces  # of its actions
        self.numbers = numbers  # random numbers that a step takes

    def draw(self, seed: int, stream: str, steps: Tensor) -> NDArray[np.float32]:
        """Return the random numbers of some steps, (steps, numbers)."""
        return rng.normals([seed], stream, steps, (self.numbers,))[0].numpy()

    @abstractmethod
    def actions(
        self, observations: NDArray[np.float32], numbers: NDArray[np.float32], lanes: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Return real actions (rows, action_dim) for observations (rows, observation_dim), each row in a lane of its own."""


class RandomBehaviour(Behaviour):
    """Independent uniform actions over the bounds."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__(spaces, spaces.learned_dim)

    def draw(self, seed: int, stream: str, steps: Tensor) -> NDArray[np.float32]:
        """Return uniforms in [0, 1)."""
        return rng.uniforms([seed], stream, steps, (self.numbers,))[0].numpy()

    def actions(
        self, observations: NDArray[np.float32], numbers: NDArray[np.float32], lanes: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Return the numbers as actions."""
        del observations, lanes
        return uniform_actions(numbers, self.spaces)


class ScriptedBehaviour(Behaviour):
    """A controller plus Gaussian noise in units of half the action range, clipped to the bounds."""

    def __init__(self, controller: Controller, spaces: Spaces, noise: float) -> None:
        super().__init__(spaces, spaces.action_dim)
        self._controller, self._noise = controller, noise

    def actions(
        self, observations: NDArray[np.float32], numbers: NDArray[np.float32], lanes: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Return the controller's actions with noise."""
        del lanes
        chosen = np.stack([self._controller(observation) for observation in observations])
        return clipped(chosen + action_noise(numbers, self._noise, self.spaces), self.spaces)


class PolicyBehaviour(Behaviour):
    """A solo policy: its mean action or, if `stochastic`, a sample, plus Gaussian noise in units of half its range."""

    def __init__(
        self,
        learner: Learner[Any, Any],
        spaces: Spaces,
        transforms: Transforms,
        *,
        noise: float = 0.0,
        stochastic: bool = False,
    ) -> None:
        super().__init__(spaces, 2 * learner.model.action_dim)
        self._learner, self._transforms, self._noise, self._stochastic = learner, transforms, noise, stochastic

    def actions(
        self, observations: NDArray[np.float32], numbers: NDArray[np.float32], lanes: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Return actions within the bounds that the policy was trained with."""
        model = self._learner.model
        seen = np.zeros((1, LANES, model.observation_dim), dtype=np.float32)
        draws = np.zeros((1, LANES, model.action_dim), dtype=np.float32)
        noise, draws[0, lanes] = np.split(numbers, 2, axis=1)
        seen[0, lanes] = self._transforms.observations(observations)
        sample = torch.from_numpy(draws).to(model.device) if self._stochastic else None
        unit = model.act(torch.from_numpy(seen).to(model.device), sample)[0].cpu().numpy()[lanes]
        return self.spaces.denormalize_actions(np.clip(unit + np.float32(self._noise) * noise, -1.0, 1.0))


def uniform_actions(draws: NDArray[np.float32], spaces: Spaces) -> NDArray[np.float32]:
    """Return real actions for uniforms in [0, 1), (..., learned_dim)."""
    return spaces.denormalize_actions(draws * 2.0 - 1.0)


def action_noise(draws: NDArray[np.float32], noise: float, spaces: Spaces) -> NDArray[np.float32]:
    """Return noise in real units for standard normals (..., action_dim); `noise` is in units of half the range."""
    return np.asarray(noise * draws * (spaces.action_high - spaces.action_low) / 2.0, dtype=np.float32)


def clipped(actions: NDArray[np.float32], spaces: Spaces) -> NDArray[np.float32]:
    """Return real actions inside the bounds."""
    return np.minimum(np.maximum(actions, spaces.action_low), spaces.action_high)
