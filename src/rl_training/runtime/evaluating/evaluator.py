"""Evaluations during training: the loop waits for each, in copies of the environment that are kept from one to the next."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rl_training.algorithms.learner import Learner
from rl_training.config.environment import EnvSource
from rl_training.config.run import RunConfig
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import EnvBatch
from rl_training.envs.evaluation import TRAINING_EPISODES, Evaluation, evaluate_policy
from rl_training.envs.workers.count import open_batch
from rl_training.errors import StoppedBySignal
from rl_training.faults import fault_point
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, load_checkpoint
from rl_training.runtime.sharing.ranks import Ranks
from rl_training.runtime.signals import SignalWatch

Check = Callable[[], None]
"""Called often while an evaluation is waited for; may raise to stop that."""


@dataclass(frozen=True)
class Snapshot:
    """Everything a checkpoint holds, in memory."""

    counters: Mapping[str, int]
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]

    @classmethod
    def loaded(cls, path: Path) -> "Snapshot":
        """Return a checkpoint that is on disk."""
        checkpoint = load_checkpoint(path)
        counters: dict[str, int] = {"step": checkpoint.step}
        if checkpoint.env_step is not None:
            counters = {"env_step": checkpoint.env_step, **counters}
        return cls(counters, checkpoint.tensors, checkpoint.state)


@dataclass
class Evaluated:
    """What is evaluated: the members at some counters, which messages call by a label."""

    counters: dict[str, int]
    label: str
    members: list[int]
    unsaved: Snapshot | None = None  # its checkpoint, while that is not written

    def record(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return {"counters": self.counters, "label": self.label, "members": self.members}

    @property
    def count(self) -> int:
        """The counter by which a phase counts."""
        return next(iter(self.counters.values()))


class Evaluator:
    """Evaluates a learner in its environments; the copies of one are made at its first evaluation."""

    under_way: Evaluated | None = None  # an evaluation that has begun, and whose result is taken later

    def __init__(
        self,
        config: RunConfig[Any],
        learner: Learner[Any, Any],
        spaces: Spaces,
        transforms: Transforms,
        ranks: Ranks,
        signals: SignalWatch,
    ) -> None:
        self._config, self._learner, self._spaces, self._transforms = config, learner, spaces, transforms
        self._ranks, self._signals = ranks, signals
        self._copies: EnvBatch | None = None

    def results(
        self, env: EnvSource, episodes: int, now: Evaluated, check: Check, ending: Callable[[], bool]
    ) -> Iterator[tuple[Evaluated, Evaluation]]:
        """Evaluate the learner as it is now; yield the evaluations whose results are known: that one alone."""
        del ending
        yield now, self.measured(env, episodes, TRAINING_EPISODES, check)

    def rest(self, check: Check) -> Iterator[tuple[Evaluated, Evaluation]]:
        """Yield the evaluation that is still under way, if there is one: none, where evaluations are waited for."""
        del check
        yield from ()

    def measured(self, env: EnvSource, episodes: int, stream: str, check: Check) -> Evaluation:
        """Return the evaluation of every member."""
        fault_point("evaluation:begin")
        config = self._config
        if self._copies is None or self._copies.env is not env:
            self.close_copies()
            count = self._learner.model.members * episodes
            self._copies = open_batch(env, count, config.workers, config.env_timeout)
        copies = self._copies

        def own(check: Check) -> Evaluation:
            return evaluate_policy(
                self._learner,
                env,
                episodes=episodes,
                seeds=self._learner.model.seeds,
                transforms=self._transforms,
                spaces=self._spaces,
                stream=stream,
                check=check,
                kept=copies,
            )

        return self._of_all(own, check)

    def _of_all(self, own: Callable[[Check], Evaluation], check: Check) -> Evaluation:
        """The evaluation of all members, by ranks that each wait for their own; a stop of one is one of all."""
        if self._ranks.count == 1:
            return own(check)
        rows: list[Any] = [None] * len(self._ranks.own)
        with suppress(StoppedBySignal):
            found = own(self._signals.raise_if_stopped)
            rows = list(zip(found.returns.tolist(), found.lengths.tolist(), strict=True))
        rows = self._ranks.of_members(rows)
        if None in rows:
            check()  # where the ranks agree to stop
        returns, lengths = zip(*rows, strict=True)
        return Evaluation(np.array(returns), np.array(lengths))

    def repeat(self, env: EnvSource, episodes: int, checkpoint: Checkpoint, *, same_run: bool) -> None:
        """Begin again what was under way when a checkpoint was written: nothing, where evaluations are waited for."""

    def close_copies(self) -> None:
        """Close the copies."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None

    def close(self) -> None:
        """Release everything."""
        self.close_copies()
