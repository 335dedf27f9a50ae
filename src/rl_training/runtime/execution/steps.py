"""Gradient steps on batches: compiled if so resolved, eager otherwise and after a failed compilation."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rl_training.algorithms.learner import Learner, Metrics, Rounds
from rl_training.rng import Draws
from rl_training.runtime.batches.base import Batches
from rl_training.runtime.execution.compiled import CompilationFailedError, CompiledSteps, DeviceWork, block_length
from rl_training.runtime.execution.compiler_cache import use_private_cache
from rl_training.runtime.execution.mode import Execution, chunk_length
from rl_training.runtime.sharing.batch_share import BatchShare
from rl_training.runtime.sharing.ranks import Ranks

Rates = Callable[[int], Mapping[str, float]]
"""The learning-rate factors of each group by a step's offset from the first."""


class Executor:
    """How the steps of a run are executed: as resolved at the start, or eagerly once compiling has failed."""

    def __init__(
        self, execution: Execution, warn: Callable[[str], None], note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.execution, self._warn, self._note = execution, warn, note
        self._announced = False

    @property
    def compiles(self) -> bool:
        """Whether steps run as compiled code."""
        return self.execution.mode != "eager"

    @property
    def on_gpu(self) -> bool:
        """Whether compiled steps run on a GPU."""
        return self.compiles and self.execution.device == "cuda"

    def compiled(self, learner: Learner[Any, Any], batches: Batches) -> CompiledSteps:
        """Return compiled steps of a learner on batches."""
        use_private_cache()
        graphs = self.execution.mode == "graph"
        announce = partial(self.announce, learner)
        return CompiledSteps(learner, batches, precision=self.execution.precision, graphs=graphs, announce=announce)

    def wait(self) -> None:
        """Wait for what was launched on a GPU, asleep: any other way of waiting keeps a core busy, which others may need."""
        if self.execution.device == "cuda":
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record()
            event.synchronize()

    def agree(self, ranks: Ranks) -> None:
        """Go on eagerly if another rank had to: its chunks end elsewhere, and a run has one mode."""
        if "eager" in ranks.gather([self.execution.mode]) and self.compiles:
            self.fall_back_to_eager(CompilationFailedError("on another rank"))

    def announce(self, learner: Learner[Any, Any]) -> None:
        """Report, once, that compiling begins and, on a GPU, which networks have no kernel."""
        if self._announced:
            return
        self._announced = True
        self._note(
            f"engine `{self.execution.mode}`: compiling the first steps, may take minutes; signals wait until it is done"
        )
        for network in learner.model.networks if self.on_gpu else ():
            if network.without_kernel is not None:
                self._note(f"{network.name}: no kernel for {network.without_kernel}; compiled operation by operation, slower")

    def fall_back_to_eager(self, error: CompilationFailedError) -> None:
        """Continue eagerly, with a warning."""
        reason = str(error).strip().splitlines()[0][:300]
        self._warn(
            f"engine `{self.execution.mode}` failed, going on with `eager`, whose last digits differ ({reason}); "
            "`--engine eager` skips compiling"
        )
        self.execution = replace(self.execution, mode="eager")


class GradientSteps:
    """Takes the gradient steps of a learner on batches; the result of a step does not depend on the chunk it is part of.

    `members` are those of the whole run, by default those of the learner. `share` is what this rank has of each batch.
    """

    def __init__(
        self,
        learner: Learner[Any, Any],
        batches: Batches,
        rounds: Rounds | None = None,
        members: int | None = None,
        share: BatchShare | None = None,
    ) -> None:
        self.learner, self.batches, self.rounds, self._share = learner, batches, rounds or Rounds(), share
        learner.averaged = None if share is None else share.gradients
        self._members = members or learner.model.members
        self.eager_chunk = chunk_length(learner, batches.batch_size, self._members)
        self.compiled: CompiledSteps | None = None
        self._executor: Executor | None = None
        self._drawn: tuple[int, int, Draws] | None = None  # first step, number of steps, their random numbers

    def execute_with(self, executor: Executor) -> None:
        """Use an executor for all steps; called once, before the first."""
        self._executor = executor
        if executor.compiles:
            self.compiled = executor.compiled(self.learner, self.batches)

    @property
    def chunk(self) -> int:
        """Steps to take at once: a function of shapes and mode alone; on a GPU a multiple of the block of compiled steps."""
        if self.compiled is None or self._executor is None or not self._executor.on_gpu:
            return self.eager_chunk
        block = block_length(self._members)
        resident = self.batches.resident  # otherwise a chunk's rows take additional memory
        shape = self.learner, self.batches.batch_size, self._members
        chunk = chunk_length(*shape, compiled=True) if resident else self.eager_chunk
        return max(block, chunk - chunk % block)

    def run(
        self,
        first: int,
        count: int,
        rates: Rates | None = None,
        *,
        report: bool = True,
        before: DeviceWork | None = None,
        after: DeviceWork | None = None,
    ) -> Metrics:
        """Take `count` gradient steps from step `first` on; with `report`, return the metrics of the last.

        `rates` gives learning-rate factors if they are not all 1. `before` and `after` are launched with the steps.
        """
        torch.set_grad_enabled(True)  # an environment may have switched them off for everybody
        self.learner.rounds = self.rounds  # each phase of a run has its own
        done = 0
        if self.compiled is not None and self._executor is not None and self._executor.compiles:
            begin = self.learner.step
            try:
                return self.compiled.run(first, count, rates, report=report, before=before, after=after)
            except CompilationFailedError as error:
                self._executor.fall_back_to_eager(error)
                self.compiled, done = None, self.learner.step - begin
        if before is not None:
            before()
        metrics = self._eager(first, done, count, rates, report=report) if done < count else {}
        if after is not None:
            after()
        return metrics

    def _eager(self, first: int, done: int, count: int, rates: Rates | None, *, report: bool) -> Metrics:
        """Take the steps after the first `done`, one by one."""
        metrics: Metrics = {}
        batches, (draws, start) = self.batches, self._draws(first + done, count - done)
        shape = (batches.batch_size,)
        batches.load(first + done, count - done)
        indices, prior = batches.indices(lambda stream: draws.bits(stream, shape, start, count - done), count - done)
        for offset in range(count - done):
            rows = batches.gather(indices[offset : offset + 1])[0]
            rows = rows if self._share is None else self._share.rows(rows)
            batch = batches.batch(rows, None if prior is None else prior[offset])
            factors = None if rates is None else rates(done + offset)
            last = report and offset == count - done - 1
            metrics = self.learner.train_step(batch, draws.at(start + offset), factors, report=last)
        return metrics if self._share is None else self._share.metrics(metrics)

    def _draws(self, first: int, count: int) -> tuple[Draws, int]:
        """The random numbers of steps, drawn together with those of the following steps, and the index of the first step."""
        if self._drawn is None or not self._drawn[0] <= first <= first + count <= self._drawn[0] + self._drawn[1]:
            together = max(count, self.eager_chunk)
            part = (0, 1) if self._share is None else self._share.part
            self._drawn = first, together, Draws.of_steps(self.learner.model.seed_tensor, first, together, part)
        return self._drawn[2], first - self._drawn[0]
