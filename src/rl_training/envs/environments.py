"""Environments by name, reset explicitly with seeds and stepped side by side."""

import contextlib
import itertools
import math
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rl_training
from rl_training import rng
from rl_training.config.environment import EnvLike, EnvSource, env_source
from rl_training.data.spaces import Spaces, spaces_of
from rl_training.envs.given import PREFIX
from rl_training.envs.imports import import_flags, imported
from rl_training.errors import ConfigError, did_you_mean

_MAX_LISTED = 6  # actions in a note
_RESET = "reset(seed=..., options=...) must return observation, info"
_STEP = "step(action) must return observation, reward, terminated, truncated, info"
_API_SIGNS = ("to unpack", "cannot unpack", "unexpected keyword argument", "positional argument")
_LIBRARIES = (Path(rl_training.__file__).parent, Path(os.__file__).parent)
_limits_inside: dict[str, int | None] = {}  # time limits inside functions of users, by what they are called with


def make_env(env: EnvLike, render_mode: str | None = None) -> Any:
    """Return a new Gymnasium environment with flat observations, or a ConfigError that says what is wrong with it."""
    import gymnasium

    from rl_training.envs.flatten import FlatObservation, is_nested
    from rl_training.envs.vectorised import is_only_vectorised, make_only_copy

    source = env_source(env)
    check_registered(source)
    arguments = dict(source.kwargs) if render_mode is None else {**source.kwargs, "render_mode": render_mode}
    try:
        made: Any = (
            make_only_copy(source.env_id, source.max_episode_steps, arguments)
            if is_only_vectorised(source.env_id)
            else gymnasium.make(source.env_id, source.max_episode_steps, disable_env_checker=True, **arguments)
        )
        for wrapper in source.wrappers:
            made = getattr(gymnasium.wrappers, wrapper.name)(made, **wrapper.kwargs)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # environments are third-party code
        given = [f"{key}={value!r}" for key, value in source.kwargs.items()] + [one.name for one in source.wrappers]
        made_with = f" with {', '.join(given)}" if given else ""
        raise ConfigError(f"environment {source.env_id!r} cannot be created{made_with}: {one_line(error)}") from error
    return FlatObservation(made, source.env_id) if is_nested(made.observation_space) else made


def check_registered(source: EnvSource) -> None:
    """Raise a ConfigError for an id that is not registered, or that names code to import."""
    import gymnasium

    if ":" in source.env_id:  # gymnasium imports what precedes a colon; a config must not name code to import
        module, _, bare = source.env_id.partition(":")
        raise ConfigError(
            f"env_id {source.env_id!r} names a module to import; use --import {module} and the bare id {bare!r}"
        )
    if source.env_id not in gymnasium.registry:
        with contextlib.suppress(ImportError):  # it does not register its environments until it is imported
            import gymnasium_robotics  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    if source.env_id in gymnasium.registry:
        return
    missing = [name for name in source.imports if name not in imported()]
    if missing:
        advice = f" The run was started with{import_flags(missing)}: pass that again (in Python, import it first)"
    elif source.env_id.startswith(PREFIX):
        advice = " A Python function makes it: call `rl_training.register_env(function)` first, or pass it as env_id"
    else:
        named = " Name one that is registered with Gymnasium (`env_id`, --env)."
        similar = _similar(source.env_id, gymnasium.registry)
        advice = f"{similar or named} One of your own needs --import MODULE (in Python, import its module first)"
    raise ConfigError(f"unknown environment {source.env_id!r}.{advice}")


def _similar(env_id: str, known: Iterable[str]) -> str:
    """A suggestion of an id whose name is similar; its version says nothing, since most ids have the same."""
    close = [one for one in known if did_you_mean(_without_version(env_id), [_without_version(one)])]
    return did_you_mean(env_id, close)


