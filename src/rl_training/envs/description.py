"""What an environment is like: spaces, speed, whether its episodes repeat, and what training would refuse."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training import rng
from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.envs.environments import make_env, own_spaces, reset_env, reset_seeds, step_env, time_limit
from rl_training.errors import ConfigError

_STREAM = "description"  # of the reset seeds
_STEPS = 200  # compared between two copies


@dataclass(frozen=True)
class Description:
    """Facts about an environment; those after `refused` are known only if training would take it."""

    env_id: str
    observation_space: str
    action_space: str
    time_limit: int | None
    refused: str | None  # why training would refuse it
    observations: list[str] | int | None = None  # names of nested observations, otherwise their number
    action_low: list[float] | None = None
    action_high: list[float] | None = None
    steps_per_second: float | None = None
    repeats: bool | None = None  # whether two copies give the same bits from the same seed and actions
    ended_after: int | None = None  # steps of random actions to the first end of an episode, if there was one

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def describe_env(env: EnvLike, seconds: float = 0.5) -> Description:
    """Return what can be told about an environment by making two copies of it and taking random actions."""
    made = make_env(env)
    try:
        spaces = f"{made.unwrapped.observation_space}", f"{made.action_space}"
        known = Description(str(env), *spaces, time_limit(env), refused=None)
        try:
            return _tried(made, env, known, seconds)
        except ConfigError as error:
            return replace(known, refused=str(error))
    finally:
        made.close()


def _tried(made: Any, env: EnvLike, known: Description, seconds: float) -> Description:
    own = own_spaces(made, env)
    names: list[str] | int = list(own.observation_names) if own.observation_names else own.observation_dim
    first, ended = _rollout(made, env, own)
    other = make_env(env)
    try:  # also in a copy that has played before, which shows what is kept from one episode to the next
        repeats = first == _rollout(other, env, own)[0] == _rollout(other, env, own)[0]
    finally:
        other.close()
    return replace(
        known,
        observations=names,
        action_low=own.action_low.tolist(),
        action_high=own.action_high.tolist(),
        steps_per_second=_speed(made, env, own, seconds),
        repeats=repeats,
        ended_after=ended,
    )


def _random_actions(spaces: Spaces, count: int) -> NDArray[np.float32]:
    draws = rng.uniforms([0], _STREAM, torch.arange(count), (spaces.learned_dim,))[0].numpy()
    return spaces.denormalize_actions(draws * 2.0 - 1.0)


def _rollout(made: Any, env: EnvLike, spaces: Spaces) -> tuple[list[bytes], int | None]:
    """What an environment returns for the same seeds and actions, as bytes, and when its first episode ended."""
    seeds = iter(reset_seeds(0, _STREAM, 0, _STEPS + 1))
    seen, ended = [reset_env(made, env, next(seeds)).tobytes()], None
    for number, action in enumerate(_random_actions(spaces, _STEPS), start=1):
        observation, reward, terminated, truncated = step_env(made, env, action)
        seen.append(observation.tobytes() + np.float64(reward).tobytes() + bytes((terminated, truncated)))
        if terminated or truncated:
            ended = ended or number
            seen.append(reset_env(made, env, next(seeds)).tobytes())
    return seen, ended


def _speed(made: Any, env: EnvLike, spaces: Spaces, seconds: float) -> float:
    """Steps per second with random actions, resets included."""
    actions, seeds, taken = _random_actions(spaces, _STEPS), iter(reset_seeds(1, _STREAM, 0, 100_000)), 0
    reset_env(made, env, next(seeds))
    begin = time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        _, _, terminated, truncated = step_env(made, env, actions[taken % _STEPS])
        taken += 1
        if terminated or truncated:
            reset_env(made, env, next(seeds, taken))
    return taken / spent
