"""Evaluation beside training: `eval_mode: beside`.

The policy of a boundary is evaluated while the next steps are trained. Its rows, and what follows from them (callbacks,
early stopping, the best checkpoint), come when the next evaluation is due; the last one of a phase is waited for. When that
is depends on the config alone, never on time.

A checkpoint that is written meanwhile refers to the checkpoint of the evaluated step, so that a run that resumes can repeat
the evaluation. That one is kept in memory, and written when another refers to it or when it turns out to be the best.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from rl_training.config.environment import EnvSource
from rl_training.envs.evaluation import Evaluation
from rl_training.envs.lanes import LaneEvaluation
from rl_training.envs.workers.count import available_cores, check_workers
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, checkpoint_name, load_checkpoint
from rl_training.runtime.evaluating.evaluator import Check, Evaluated, Evaluator, Snapshot
from rl_training.runtime.loop_parts import LoopParts


def evaluating_workers(workers: int | Literal["auto"], busy: int, cores: int | None = None) -> int:
    """Return the number of processes that evaluate, 0 for this one: `auto` takes the cores that are not busy.

    A number is what the user wants, but online it is also that of processes which every step waits for.
    """
    left = max(1, (available_cores() if cores is None else cores) - busy)
    if workers == "auto":
        return left if hasattr(os, "fork") else 0
    return min(workers, left) if busy > 1 else workers


class BesideEvaluator(Evaluator):
    """Evaluates a learner as it was at a boundary, one evaluation at a time, while the learner is trained."""

    def __init__(self, *parts: Any, busy: int) -> None:
        """Take what `Evaluator` takes; `busy` cores are left alone, which training cannot wait for."""
        super().__init__(*parts)
        self._busy = busy
        self._lanes: LaneEvaluation | None = None

    def results(
        self, env: EnvSource, episodes: int, now: Evaluated, check: Check, ending: Callable[[], bool]
    ) -> Iterator[tuple[Evaluated, Evaluation]]:
        """Yield the evaluation under way, and begin one of the learner as it is now; if that is `ending`, yield it too."""
        if self.under_way is not None and self.under_way.counters != now.counters:
            yield self._result(self.under_way, check)
        if self.under_way is None:  # otherwise it was begun here before, by a run that was stopped while it waited
            self._start(env, episodes, now)
        if ending():  # which the first result may have decided
            yield self._result(now, check)

    def rest(self, check: Check) -> Iterator[tuple[Evaluated, Evaluation]]:
        """Yield the evaluation that is still under way, if there is one."""
        if self.under_way is not None:
            yield self._result(self.under_way, check)

    def _result(self, of: Evaluated, check: Check) -> tuple[Evaluated, Evaluation]:
        if self._lanes is None:
            raise ValueError("no evaluation is under way")
        found = self._of_all(self._lanes.result, check)
        self.under_way = None
        return of, found

    def _start(self, env: EnvSource, episodes: int, of: Evaluated, saved: Mapping[str, Tensor] | None = None) -> None:
        """Begin to evaluate the learner as it is now, or as it was `saved`."""
        trained = self._learner.model.trained
        parameters = trained.flat
        if saved is not None:
            parameters = torch.empty_like(trained.flat)
            trained.load(parameters, saved)
        if self._lanes is None or self._lanes.env is not env:
            self._close_lanes()
            self._lanes = self._open(env, episodes)
        self._lanes.start(parameters)
        self.under_way = of

    def _open(self, env: EnvSource, episodes: int) -> LaneEvaluation:
        config, seeds = self._config, self._learner.model.seeds
        check_workers(config.workers)
        return LaneEvaluation(
            build_learner(config.algo, self._spaces, seeds[:1], torch.device("cpu"), config.algo_kwargs),
            env,
            seeds=seeds,
            episodes=episodes,
            spaces=self._spaces,
            transforms=self._transforms,
            workers=evaluating_workers(config.workers, self._busy),
            timeout=config.env_timeout,
        )

    def repeat(self, env: EnvSource, episodes: int, checkpoint: Checkpoint, *, same_run: bool) -> None:
        """Begin the evaluation again that was under way when a checkpoint was written, by this run or by another."""
        record = checkpoint.state.get("evaluating")
        if record is None:
            return
        of, evaluated = Evaluated(**record), checkpoint
        if any(checkpoint.state[name] != count for name, count in of.counters.items()):
            evaluated = load_checkpoint(checkpoint.path.parent / checkpoint_name(of.counters))
            if not same_run and "replay" not in evaluated.state:  # checkpoints of this run are to refer to one of its own
                of.unsaved = Snapshot(of.counters, evaluated.tensors, evaluated.state)
        self._start(env, episodes, of, self._ranks.own_rows(evaluated.learner_tensors))

    def _close_lanes(self) -> None:
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None

    def close(self) -> None:
        """End the processes that evaluate, and close the copies."""
        super().close()
        self._close_lanes()


def open_evaluator(parts: LoopParts) -> Evaluator:
    """Return what evaluates a run, as its config says."""
    given = (parts.config, parts.learner, parts.spaces, parts.transforms, parts.ranks, parts.signals)
    if parts.config.eval_mode == "wait":
        return Evaluator(*given)
    return BesideEvaluator(*given, busy=max(phase.busy_cores for phase in parts.phases))
