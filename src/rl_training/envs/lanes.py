"""Evaluation in lanes: a few episodes of one member at a time, in worker processes or in this one, with the same bits.

A lane acts by itself, on the CPU, for a policy whose parameters were copied when the evaluation began. So it needs nothing
from the process that trains, which can go on meanwhile. What a lane holds does not depend on the number of workers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.learner import Learner
from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import EnvBatch
from rl_training.envs.evaluation import Evaluation, evaluate_policy
from rl_training.envs.workers.calls import Calls, Move, first_failure
from rl_training.envs.workers.process import shared_arrays
from rl_training.models.mlp.eager import bf16_products
from rl_training.models.threads import one_thread

LANE: Final = 5  # episodes: acting for five together takes little longer than for one
_NICENESS = 10  # training goes first


class LaneEvaluation:
    """Evaluates the policies of a population; `start` returns at once, and `result` waits."""

    def __init__(
        self,
        policy: Learner[Any, Any],
        env: EnvLike,
        *,
        seeds: Sequence[int],
        episodes: int,
        spaces: Spaces,
        transforms: Transforms,
        workers: int,
        timeout: float,
    ) -> None:
        """Evaluate each member of `seeds`; `policy` is a learner of one member on the CPU, which lends its networks."""
        self.env, self._policy, self._seeds, self._episodes = env, policy, tuple(seeds), episodes
        self._spaces, self._transforms, self._timeout = spaces, transforms, timeout
        self._lanes = range(len(self._seeds) * -(-episodes // LANE))
        self._workers = min(workers, len(self._lanes))
        members, size = len(self._seeds), policy.model.trained.flat.shape[1]
        shared = shared_arrays(
            {
                "returns": (np.float64, (members, episodes)),
                "lengths": (np.int64, (members, episodes)),
                "parameters": (np.float32, (members, size)),
            }
        )
        self._returns, self._lengths, self._parameters = shared["returns"], shared["lengths"], shared["parameters"]
        self._copies: dict[int, EnvBatch] = {}  # by their number; in each worker
        self._calls: Calls | None = None
        if self._workers:
            self._calls = Calls(str(env), self._workers, self._run, self._close_copies, looks=False, niceness=_NICENESS)

    def start(self, parameters: Tensor) -> None:
        """Begin to evaluate policies with these parameters, (members, size), as the networks are trained with them."""
        self._parameters[:] = parameters.detach().cpu().numpy()
        if self._calls is not None:
            self._calls.ask(np.arange(self._workers), 0)

    def result(self, check: Callable[[], None]) -> Evaluation:
        """Return the evaluation that was begun last; `check` is called often and may raise to stop waiting."""
        if self._calls is None:
            with _as_in_a_worker():
                for lane in self._lanes:
                    self._evaluate(lane, check)
        else:
            self._calls.wait(np.arange(self._workers), "step", self._timeout, check)
        return Evaluation(self._returns.copy(), self._lengths.copy())

    def close(self) -> None:
        """End the workers, or close the copies."""
        if self._calls is not None:
            self._calls.close()
        else:
            self._close_copies()

    def _run(self, number: int, command: int, move: Move) -> str:
        """Evaluate every lane of a worker; return the message of what failed."""
        del command
        lanes = self._lanes[number :: self._workers]
        with _as_in_a_worker():
            return first_failure([partial(self._evaluate, lane, move) for lane in lanes], move)

    def _evaluate(self, lane: int, check: Callable[[], None]) -> None:
        """Evaluate the episodes of a lane."""
        member, part = divmod(lane, len(self._lanes) // len(self._seeds))
        first = part * LANE
        count = min(LANE, self._episodes - first)
        if count not in self._copies:
            self._copies[count] = EnvBatch(self.env, count)
            check()  # which also tells that something moves
        self._policy.model.trained.flat.copy_(torch.from_numpy(self._parameters[member : member + 1]))
        found = evaluate_policy(
            self._policy,
            self.env,
            episodes=count,
            first=first,
            seeds=[self._seeds[member]],
            transforms=self._transforms,
            spaces=self._spaces,
            check=check,
            kept=self._copies[count],
        )
        own = slice(first, first + count)
        self._returns[member, own], self._lengths[member, own] = found.returns[0], found.lengths[0]

    def _close_copies(self) -> None:
        for copies in self._copies.values():
            copies.close()


@contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """Act with one thread and in full precision, whatever training does."""
    with one_thread(), bf16_products(False), torch.inference_mode():
        yield