def _without_version(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def time_limit(env: EnvLike) -> int | None:
    """Return the most steps of an episode that an environment is made with; None where there is no limit."""
    import gymnasium

    source = env_source(env)
    check_registered(source)  # of an unknown one nothing is known, its limit neither
    known = source.max_episode_steps or gymnasium.registry[source.env_id].max_episode_steps
    return known or (_limit_inside(source) if source.env_id.startswith(PREFIX) else None)


def _limit_inside(source: EnvSource) -> int | None:
    """The limit that a Python function puts around what it makes of these arguments, which is looked up once."""
    import gymnasium

    key = f"{source.env_id} {source.making}"
    if key not in _limits_inside:
        try:
            made = make_env(source)
        except ConfigError:  # who makes it next says so
            return None
        inner = made
        while isinstance(inner, gymnasium.Wrapper) and not isinstance(inner, gymnasium.wrappers.TimeLimit):
            inner = inner.env
        _limits_inside[key] = int(inner._max_episode_steps) if isinstance(inner, gymnasium.wrappers.TimeLimit) else None
        close_env(made, source)
    return _limits_inside[key]


def own_spaces(env: Any, where: EnvLike) -> Spaces:
    """Return the spaces of an environment that was made here, with the names of nested observations."""
    return spaces_of(env.observation_space, env.action_space, str(where), getattr(env, "observation_names", None))


def one_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its text."""
    text = str(error).strip().splitlines()
    place = _place(error)
    return (f"{type(error).__name__}: {text[0]}" if text else type(error).__name__) + (f" ({place})" if place else "")


def _place(error: BaseException) -> str:
    """The file and line of the user's own code where an error arose; nothing if it arose in a library."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(one) for one in _LIBRARIES)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def close_env(env: Any, env_id: EnvLike) -> None:
    """Close an environment; where that fails nothing is lost, so it is told in one line and no more comes of it."""
    try:
        env.close()
    except (Exception, SystemExit) as error:
        with contextlib.suppress(OSError, ValueError):  # nobody may be there to read it
            print(f"warning: environment {env_id} failed in close(): {one_line(error)}", file=sys.stderr)


def reset_env(env: Any, env_id: EnvLike, seed: int, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return the first observation of an episode; any failure of the environment becomes a ConfigError.

    `shape` is the one that its space declared when the environment was made, if it is known.
    """
    try:
        result = env.reset(seed=seed)
    except (Exception, SystemExit) as error:  # it is not for an environment to end the run
        raise _failure(env_id, f"reset(seed={seed})", error, _RESET) from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise _not_gymnasium(env_id, _RESET, _returned(result))
    observation = _observed(result[0], env_id, shape or env.observation_space.shape)
    check_finite(observation, env_id)
    return observation


def step_env(
    env: Any, env_id: EnvLike, action: NDArray[np.float32], limits: "Limits | None" = None
) -> tuple[NDArray[Any], float, bool, bool]:
    """Return observation, reward, terminated and truncated; the environment gets a copy of the action, in its own type.

    `limits` are those that its spaces declared when it was made, if they are known.
    """
    limits = limits or Limits(env)
    found = stepped(env, env_id, limits.commands(action), limits)
    check_finite(found[0], env_id)
    return found


class Limits:
    """What an environment's spaces declare; asking its wrappers at every step would take as long as a short step."""

    def __init__(self, env: Any) -> None:
        space = env.action_space
        self.shape: tuple[int, ...] = env.observation_space.shape
        self._low, self._high, self._kind = space.low, space.high, space.dtype

    def commands(self, actions: NDArray[np.float32]) -> NDArray[Any]:
        """Return a copy of actions (..., action_dim) within the bounds, in the type of the space."""
        own: NDArray[Any] = np.minimum(np.maximum(actions.astype(self._kind), self._low), self._high)
        return own  # in a quarter of np.clip's time


def stepped(env: Any, env_id: EnvLike, command: NDArray[Any], limits: Limits) -> tuple[NDArray[Any], float, bool, bool]:
    """Return what a step gives; all is checked, but not whether the observation is finite."""
    try:
        result = env.step(command)
    except (Exception, SystemExit) as error:
        raise _failure(env_id, f"step({command.tolist()})", error, _STEP) from error
    if not isinstance(result, tuple) or len(result) != 5:
        raise _not_gymnasium(env_id, _STEP, _returned(result))
    observation, reward, terminated, truncated, _ = result
    try:
        reward, terminated, truncated = float(reward), _flag(terminated), _flag(truncated)
    except (TypeError, ValueError) as error:
        raise _not_gymnasium(env_id, f"{_STEP}, a number and two truth values among them", str(error)) from error
    if not math.isfinite(reward):
        raise ConfigError(f"environment {env_id} returned NaN or inf as reward; fix the environment")
    return _observed(observation, env_id, limits.shape), reward, terminated, truncated


def _flag(value: Any) -> bool:
    """A truth value, which may also be the number 0 or 1, or an array that holds one alone."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf" or found.item() not in (0, 1):
        raise ValueError(f"got {value!r} as terminated or truncated")
    return bool(found.item())


def _observed(observation: Any, env_id: EnvLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """An observation as an array of the declared shape."""
    try:
        values = np.asarray(observation)
    except ValueError:  # lists of several lengths
        values = np.asarray(None)
    if values.dtype.kind not in "fiub":
        what = type(observation).__name__
        raise ConfigError(
            f"environment {env_id} returned a {what} as observation; its space declares numbers of shape {shape}"
        )
    if values.shape != shape:
        raise ConfigError(f"environment {env_id} returned an observation of shape {values.shape}; its space declares {shape}")
    return values


def check_finite(observations: NDArray[Any], env_id: EnvLike) -> None:
    """Raise a ConfigError for observations with NaN or inf."""
    if not np.isfinite(observations).all():
        raise ConfigError(f"environment {env_id} returned NaN or inf as observation; fix the environment")


def _failure(env_id: EnvLike, call: str, error: BaseException, api: str) -> ConfigError:
    """What to raise after an exception in a call: Gymnasium's wrappers fail on results that they cannot take apart."""
    import gymnasium

    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    if raised_in.is_relative_to(Path(gymnasium.__file__).parent) and any(sign in str(error) for sign in _API_SIGNS):
        return _not_gymnasium(env_id, api, str(error))
    return ConfigError(f"environment {env_id} failed in {call}: {one_line(error)}")


def _not_gymnasium(env_id: EnvLike, api: str, found: str) -> ConfigError:
    return ConfigError(f"environment {env_id} does not follow Gymnasium's API: {api} ({found})")


def _returned(result: Any) -> str:
    what = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
    return f"it returned {what}"


@dataclass(frozen=True, eq=False)
class EnvironmentSpaces:
    """The observation and action spaces that an environment declares."""

    env_id: str
    spaces: Spaces
    observation_low: NDArray[Any]  # (observation_dim,)
    observation_high: NDArray[Any]


def environment_spaces(env: EnvLike) -> EnvironmentSpaces:
    """Return sizes and bounds of an environment's spaces; an unsupported space is refused by name."""
    made = make_env(env)
    try:
        spaces = own_spaces(made, env)
        return EnvironmentSpaces(str(env), spaces, made.observation_space.low, made.observation_space.high)
    finally:
        close_env(made, env)


def infer_env_spaces(env: EnvLike) -> Spaces:
    """Return sizes and action bounds of an environment; an unsupported space is refused by name."""
    return environment_spaces(env).spaces


def check_fits(policy: Spaces, env: Spaces, env_id: EnvLike) -> None:
    """Raise a ConfigError unless a policy of these spaces can act in an environment: equal sizes, no command outside."""
    ours, theirs = (policy.observation_dim, policy.action_dim), (env.observation_dim, env.action_dim)
    if ours != theirs:
        raise ConfigError(
            f"{env_id} has {theirs[0]} observations and {theirs[1]} actions, the policy {ours[0]} and {ours[1]}"
        )
    known, own = policy.observation_names, env.observation_names
    if known and own and known != own and set(known) == set(own):
        raise ConfigError(f"{env_id} has the observations of the policy in another order: {own[0]}, ..., not {known[0]}, ...")
    slack = 1e-5 * (env.action_high - env.action_low)
    outside = (policy.action_low < env.action_low - slack) | (policy.action_high > env.action_high + slack)
    if outside.any():
        column = int(np.flatnonzero(outside)[0])
        raise ConfigError(
            f"the policy sets `{policy.action_name(column)}` between {policy.action_low[column]:g} and "
            f"{policy.action_high[column]:g}, {env_id} takes {env.action_low[column]:g} to {env.action_high[column]:g}; "
            "check the environment and its units"
        )


def unused_range(policy: Spaces, env: Spaces, env_id: EnvLike) -> str | None:
    """Return a note on actions of which a policy uses only a part of the environment's range; None if there are none."""
    slack = 1e-5 * (env.action_high - env.action_low)
    narrower = (policy.action_low > env.action_low + slack) | (policy.action_high < env.action_high - slack)
    parts: list[str] = [
        f"`{policy.action_name(column)}` {policy.action_low[column]:g} to {policy.action_high[column]:g} "
        f"of {env.action_low[column]:g} to {env.action_high[column]:g}"
        for column in np.flatnonzero(narrower).tolist()
    ]
    more = f", and {len(parts) - _MAX_LISTED} more" if len(parts) > _MAX_LISTED else ""
    listed = ", ".join(parts[:_MAX_LISTED]) + more
    return f"in {env_id} the policy stays within the range it was trained with: {listed}" if parts else None


def reset_seeds(seed: int, stream: str, first: int, count: int) -> list[int]:
    """Return the reset seeds of episodes first, first + 1, ... of a stream, each below 2^31."""
    import torch

    episodes = torch.arange(first, first + count)
    return [int(value) for value in rng.integers([seed], f"reset/{stream}", episodes, (), high=2**31 - 1)[0]]


def episode_seeds(seed: int, stream: str) -> Iterator[int]:
    """Yield the reset seeds of episodes 0, 1, ... of a stream, drawn many at a time."""
    for first in itertools.count(0, 256):
        yield from reset_seeds(seed, stream, first, 256)


class EnvBatch:
    """Copies of one environment side by side; one that has ended is not stepped until it is reset."""

    processes = 0  # that step them, beside this one

    def __init__(self, env: EnvLike, count: int, render_mode: str | None = None) -> None:
        self.env = env
        self.envs = [make_env(env, render_mode) for _ in range(count)]
        self.spaces = own_spaces(self.envs[0], env)
        self.observations = np.zeros((count, self.spaces.observation_dim), dtype=np.float32)
        self.running = np.zeros(count, dtype=bool)
        self._seeds, self._steps = np.zeros((2, count), dtype=np.int64)  # of the current episodes
        self._limits = Limits(self.envs[0])

    def reset(self, index: int, seed: int) -> None:
        """Start a new episode in one environment."""
        self.observations[index] = reset_env(self.envs[index], self.env, seed, self._limits.shape)
        self.running[index], self._seeds[index], self._steps[index] = True, seed, 0

    def reset_all(self, seeds: Sequence[int]) -> None:
        """Start an episode in each environment with its own seed."""
        for index, seed in enumerate(seeds):
            self.reset(index, seed)

    def step(self, actions: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Step every running environment with real actions; return rewards, terminated and truncated."""
        rewards = np.zeros(len(self.envs))
        terminated, truncated = np.zeros((2, len(self.envs)), dtype=bool)
        commands = self._limits.commands(actions)
        indices = np.flatnonzero(self.running)
        self._steps[indices] += 1
        index = 0
        try:
            for index in indices.tolist():
                found = stepped(self.envs[index], self.env, commands[index], self._limits)
                self.observations[index], rewards[index], terminated[index], truncated[index] = found
            if not np.isfinite(self.observations[indices]).all():
                for index in indices.tolist():
                    check_finite(self.observations[index], self.env)
        except ConfigError as error:
            raise self.located(error, index) from error
        self.running &= ~(terminated | truncated)
        return rewards, terminated, truncated

    def located(self, error: ConfigError, index: int) -> ConfigError:
        """Return the failure of a copy with its place in the episode."""
        return ConfigError(f"{error}; it was step {self._steps[index]} after reset(seed={self._seeds[index]})")

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            close_env(env, self.env)

    def __enter__(self) -> "EnvBatch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
