"""Compiled gradient steps: a traced step per variant, several of them in one block, and a CUDA graph of each block.

A block draws the random numbers of all its steps at once, gathers all their rows at once, and then runs the compiled function
of each step; a block of many steps gives the same results as that many blocks of one step, with and without a graph.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count as counting
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.algorithms.learner import Learner, Metrics
from rl_training.models.adam import adam_factors
from rl_training.models.mlp.operators import Backward
from rl_training.models.mlp.rounded_weights import RoundedWeights
from rl_training.rng import DrawKey, DrawnAhead, bits
from rl_training.runtime.batches.base import Batches
from rl_training.runtime.execution.compiler_cache import cpp_compiler_available, remember_vector_probes
from rl_training.runtime.execution.cuda_graph import captured
from rl_training.runtime.execution.tracing import COMPILING, TracedStep, Variant, Wanted, trace_step, variant_at
from rl_training.runtime.signals import stop_signals_blocked

LONGEST_BLOCK = 20  # divides the usual intervals, and is a multiple of the usual delays of policies
_MEMBER_STEPS = 256  # members times steps of a block at most, so that a large population's block is short and small
_MAX_BLOCKS = 16  # that are cached; a delay that does not divide the block would produce ever new ones

_COPIES = counting()

Rates = Mapping[str, float]
DeviceWork = Callable[[], None]
"""Something that only launches work on fixed memory of the device, so that it can be captured and repeated."""


@dataclass(frozen=True)
class Block:
    """Gradient steps that are launched together, with other work before and after them; there may be no step."""

    steps: tuple[Variant, ...] = ()
    before: DeviceWork | None = None
    after: DeviceWork | None = None


def block_length(members: int) -> int:
    """Return the steps of a block: the largest divisor of LONGEST_BLOCK that keeps the block small enough."""
    most = max(1, _MEMBER_STEPS // members)
    return next(length for length in range(LONGEST_BLOCK, 0, -1) if LONGEST_BLOCK % length == 0 and length <= most)


class CompilationFailedError(Exception):
    """A step could not be compiled or captured; the learner is in the state after its last complete step."""


class CompiledSteps:
    """Takes gradient steps of a learner through compiled code, on a CUDA device as replays of graphs."""

    def __init__(
        self,
        learner: Learner[Any, Any],
        batches: Batches,
        *,
        precision: str,
        graphs: bool,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """Take rows from `batches`; `announce` is called before anything is compiled."""
        self.learner, self.batches, self.precision, self.graphs = learner, batches, precision, graphs
        self._announce = announce
        self.device = learner.model.device
        self.longest = block_length(learner.model.members)
        self._groups = list(learner.model.trained.groups)
        self._base = torch.zeros((), dtype=torch.int64, device=self.device)  # index of the next step
        self._rates = torch.ones(self.longest, len(self._groups), dtype=torch.float64, device=self.device)
        self._rates_moved = False
        self._steps: dict[Wanted, tuple[TracedStep, Callable[..., list[Tensor]]]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._draw = _drawing(learner.model.seed_tensor)
        self._rounded = RoundedWeights(learner.model, precision if self.device.type == "cuda" else "float32")
        self._next = -1  # the step that `_base` holds
        self._replays: dict[Block, Callable[[], Metrics]] = {}
        self._launched: list[Callable[[], Metrics]] = []
        if graphs:
            batches.use_fixed_buffer(self.longest)

    def run(
        self,
        first: int,
        count: int,
        rates: Callable[[int], Rates] | None = None,
        *,
        report: bool = True,
        before: DeviceWork | None = None,
        after: DeviceWork | None = None,
    ) -> Metrics:
        """Take `count` gradient steps from step `first` on; with `report`, return the metrics of the last.

        `rates` gives the learning-rate factors of each step by its offset, if they are not all 1. `before` and `after` are
        launched with the first and the last of the steps, or alone if there are none.
        """
        if self._next != first:
            self._base.fill_(first)
        self._rounded.refresh()
        metrics: Metrics = {}
        done = 0
        while done < count or before is not None or after is not None:
            steps = self._next_steps(count - done, report=report) if done < count else ()
            closing = done + len(steps) == count
            block = Block(steps, before, after if closing else None)
            replay = self._replays.get(block) or self._prepare(block, first + done)
            self.batches.load(first + done, len(steps))
            self._set_rates(rates, done, len(steps))
            metrics = replay()
            self.learner.step += len(steps)
            done += len(steps)
            before, after = None, None if closing else after
        self._next = first + count
        self._rounded.stepped()
        return metrics if report else {}

    def _set_rates(self, rates: Callable[[int], Rates] | None, done: int, count: int) -> None:
        """Set the learning-rate factors of the next steps."""
        if rates is not None:
            factors = [[rates(done + offset)[group] for group in self._groups] for offset in range(count)]
            self._rates[:count].copy_(torch.tensor(factors, dtype=torch.float64))
        elif self._rates_moved:
            self._rates.fill_(1.0)
        self._rates_moved = rates is not None

    def _next_steps(self, left: int, *, report: bool) -> tuple[Variant, ...]:
        """A whole block where one begins and fits, else a single step; only the last step of a run may report.

        Blocks are counted from where rounds begin. On the CPU, where nothing is captured, a block is as long as possible.
        """
        step, length = self.learner.step, 1
        if self.device.type == "cpu":
            length = min(left, self.longest)
        elif left >= self.longest and (step - self.learner.rounds.first) % self.longest == 0:
            length = self.longest
        reports = [report and offset == left - 1 for offset in range(length)]
        steps = tuple(variant_at(self.learner, step + offset, report=last) for offset, last in enumerate(reports))
        known = len(self._replays) < _MAX_BLOCKS or any(steps == block.steps for block in self._replays)
        return steps if known else steps[:1]

    def _prepare(self, block: Block, first: int) -> Callable[[], Metrics]:
        """Compile what a block needs, and capture it; the learner is left unchanged."""
        kept = [buffer.clone() for buffer in [*self.learner.buffers(), self._base]]
        self._announce()
        try:
            self.batches.load(first, len(block.steps))
            with COMPILING, stop_signals_blocked(), _garbage_kept():
                new = [wanted for wanted in self._wanted_by(block.steps) if wanted not in self._steps]
                self._steps |= {wanted: self._compiled(wanted, first) for wanted in new}
                if new and self.device.type == "cuda":
                    self._compile_kernels(block.steps)
                replay = self._captured(block) if self.graphs else self._run_once(block)
        except Exception as error:
            raise CompilationFailedError(f"{type(error).__name__}: {error}") from error
        finally:
            for buffer, values in zip([*self.learner.buffers(), self._base], kept, strict=True):
                buffer.copy_(values)
            self._rounded.refresh()
        self._replays[block] = replay
        return replay

    def _wanted(self, variant: Variant) -> list[Wanted]:
        """What a step runs. Metrics are traced separately, so that gradients never depend on whether a step reports.

        On the CPU they are always traced with the gradients when every group is due: then they need no extra forward pass.
        """
        due, stage, on_cpu = variant.due, variant.stage, self.device.type == "cpu"
        if not on_cpu and variant.targets and not set(self.learner.model.target_groups) <= set(due):
            raise NotImplementedError("targets are due at a step that does not train their networks")
        if on_cpu and len(due) == len(self.learner.learned_groups):
            return [Wanted(due, metrics=True, stage=stage)]
        reported = [Wanted(due, gradients=False, metrics=True, stage=stage)] if variant.report else []
        return [*reported, Wanted(due, stage=stage)]

    def _wanted_by(self, steps: Sequence[Variant]) -> list[Wanted]:
        return list(dict.fromkeys(wanted for variant in steps for wanted in self._wanted(variant)))

    def _compiled(self, wanted: Wanted, first: int) -> tuple[TracedStep, Callable[..., list[Tensor]]]:
        rows, prior = self._rows(torch.full((1,), first, dtype=torch.int64, device=self.device))
        one = None if prior is None else prior[0]
        given = (self.batches.batch, self.precision, self._rounded.buffers)
        traced = trace_step(self.learner, wanted, rows[0], one, *given)
        if not wanted.gradients:
            return traced, traced.graph  # runs once in many steps, so compiling it would not pay off
        return traced, compile_traced(traced)

    def _rows(self, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        indices, prior = self._compiled_once("indices", self._indices)(steps)
        return self.batches.gather(indices), prior

    def _indices(self, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        """The rows of some steps."""
        shape = (self.batches.batch_size,)
        return self.batches.indices(lambda stream: self._draw((bits, stream, shape), steps), len(steps))

    def _compiled_once(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself on the CPU; on a GPU compiled into a few kernels at the first request, and cached by name."""
        if self.device.type == "cpu":
            return function
        if name not in self._functions:
            self._functions[name] = torch.compile(_with_own_code(function), fullgraph=True, dynamic=False)
        return self._functions[name]

    def _launches(self, block: Block) -> Callable[[], Metrics]:
        """What a block launches, as a function without arguments."""
        take_steps = self._gradient_steps(block.steps) if block.steps else dict[str, Tensor]

        def launch() -> Metrics:
            if block.before is not None:
                block.before()
            metrics = take_steps()
            if block.after is not None:
                block.after()
            return metrics

        return launch

    def _gradient_steps(self, variants: Sequence[Variant]) -> Callable[[], Metrics]:
        """The gradient steps of a block as a function without arguments."""
        parts = [self._steps[wanted][0] for wanted in self._wanted_by(variants)]
        streams = tuple(dict.fromkeys(key for traced in parts for key in traced.streams))
        number = torch.arange(len(variants), dtype=torch.int64, device=self.device)
        increments, wanted = self._increments(variants), [self._wanted(variant) for variant in variants]

        def take_steps() -> Metrics:
            steps = number + self._base
            rows, prior = self._rows(steps)
            drawn = {key: self._draw(key, steps).transpose(0, 1).contiguous() for key in streams}
            factors = self._factors(increments)
            metrics: Metrics = {}
            for offset, variant in enumerate(variants):
                given = (rows[offset], None if prior is None else prior[offset])
                own = {key: values[offset] for key, values in drawn.items()}
                found = self._results(wanted[offset], given, own)
                self._apply(variant, found, factors, offset)
                metrics = found.metrics
                del found  # before the next step needs as much memory
            self._count(increments)
            self._base.add_(len(variants))
            return metrics

        return take_steps

    def _results(
        self, parts: Sequence[Wanted], given: tuple[Tensor, Tensor | None], drawn: Mapping[DrawKey, Tensor]
    ) -> "_Results":
        """What one step gives."""
        model, found = self.learner.model, _Results({}, {}, {})
        inputs = (model.trained.flat, model.targets.flat, *given, *self._rounded.buffers, *self.learner.moving.values())
        for wanted in parts:
            traced, function = self._steps[wanted]
            results = iter(function(*inputs, *(drawn[key] for key in traced.streams)))
            found.gradients.update((name, next(results)) for name in traced.segments)
            found.metrics.update((name, next(results)) for name in traced.metrics)
            found.postponed.update((own.segments, own.backward(results)) for own in traced.postponed)
        return found

    def _increments(self, variants: Sequence[Variant]) -> Tensor:
        """How often each group has been trained within the block, up to and including each step."""
        due = [[float(group in variant.due) for group in self._groups] for variant in variants]
        return torch.tensor(due, dtype=torch.float64, device=self.device).cumsum(0)

    def _factors(self, increments: Tensor) -> Tensor | None:
        if self.device.type != "cuda":
            return None
        optimizer = self.learner.optimizer
        counts = torch.cat([optimizer.counts[group] for group in self._groups], dim=1)
        function = self._compiled_once("factors", adam_factors)
        rates = (optimizer.learning_rates, self._rates[: len(increments)])
        factors: Tensor = function(counts, increments, *rates, optimizer.weight_decays)
        return factors

    def _apply(self, variant: Variant, found: "_Results", factors: Tensor | None, offset: int) -> None:
        learner = self.learner
        if factors is None:
            rates = dict(zip(self._groups, self._rates[offset].tolist(), strict=True))
            learner.move(found.gradients, variant.due, rates, targets=variant.targets)
        else:
            followed = learner.model if variant.targets else None
            given = (found.gradients, factors[offset], followed, learner.tau, self._rounded.buffers)
            learner.optimizer.kernel_step(*given, found.postponed)

    def _count(self, increments: Tensor) -> None:
        if self.device.type == "cuda":
            for column, group in enumerate(self._groups):
                self.learner.optimizer.counts[group].add_(increments[-1, column])

    def _compile_kernels(self, variants: Sequence[Variant]) -> None:
        """Compile the kernels of gradient steps side by side; a first run would compile one after another."""
        from rl_training.models.mlp.triton.launch import only_compiled  # needs Triton

        with only_compiled():
            self._gradient_steps(variants)()

    def _captured(self, block: Block) -> Callable[[], Metrics]:
        """The block as a CUDA graph."""
        launch = self._launches(block)
        self._launched.append(launch)  # keeps alive the tensors that the graph reads
        return captured(launch, self.device)

    def _run_once(self, block: Block) -> Callable[[], Metrics]:
        """The block itself, after one run, because some of it is compiled only when it first runs."""
        launch = self._launches(block)
        launch()
        return launch


