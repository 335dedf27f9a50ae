"""Environments that are registered as vectorised ones alone, as single environments: each is a vector of one copy.

Copies are reset, stepped and replayed one by one (an ended or frozen one waits while the others go on), which a vector of
several cannot do. A vector of one can, if it leaves an ended episode alone until it is reset.
"""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from rl_training.errors import ConfigError


class OnlyCopy(gymnasium.Env[Any, Any]):
    """The copy in a vectorised environment that has no other."""

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        self.vector = vector
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self.metadata, self.render_mode, self.spec = vector.metadata, vector.render_mode, vector.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observations, _ = self.vector.reset(seed=seed, options=options)
        return self._only(observations), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the copy."""
        observations, rewards, terminated, truncated, _ = self.vector.step(action[None])
        return self._only(observations), rewards[0], terminated[0], truncated[0], {}

    def _only(self, observations: Any) -> Any:
        return next(iter(iterate(self.vector.observation_space, observations)))

    def render(self) -> Any:
        """Return the picture of the copy."""
        frames = self.vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Close the vectorised environment."""
        self.vector.close()


def is_only_vectorised(env_id: str) -> bool:
    """Return whether an id is registered with a vector entry point and no other."""
    spec = gymnasium.registry.get(env_id)
    return spec is not None and spec.entry_point is None and spec.vector_entry_point is not None


def make_only_copy(env_id: str, max_episode_steps: int | None, kwargs: Mapping[str, Any]) -> OnlyCopy:
    """Return a single environment of an id that is only vectorised; a ConfigError if its episodes restart by themselves."""
    spec = copy.deepcopy(gymnasium.registry[env_id])
    spec.max_episode_steps = max_episode_steps or spec.max_episode_steps  # which the environment itself takes care of
    off: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED} if _takes_autoreset_mode(spec) else {}
    vector = gymnasium.make_vec(spec, num_envs=1, vectorization_mode="vector_entry_point", **off, **kwargs)
    mode = vector.metadata.get("autoreset_mode")
    refusal = ""
    if mode != AutoresetMode.DISABLED:
        found = "is not stated" if mode is None else f"is {getattr(mode, 'value', mode)}"
        refusal = f"its autoreset cannot be switched off: let it take `autoreset_mode` (in its metadata it {found})"
    elif vector.num_envs != 1:
        refusal = f"it makes {vector.num_envs} copies where one is asked for, and they cannot be reset one by one"
    if refusal:
        vector.close()
        raise ConfigError(
            f"environment {env_id!r} is only vectorised, and {refusal}; or register single ones (`entry_point`)"
        )
    return OnlyCopy(vector)


def _takes_autoreset_mode(spec: EnvSpec) -> bool:
    creator = spec.vector_entry_point
    made_by = load_env_creator(creator) if isinstance(creator, str) else creator
    return made_by is not None and "autoreset_mode" in inspect.signature(made_by).parameters
