"""Random steps in an environment before a run, to know the scale of what it returns: the same steps for every seed."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Literal

import numpy as np
import torch

from rl_training import rng
from rl_training.config.environment import EnvLike
from rl_training.data.transforms import Transforms
from rl_training.envs.collector import Collector
from rl_training.envs.environments import environment_spaces
from rl_training.envs.scale.ordinary_scale import RandomSteps
from rl_training.envs.workers.count import open_batch
from rl_training.errors import ConfigError

STEPS = 1_000
_SEED = 0
_LONG = 10.0  # seconds, after which it is said that they take long


def random_steps(
    env: EnvLike,
    workers: int | Literal["auto"],
    timeout: float,
    check: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _text: None,
) -> RandomSteps:
    """Return what uniformly random actions show: 1,000 steps, or those before the environment fails, as the run will say.

    The actions and the seeds of the episodes are always the same, so that no member of a population depends on the others.
    `check` is called before every step, and may raise to stop; `tell` is called once if all of this takes long.
    """
    declared = environment_spaces(env)
    spaces = declared.spaces
    actions = rng.uniforms([_SEED], "scale", torch.arange(STEPS), (spaces.learned_dim,))[0].mul(2.0).sub(1.0).numpy()
    begin, told = time.monotonic(), False
    observations = np.empty((STEPS, spaces.observation_dim), dtype=np.float32)
    rewards, returns, taken = np.empty(STEPS, dtype=np.float32), list[float](), 0
    with closing(
        Collector(env, (_SEED,), spaces, Transforms.identity(spaces.observation_dim), open_batch(env, 1, workers, timeout))
    ) as collector:
        try:
            for taken in range(STEPS):
                check()
                if not told and (told := time.monotonic() - begin > _LONG):
                    tell(_waiting(taken, time.monotonic() - begin))
                collector.begin_episodes()
                transition = collector.step(actions[taken : taken + 1])
                observations[taken], rewards[taken] = transition["observations"][0], transition["rewards"][0]
                if transition["terminals"][0] or transition["timeouts"][0]:
                    returns.append(collector.metrics(0)["data/episode_return"])
            taken = STEPS
        except ConfigError:  # which the run meets too, and says with all that it has saved by then
            pass
    bounds = declared.observation_low, declared.observation_high
    return RandomSteps(observations[:taken], rewards[:taken], *bounds, returns)


def _waiting(taken: int, seconds: float) -> str:
    """What to tell of random steps that take long."""
    left = "" if not taken else f", about {seconds / taken * (STEPS - taken):,.0f} s more"
    return (
        f"{STEPS:,} random steps in the environment come before the run, for its scale{left} "
        "(off: `normalize_observations: false` and `reward: {normalize: false}`)"
    )
