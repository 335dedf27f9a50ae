"""Dataset recipes: the same recipe gives byte-identical data, made from the configured environment."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training import rng
from rl_training.data.controllers import scripted_controller
from rl_training.data.environments import infer_env_spaces, make_env, reset_env, reset_seeds, step_env
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.spaces import Spaces
from rl_training.errors import ConfigError, did_you_mean

Policy = Callable[[NDArray[Any], int], NDArray[np.float32]]
"""A behaviour: (observation, row number) -> real action."""


class Recipe(Protocol):
    """What a recipe says."""

    @property
    def kind(self) -> str:
        """Name of the behaviour."""

    @property
    def size(self) -> int:
        """Rows to make."""

    @property
    def seed(self) -> int:
        """Seed of resets, actions and noise; independent of the training seeds."""

    @property
    def noise(self) -> float:
        """Standard deviation of action noise, in units of half the action range."""


def _random_policy(_env_id: str, spaces: Spaces, recipe: Recipe) -> Policy:
    """Independent uniform actions over the bounds."""
    draws = rng.uniforms([recipe.seed], "recipe/random", torch.arange(recipe.size), (spaces.action_dim,))[0].numpy()
    actions = spaces.denormalize_actions(draws * 2.0 - 1.0)
    return lambda _observation, row: actions[row]


def _scripted_policy(env_id: str, spaces: Spaces, recipe: Recipe) -> Policy:
    """The environment's scripted controller plus Gaussian noise, clipped to the bounds."""
    controller = scripted_controller(env_id)
    draws = rng.normals([recipe.seed], "recipe/scripted", torch.arange(recipe.size), (spaces.action_dim,))[0].numpy()
    noise = recipe.noise * draws * (spaces.action_high - spaces.action_low) / 2.0
    return lambda observation, row: np.clip(controller(observation) + noise[row], spaces.action_low, spaces.action_high)


RECIPES: Final = MappingProxyType({"random": _random_policy, "scripted": _scripted_policy})


def make_dataset(env_id: str, recipe: Recipe, check: Callable[[], None] = lambda: None) -> TransitionDataset:
    """Return the dataset of a recipe; `check` is called once per episode and may raise to stop."""
    if recipe.kind not in RECIPES:
        raise ConfigError(
            f"unknown recipe {recipe.kind!r}.{did_you_mean(recipe.kind, RECIPES)} There are: {', '.join(RECIPES)}"
        )
    spaces = infer_env_spaces(env_id)
    policy = RECIPES[recipe.kind](env_id, spaces, recipe)
    size, width = recipe.size, spaces.observation_dim
    observations, next_observations = np.empty((2, size, width), dtype=np.float32)
    actions = np.empty((size, spaces.action_dim), dtype=np.float32)
    rewards = np.empty(size, dtype=np.float32)
    terminals, timeouts = np.zeros((2, size), dtype=bool)
    env, row, episode = make_env(env_id), 0, 0
    try:
        while row < size:
            check()
            observation = reset_env(env, env_id, reset_seeds(recipe.seed, f"recipe/{recipe.kind}", episode, 1)[0])
            ended, episode = False, episode + 1
            while not ended and row < size:
                actions[row] = policy(observation, row)
                observations[row] = observation
                observation, reward, terminals[row], timeouts[row] = step_env(env, env_id, actions[row])
                next_observations[row], rewards[row] = observation, reward
                ended = bool(terminals[row] or timeouts[row])
                row += 1
    finally:
        env.close()
    timeouts[-1] = not terminals[-1]  # the end of the data cuts the last episode
    return TransitionDataset.from_dict(
        {
            "observations": observations,
            "actions": actions,
            "rewards": rewards,
            "next_observations": next_observations,
            "terminals": terminals,
            "timeouts": timeouts,
        },
        action_low=spaces.action_low,
        action_high=spaces.action_high,
        source=f"recipe {recipe.kind} on {env_id}",
    )
