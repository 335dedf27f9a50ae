"""Environments that users pass in Python: an id, a function that makes one, or an instance that can be made again."""

import re
from collections.abc import Callable
from typing import Any

from rl_training.config.environment import EnvSource, WrapperConfig, plain_values
from rl_training.errors import ConfigError

PREFIX = "python/"  # of the ids under which functions are registered

EnvGiven = str | EnvSource | Callable[..., Any] | Any
"""An id, how to make an environment, a function that makes one, or an instance with a spec."""


def register_env(make: Callable[..., Any]) -> str:
    """Register a function that makes an environment with Gymnasium and return its id, the same in every process.

    Another function of the same name gets a number behind it.
    """
    import gymnasium

    name = re.sub(r"[^\w.]+", "", f"{getattr(make, '__module__', '')}.{getattr(make, '__qualname__', type(make).__name__)}")
    for number in range(1, 1_000):
        env_id = f"{PREFIX}{name}{f'.{number}' if number > 1 else ''}"
        spec = gymnasium.registry.get(env_id)
        if spec is None:
            gymnasium.register(id=env_id, entry_point=make)
        if spec is None or spec.entry_point is make:
            return env_id
    raise ConfigError(f"{name}: a thousand functions of this name make environments; register them with gymnasium.register")


def given_source(env: EnvGiven) -> EnvSource:
    """Return how to make the environment that was passed; a function is registered."""
    import gymnasium

    if isinstance(env, EnvSource):
        return env
    if isinstance(env, str):
        return EnvSource(env)
    if isinstance(env, gymnasium.Env):
        if env.spec is None:
            raise ConfigError(f"{type(env).__name__} has no spec, so it cannot be copied: pass a function that makes one")
        return _source_of_spec(env.spec)
    if callable(env):
        return EnvSource(register_env(env))
    raise ConfigError(f"{env!r} is not an environment: pass an id, a function that makes one, or one made by gymnasium.make")


def _source_of_spec(spec: Any) -> EnvSource:
    """How to make what a spec describes; what plain settings cannot express becomes a function."""
    import gymnasium

    if (source := _by_settings(spec, gymnasium.registry.get(spec.id))) is not None:
        return source

    def made_again() -> Any:
        return gymnasium.make(spec, disable_env_checker=True)

    made_again.__qualname__ = re.sub(r"\W+", "_", spec.id)
    return EnvSource(register_env(made_again))


def _by_settings(spec: Any, registered: Any) -> EnvSource | None:
    """What a spec describes as plain settings, beside what its id is registered with; None if they cannot express it."""
    if registered is None or (spec.max_episode_steps is None and registered.max_episode_steps is not None):
        return None
    added = spec.additional_wrappers[len(registered.additional_wrappers) :]  # those of the registry are always applied
    if any(not str(one.entry_point).startswith("gymnasium.wrappers.") for one in added):
        return None
    try:
        kwargs = plain_values({key: value for key, value in spec.kwargs.items() if key != "render_mode"})
        wrappers = tuple(WrapperConfig.checked({"name": one.name, "kwargs": one.kwargs or {}}) for one in added)
    except (ConfigError, ValueError):
        return None
    return EnvSource(spec.id, kwargs, spec.max_episode_steps, wrappers)


def env_settings(env: EnvGiven | None) -> dict[str, Any]:
    """Return the config keys of an environment that was passed; only the id where it says all."""
    if env is None:
        return {"env_id": None}
    source = given_source(env)
    more = {
        "env_kwargs": dict(source.kwargs),
        "max_episode_steps": source.max_episode_steps,
        "env_wrappers": [one.model_dump() for one in source.wrappers],
    }
    return {"env_id": source.env_id, **{key: value for key, value in more.items() if value}}
