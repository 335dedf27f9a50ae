"""Copies of an environment stepped in worker processes over shared memory, bit for bit as in one process."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.environment import EnvLike
from rl_training.envs.environments import (
    EnvBatch,
    Limits,
    check_finite,
    close_env,
    environment_spaces,
    make_env,
    reset_env,
    stepped,
)
from rl_training.envs.workers.calls import Calls, Move, first_failure
from rl_training.envs.workers.process import shared_arrays
from rl_training.errors import ConfigError

_CREATE, _RESET, _STEP = range(3)
_DOING = ("be created", "reset", "step")  # an environment takes too long to


class WorkerBatch(EnvBatch):
    """As `EnvBatch`, in `workers` processes; a copy that raises gives a ConfigError, one that hangs or dies ends them.

    A worker steps a contiguous part of the copies, in order.
    """

    def __init__(self, env: EnvLike, count: int, workers: int, timeout: float, *, looks: bool = False) -> None:
        """Start the workers; they look for work before going to sleep if `looks`, which takes a core each."""
        self.env, self.timeout, self.processes = env, timeout, workers
        self.spaces = environment_spaces(env).spaces
        shared = shared_arrays(
            {
                "rewards": (np.float64, (count,)),
                "seeds": (np.int64, (count,)),
                "steps": (np.int64, (count,)),
                "observations": (np.float32, (count, self.spaces.observation_dim)),
                "actions": (np.float32, (count, self.spaces.action_dim)),
                "running": (np.bool_, (count,)),
                "chosen": (np.bool_, (count,)),
                "terminated": (np.bool_, (count,)),
                "truncated": (np.bool_, (count,)),
            }
        )
        self.observations, self.running = shared["observations"], shared["running"]
        self._rewards, self._terminated, self._truncated = shared["rewards"], shared["terminated"], shared["truncated"]
        self._actions, self._seeds, self._steps = shared["actions"], shared["seeds"], shared["steps"]
        self._chosen = shared["chosen"]
        bounds = [round(number * count / workers) for number in range(workers + 1)]
        self._starts, self._parts = np.array(bounds[:-1]), [range(*bound) for bound in pairwise(bounds)]
        self._made: dict[int, tuple[Any, Limits]] = {}  # in a worker
        self._calls = Calls(str(env), workers, self._do, self._close_copies, looks=looks)
        try:
            self._ask(_CREATE, np.ones(count, dtype=bool))
        except BaseException:
            self.close()
            raise

    def reset(self, index: int, seed: int) -> None:
        """Start a new episode in one environment."""
        self._reset({index: seed})

    def reset_all(self, seeds: Sequence[int]) -> None:
        """Start an episode in each environment with its own seed."""
        self._reset(dict(enumerate(seeds)))

    def _reset(self, seeds: dict[int, int]) -> None:
        self._chosen[:] = False
        for index, seed in seeds.items():
            self._chosen[index], self._seeds[index] = True, seed
        self._ask(_RESET, self._chosen)

    def step(self, actions: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Step every running environment with real actions; return rewards, terminated and truncated."""
        self._actions[:] = actions
        self._rewards[:] = 0.0
        self._terminated[:] = self._truncated[:] = False
        self._ask(_STEP, self.running)
        return self._rewards.copy(), self._terminated.copy(), self._truncated.copy()

    def _ask(self, command: int, concerned: NDArray[np.bool_]) -> None:
        """Have the workers of the concerned copies do something, and wait until all have."""
        asked = np.flatnonzero(np.logical_or.reduceat(concerned, self._starts))
        if len(asked):
            self._calls.ask(asked, command)
            self._calls.wait(asked, _DOING[command], self.timeout)

    def close(self) -> None:
        """End the worker processes and wait until they are gone."""
        self._calls.close()

    def __del__(self) -> None:
        if "_calls" in vars(self):
            self.close()

    def _do(self, number: int, command: int, move: Move) -> str:
        """Do what is asked, in a worker; return the message of the first copy that failed."""
        if command == _CREATE:
            tasks = [partial(self._create_copy, index) for index in self._parts[number]]
            return first_failure(tasks, move)
        concerned, act = (self._chosen, self._reset_copy) if command == _RESET else (self.running, self._step_copy)
        tasks = [partial(act, index) for index in self._parts[number] if concerned[index]]
        return first_failure(tasks, move)

    def _close_copies(self) -> None:
        for made, _ in self._made.values():
            close_env(made, self.env)

    def _create_copy(self, index: int) -> None:
        made = make_env(self.env)
        self._made[index] = made, Limits(made)

    def _reset_copy(self, index: int) -> None:
        made, limits = self._made[index]
        self.observations[index] = reset_env(made, self.env, int(self._seeds[index]), limits.shape)
        self.running[index], self._steps[index] = True, 0

    def _step_copy(self, index: int) -> None:
        made, limits = self._made[index]
        self._steps[index] += 1
        try:
            observation, reward, terminal, timeout = stepped(made, self.env, limits.commands(self._actions[index]), limits)
            self.observations[index], self._rewards[index] = observation, reward
            check_finite(self.observations[index], self.env)
        except ConfigError as error:
            raise self.located(error, index) from error
        self._terminated[index], self._truncated[index] = terminal, timeout
        self.running[index] = not (terminal or timeout)
