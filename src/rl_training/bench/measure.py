"""Gradient steps per second, taken exactly as in a training run, and their share of the machine's ceilings."""

import contextlib
import platform
from collections.abc import Callable, Sequence
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rl_training
from rl_training.algorithms.learner import Rounds
from rl_training.bench.against import TWINS, Rival, check_comparable
from rl_training.bench.ceilings import copying, products, traffic_bytes
from rl_training.bench.kernels import kernels_per_step
from rl_training.bench.passes import Shapes, updates_of
from rl_training.bench.rounds import Clocked, Timing, alternate, clocked
from rl_training.bench.settings import BenchSettings
from rl_training.config.run import RunConfig
from rl_training.data.packing import row_layout
from rl_training.data.processing import ProcessedDataset
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import StorageError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.batches.dataset import DatasetBatches
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.execution.mode import applied, check_execution, resolve_device, resolve_execution
from rl_training.runtime.execution.steps import Executor, GradientSteps

_ROUND_SECONDS = 0.1  # short, so that some rounds are not disturbed by other processes
_LEAST_ROUNDS = 3
_MANY_STEPS = 10**9  # planned steps, so that steps are compiled as in a long run

Say = Callable[[str], None]


def synthetic(rows: int, observations: int, actions: int, needs: Sequence[str] = ()) -> ProcessedDataset:
    """Return random rows of the given shape, with the optional fields in `needs`, as if processed for a run."""
    layout = row_layout(observations, actions, needs)
    draw = np.random.Generator(np.random.Philox(0))
    packed = draw.standard_normal((rows, layout.width), dtype=np.float32)
    columns = layout.columns(torch.from_numpy(packed))
    for name in ("actions", "next_actions"):
        if name in columns:
            columns[name].clamp_(-1.0, 1.0)
    columns["terminals"].zero_()
    bound = np.ones(actions, dtype=np.float32)
    spaces = Spaces(observations, actions, -bound, bound)
    return ProcessedDataset(packed, layout, spaces, Transforms.identity(observations), "", np.zeros(rows, dtype=bool))


def bench_steps(
    config: RunConfig[Any], data: ProcessedDataset, device: torch.device, warn: Say = lambda _: None
) -> tuple[GradientSteps, Executor]:
    """Return the config's gradient steps on the data, exactly as in a long training run, and their executor."""
    spec = get_spec(config.algo)
    learner = build_learner(config.algo, data.spaces, config.member_seeds, device, config.algo_kwargs)
    prior = spec.online and spec.takes_data
    batches = DatasetBatches(data, learner.model.seed_tensor, config.algo_kwargs.batch_size, device, prior=prior)
    steps = GradientSteps(learner, batches, Rounds(length=config.algo_kwargs.round_length))
    executor = Executor(resolve_execution(config, learner, None, _MANY_STEPS), warn)
    steps.execute_with(executor)
    return steps, executor


def take_steps(steps: GradientSteps, count: int) -> None:
    """Take gradient steps in chunks, as a training run does."""
    while count > 0:
        chunk = min(count, steps.chunk)
        steps.run(steps.learner.step, chunk)
        count -= chunk


def measure(settings: BenchSettings, rival: Rival | None = None, say: Say = lambda _: None) -> dict[str, Any]:
    """Return the figures of each requested algorithm as plain values; with `all`, a rival is timed where it has a twin."""
    configs, device = settings.configs(), resolve_device(settings.device)
    matched = {config.algo for config in configs if rival is not None and (settings.algo != "all" or config.algo in TWINS)}
    for algo in matched:
        check_comparable(algo, settings.algo_kwargs, settings.precision)
    for config in configs:
        check_execution(config, device)
    say(f"{settings.rows:,} synthetic rows, {device_name(device)}")
    results = []
    try:
        for config in configs:
            opposed = rival if config.algo in matched else None
            data = synthetic(settings.rows, settings.obs, settings.act, get_spec(config.algo).needs)
            results.append(measure_algorithm(config, data, device, settings.seconds, opposed, say))
    except torch.OutOfMemoryError as error:
        raise StorageError("the device ran out of memory; lower --members, --batch-size, --hidden or --rows") from error
    return {**versions(device), "results": results}


def versions(device: torch.device) -> dict[str, str]:
    """Return what figures depend on in addition to settings: versions and machine."""
    own = {"rl_training": rl_training.__version__, "torch": torch.__version__, "machine": platform.machine()}
    return {**own, "device_name": device_name(device)}


