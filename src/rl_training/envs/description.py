"""What an environment is like: spaces, speed, whether its episodes repeat, and what training would refuse."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training import rng
from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.envs.environments import close_env, make_env, own_spaces, reset_env, reset_seeds, step_env, time_limit
from rl_training.errors import ConfigError

_STREAM = "description"  # of the reset seeds
_STEPS = 200  # compared between two copies
_ROUNDING = 1e-5  # of a bound


@dataclass(frozen=True)
class Outside:
    """An observation that left its declared bounds, and how far it got beyond one of them."""

    observation: str
    bound: float
    reached: float


@dataclass(frozen=True)
class Description:
    """Facts about an environment; of those after `refused` only what was found before the reason to refuse it."""

    env_id: str
    observation_space: str
    action_space: str
    time_limit: int | None
    refused: str | None  # why training would refuse it
    observations: list[str] | int | None = None  # names of nested observations, otherwise their number
    action_low: list[float] | None = None
    action_high: list[float] | None = None
    outside: Sequence[Outside] = ()  # observations that left their space in a few steps
    ended_after: int | None = None  # steps of random actions to the first end of an episode, if there was one
    repeats: bool | None = None  # whether two copies give the same bits from the same seed and actions
    steps_per_second: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def describe_env(env: EnvLike, seconds: float = 0.5) -> Description:
    """Return what can be told about an environment by making two copies of it and taking random actions."""
    made = make_env(env)
    found: dict[str, Any] = {"refused": None}
    try:
        for facts in _findings(made, env, seconds):
            found |= facts
    except ConfigError as error:
        found["refused"] = str(error)
    finally:
        close_env(made, env)
    spaces = f"{made.unwrapped.observation_space}", f"{made.action_space}"
    return Description(str(env), *spaces, time_limit(env), **found)


def _findings(made: Any, env: EnvLike, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield facts as they are found; raise a ConfigError at the first that training would refuse."""
    own = own_spaces(made, env)
    names = None if own.observation_names is None else list(own.observation_names)
    yield {"observations": names or own.observation_dim}
    yield {"action_low": own.action_low.tolist(), "action_high": own.action_high.tolist()}
    first = _Rollout(made, env)
    try:
        first.play(own)
    finally:
        yield {"outside": first.outside(names), "ended_after": first.ended_after}
    other = make_env(env)
    try:  # also in a copy that has played before, which shows what is kept from one episode to the next
        yield {"repeats": all(_Rollout(other, env).play(own) == first.seen for _ in range(2))}
    finally:
        close_env(other, env)
    yield {"steps_per_second": _speed(made, env, own, seconds)}


class _Rollout:
    """What an environment returns for the same seeds and actions, as bytes, and where its observations have been."""

    def __init__(self, made: Any, env: EnvLike) -> None:
        self._made, self._env = made, env
        self.seen: list[bytes] = []
        self.ended_after: int | None = None
        self._lowest, self._highest = (np.full(made.observation_space.shape, sign * np.inf) for sign in (1, -1))

    def play(self, spaces: Spaces) -> list[bytes]:
        """Take random actions and return what was seen."""
        seeds = iter(reset_seeds(0, _STREAM, 0, _STEPS + 1))
        self._note(reset_env(self._made, self._env, next(seeds)))
        for number, action in enumerate(_random_actions(spaces, _STEPS), start=1):
            observation, reward, terminated, truncated = step_env(self._made, self._env, action)
            self._note(observation, np.float64(reward).tobytes() + bytes((terminated, truncated)))
            if terminated or truncated:
                self.ended_after = self.ended_after or number
                self._note(reset_env(self._made, self._env, next(seeds)))
        return self.seen

    def _note(self, observation: NDArray[Any], rest: bytes = b"") -> None:
        self.seen.append(observation.tobytes() + rest)
        self._lowest, self._highest = np.minimum(self._lowest, observation), np.maximum(self._highest, observation)

    def outside(self, names: Sequence[str] | None) -> list[Outside]:
        """Return the observations that left their space by more than rounding."""
        space, found = self._made.observation_space, []
        for bound, reached, sign in ((space.low, self._lowest, -1.0), (space.high, self._highest, 1.0)):
            beyond = sign * (reached - bound) > _ROUNDING * np.maximum(1.0, np.abs(bound))
            for column in np.flatnonzero(beyond).tolist():
                name = names[column] if names else f"observation {column}"
                found.append(Outside(name, float(bound[column]), float(reached[column])))
        return found


def _random_actions(spaces: Spaces, count: int) -> NDArray[np.float32]:
    draws = rng.uniforms([0], _STREAM, torch.arange(count), (spaces.learned_dim,))[0].numpy()
    return spaces.denormalize_actions(draws * 2.0 - 1.0)


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