class _Results(NamedTuple):
    """What one step gives: gradients by segment, what others are computed from by their segments, and metrics by name."""

    gradients: dict[str, Tensor]
    postponed: dict[tuple[str, ...], Backward]
    metrics: Metrics


def compile_traced(traced: TracedStep) -> Callable[..., list[Tensor]]:
    """Return a traced step as compiled code, without the argument checks that `torch.compile` adds to each call.

    Those would take half a millisecond of every step, and here the arguments always have the same shapes.
    """
    on_cpu = all(value is None or value.is_cpu for value in traced.example)
    if on_cpu and not cpp_compiler_available():
        raise FileNotFoundError("there is no C++ compiler: install g++, or name one in CXX")
    import torch._inductor  # takes two seconds, and only compiling needs it
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if on_cpu:
        remember_vector_probes()
    shapes = FakeTensorMode(shape_env=ShapeEnv())  # without it the compiler caches nothing for the next start
    inputs: list[Any] = [None if value is None else shapes.from_tensor(value, static_shapes=True) for value in traced.example]
    with tracing(TracingContext(shapes)):
        function: Callable[..., list[Tensor]] = torch._inductor.compile(traced.graph, inputs)
    return function


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect no garbage inside the block: most of what the compiler makes stays, and looking it through takes a second."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # both together make every object an old one, which is looked through rarely
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with its own code object: the compiler's limit on recompilations is per code object."""
    plain = getattr(function, "__func__", function)
    code = plain.__code__.replace(co_name=f"{plain.__name__}_{next(_COPIES)}")
    copy = FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
    owner = getattr(function, "__self__", None)
    return copy if owner is None else MethodType(copy, owner)


def _drawing(seeds: Tensor) -> Callable[[DrawKey, Tensor], Tensor]:
    """Draws of consecutive steps, (members, steps, *shape): by a kernel on a GPU, many in advance on the CPU."""
    if not seeds.is_cuda:
        return DrawnAhead(seeds)
    from rl_training.rng_kernel import drawn  # needs Triton

    return partial(drawn, seeds)
