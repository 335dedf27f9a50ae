"""How many processes step the environments: as configured, or what is faster here."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np

from rl_training.config.environment import EnvLike
from rl_training.envs.environments import EnvBatch, close_env, make_env, own_spaces, reset_env, step_env
from rl_training.envs.workers.batch import WorkerBatch
from rl_training.errors import ConfigError

_CORE_LIMIT = Path("/sys/fs/cgroup/cpu.max")
_TRIED_STEPS = 50
_MOST_SECONDS = 0.1  # of trying
_ROUND_SECONDS = 60e-6  # of asking workers and waiting for them, and for each of them
_WORKER_SECONDS = 10e-6
_LEAST_GAIN = 1.5  # by which workers must be faster, since estimates are rough and policies need a core


def open_batch(env: EnvLike, count: int, workers: int | Literal["auto"], timeout: float) -> EnvBatch:
    """Return copies of an environment side by side, stepped here or in workers: the results are the same bits."""
    chosen = min(worker_count(workers, env, count), count)
    if not chosen:
        return EnvBatch(env, count)
    return WorkerBatch(env, count, chosen, timeout, looks=chosen < available_cores())


def worker_count(workers: int | Literal["auto"], env: EnvLike, count: int, cores: int | None = None) -> int:
    """Return the number of worker processes for `count` copies; 0 is to step in this process.

    `auto` measures a step of the environment, and takes workers only where they are clearly faster; results do not change.
    """
    check_workers(workers)
    if workers != "auto":
        return workers
    cores = available_cores() if cores is None else cores
    if not hasattr(os, "fork") or cores < 3 or count < 2:
        return 0
    step = _step_seconds(env)
    times = {number: _round_seconds(step, count, number) for number in range(1, min(cores - 1, count) + 1)}
    best = min(times, key=lambda number: times[number])
    return best if times[best] * _LEAST_GAIN < step * count else 0


def check_workers(workers: int | Literal["auto"]) -> None:
    """Raise a ConfigError for worker processes where there can be none."""
    if workers not in (0, "auto") and not hasattr(os, "fork"):
        raise ConfigError(f"workers = {workers}: there are no worker processes on {sys.platform}; use 0 or auto")


def available_cores() -> int:
    """Return the number of cores that this process may use; a container may be limited to a share of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CORE_LIMIT.read_text(encoding="utf-8").split()
        cores = min(cores, int(quota) // int(period))  # "max" is no number, and no limit
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # which the ranks of a run share


def _round_seconds(step: float, count: int, workers: int) -> float:
    """The estimated time in which workers step all copies once."""
    return -(-count // workers) * step + _ROUND_SECONDS + workers * _WORKER_SECONDS


def _step_seconds(env: EnvLike) -> float:
    """The median time of a step in the middle of the bounds."""
    made = make_env(env)
    try:
        spaces = own_spaces(made, env)
        action = ((spaces.action_low + spaces.action_high) / 2.0).astype(np.float32)
        reset_env(made, env, 0)
        taken = []
        for number in range(_TRIED_STEPS):
            begin = time.perf_counter()
            _, _, terminated, truncated = step_env(made, env, action)
            taken.append(time.perf_counter() - begin)
            if sum(taken) > _MOST_SECONDS:
                break
            if terminated or truncated:
                reset_env(made, env, number + 1)
        return float(np.median(taken))
    finally:
        close_env(made, env)