def measure_algorithm(
    config: RunConfig[Any],
    data: ProcessedDataset,
    device: torch.device,
    seconds: float,
    rival: Rival | None = None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Return the figures of one algorithm: speed, execution, kernels, both ceilings, and those of a rival if one is given."""
    say(f"{config.algo}: getting ready")
    steps, executor = bench_steps(config, data, device, say)
    try:
        with applied(executor.execution), contextlib.ExitStack() as stack:
            subject = _Subject(config, steps, executor, data, seconds)
            functions = subject.functions()
            opponent = None
            if rival is not None:
                sizes = data.spaces.observation_dim, data.spaces.action_dim
                opponent = stack.enter_context(
                    rival.opponent(config, len(data), sizes, executor.execution, device_with_index(device))
                )
                functions.append(opponent.round_of(subject.round_seconds))
            say(f"{config.algo}: {seconds:g} s" + (f" in turns with {opponent.name}" if opponent else ""))
            timings = alternate(functions, rounds=_LEAST_ROUNDS, seconds=seconds)
            figures = subject.report(timings)
            speed = figures["member_updates_per_second"]
            figures["against"] = None if opponent is None else opponent.report(timings[-1], speed)
            return {**subject.description(), **figures}
    finally:
        steps.batches.close()


class _Subject:
    """One algorithm to be timed, with its ceilings."""

    def __init__(
        self, config: RunConfig[Any], steps: GradientSteps, executor: Executor, data: ProcessedDataset, seconds: float
    ) -> None:
        self._config, self._gradient_steps, self._executor, self._data = config, steps, executor, data
        self._device, self._members = steps.learner.model.device, steps.learner.model.members
        shapes = Shapes(data.spaces.observation_dim, data.spaces.action_dim, config.algo_kwargs)
        self._updates = updates_of(config.algo, shapes, self._members)
        self._products, self._block = products(self._updates, self._device, executor.execution.precision)
        self._copy, self._copied = copying(self._device)
        self.round_seconds = min(_ROUND_SECONDS, seconds / 5)
        self.steps = self._steps_per_round()

    def _finish(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _clocked(self, function: Callable[[], object]) -> Clocked:
        return clocked(function, self._finish)

    def _steps_per_round(self) -> int:
        """Whole patterns that take about as long as a round should, and whole chunks if a chunk takes no longer."""
        whole = lcm(self._gradient_steps.chunk, self._block)
        tried = whole if self._gradient_steps.compiled is not None else self._block
        take = self._clocked(lambda: take_steps(self._gradient_steps, tried))
        take()  # to compile and allocate before timing
        steps = max(1, round(self.round_seconds / take())) * tried
        return steps if steps < whole else steps // whole * whole

    def functions(self) -> list[Clocked]:
        """Return the rounds: gradient steps, their products, and a copy."""

        def multiply() -> None:
            for _ in range(self.steps // self._block):
                self._products()

        work = (lambda: take_steps(self._gradient_steps, self.steps), multiply, self._copy)
        rounds = [self._clocked(one) for one in work]
        for one in rounds:
            one()
        return rounds

    def description(self) -> dict[str, Any]:
        """Return what was measured, and how it was executed."""
        kwargs, resolved, spaces = self._config.algo_kwargs, self._executor.execution, self._data.spaces
        return {
            "algo": self._config.algo,
            "members": self._members,
            "hidden_sizes": list(kwargs.hidden_sizes),
            "batch_size": kwargs.batch_size,
            "observations": spaces.observation_dim,
            "actions": spaces.action_dim,
            "rows": len(self._data),
            "device": resolved.device,
            "engine": resolved.mode,
            "precision": resolved.precision,
            "deterministic": resolved.deterministic,
            "threads": resolved.threads,
        }

    def report(self, timings: Sequence[Timing]) -> dict[str, Any]:
        """Return speeds, kernels and ceilings from the timings of `functions`."""
        steps, multiplied, copied = timings[:3]
        rates = steps.rates(self.steps)
        step_seconds, products_seconds = steps.best / self.steps, multiplied.best / self.steps
        moved, bandwidth = traffic_bytes(self._gradient_steps.learner, len(self._updates)), self._copied / copied.best
        profiled = min(self.steps, lcm(self._gradient_steps.chunk, self._block))
        return {
            "rounds": len(steps.rounds),
            "steps_per_round": self.steps,
            "steps_per_second": rates["best"],
            "steps_per_second_median": rates["median"],
            "steps_per_second_worst": rates["worst"],
            "member_updates_per_second": self._members * rates["best"],
            "step_seconds": step_seconds,
            "kernels_per_step": kernels_per_step(lambda: take_steps(self._gradient_steps, profiled), profiled, self._device),
            "products_seconds": products_seconds,
            "traffic_bytes": moved,
            "copy_bytes_per_second": bandwidth,
            "traffic_seconds": moved / bandwidth,
            "share_of_products": products_seconds / step_seconds,
            "share_of_products_and_traffic": (products_seconds + moved / bandwidth) / step_seconds,
        }


def device_with_index(device: torch.device) -> str:
    """Return the device with an index, as other libraries require: `cuda` becomes `cuda:0`."""
    return "cuda:0" if device.type == "cuda" and device.index is None else str(device)


def device_name(device: torch.device) -> str:
    """Return the vendor's name of a device, if the machine reports it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
