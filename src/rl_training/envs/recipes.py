"""Dataset recipes: data generated in the configured environment, byte-identical for the same recipe."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training import rng
from rl_training.config.blocks import DatasetConfig
from rl_training.config.environment import EnvLike
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.spaces import Spaces
from rl_training.envs.collecting.behaviours import action_noise, clipped, uniform_actions
from rl_training.envs.controllers import scripted_controller
from rl_training.envs.environments import Limits, close_env, episode_seeds, infer_env_spaces, make_env, reset_env, step_env
from rl_training.errors import ConfigError, did_you_mean

Policy = Callable[[NDArray[Any], int], NDArray[np.float32]]
"""A behaviour: (observation, row number) -> real action."""


def _random_policy(_env_id: str, spaces: Spaces, recipe: DatasetConfig) -> Policy:
    """Independent uniform actions over the bounds."""
    draws = rng.uniforms([recipe.seed], "recipe/random", torch.arange(recipe.size), (spaces.learned_dim,))[0].numpy()
    actions = uniform_actions(draws, spaces)
    return lambda _observation, row: actions[row]


def _scripted_policy(env_id: str, spaces: Spaces, recipe: DatasetConfig) -> Policy:
    """The environment's scripted controller plus Gaussian noise, clipped to the bounds."""
    controller = scripted_controller(env_id)
    draws = rng.normals([recipe.seed], "recipe/scripted", torch.arange(recipe.size), (spaces.action_dim,))[0].numpy()
    noise = action_noise(draws, recipe.noise, spaces)
    return lambda observation, row: clipped(controller(observation) + noise[row], spaces)


_ROWS_PER_CHECK = 100

RECIPES: Final = MappingProxyType({"random": _random_policy, "scripted": _scripted_policy})


def make_dataset(env: EnvLike, recipe: DatasetConfig, check: Callable[[], None] = lambda: None) -> TransitionDataset:
    """Return the dataset of a recipe: a function of the environment, the recipe's settings and its seed alone.

    Episode e has its own reset seed, and row r its own random numbers, so that a longer recipe begins with the shorter one.
    Since the number of a row depends on where the episodes before it ended, they are generated one after the other.
    `check` is called every 100 rows, however long an episode is, and may raise to stop.
    """
    kind = str(recipe.kind)
    if kind not in RECIPES:
        raise ConfigError(f"unknown recipe {recipe.kind!r}.{did_you_mean(kind, RECIPES)} There are: {', '.join(RECIPES)}")
    spaces = infer_env_spaces(env)
    policy = RECIPES[kind](str(env), spaces, recipe)
    size, width = recipe.size, spaces.observation_dim
    observations, next_observations = np.empty((2, size, width), dtype=np.float32)
    actions = np.empty((size, spaces.action_dim), dtype=np.float32)
    rewards = np.empty(size, dtype=np.float32)
    terminals, timeouts = np.zeros((2, size), dtype=bool)
    made, row, seeds = make_env(env), 0, episode_seeds(recipe.seed, f"recipe/{recipe.kind}")
    try:
        limits = Limits(made)
        while row < size:
            observation, ended = reset_env(made, env, next(seeds), limits.shape), False
            while not ended and row < size:
                if row % _ROWS_PER_CHECK == 0:
                    check()
                actions[row], observations[row] = policy(observation, row), observation
                observation, rewards[row], terminal, timeout = step_env(made, env, actions[row], limits)
                next_observations[row] = observation
                if terminal or timeout:
                    ended, terminals[row], timeouts[row] = True, terminal, timeout
                row += 1
    finally:
        close_env(made, env)
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
        source=f"recipe {recipe.kind} on {env}",
    )
