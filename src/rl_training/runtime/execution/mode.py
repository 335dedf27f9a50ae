"""The engine: where and how steps run. It resolves device, mode, precision and threads once, and knows no algorithm."""

import contextlib
import ctypes
import os
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor

from rl_training.algorithms.learner import Learner, Metrics
from rl_training.errors import ConfigError
from rl_training.models.mlp_math import bf16_products
from rl_training.models.mlp_ops import triton_available
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.compiled import CompilationFailedError, CompiledSteps
from rl_training.runtime.compiler import cpp_compiler_available, use_private_cache
from rl_training.runtime.feeds import RowFeed
from rl_training.runtime.schedules import schedule_factor
from rl_training.runtime.settings import RunSettings

CHUNK_LIMIT = 100  # most steps between two looks at the watchdog and the signals
_CHUNK_OPERATIONS = 2e10  # floating-point operations of a chunk: well under a second on one slow core
_GPU_CHUNK_OPERATIONS = 1e13  # the same for compiled steps on a GPU
STEPS_WORTH_COMPILING = {"cuda": 10_000, "cpu": 30_000}  # of a run; below, compiling takes longer than it saves
_SMALL_STEP = 2e8  # below this a second thread costs more than it gives


@dataclass(frozen=True)
class ResolvedEngine:
    """What a run really used; stored in every checkpoint and applied again on resume."""

    device: str
    mode: str
    precision: str
    deterministic: bool
    threads: int
    torch: str
    machine: str

    def record(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return asdict(self)


def resolve_device(name: str) -> torch.device:
    """Return the device a name stands for, or a ConfigError that says what there is."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read once, when CUDA starts; makes products repeatable
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", name):
        raise ConfigError(f"device = {name!r} is not known; use auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise ConfigError(f"device = {name!r} is not there: this machine has {count} CUDA devices; use auto or cpu")
    return device


def check_engine(settings: RunSettings, device: torch.device) -> None:
    """Raise a ConfigError for a mode or precision that a device does not have; cheap, before any data is made."""
    if settings.precision != "float32" and device.type == "cpu":
        raise ConfigError(f"precision = {settings.precision!r} needs a CUDA device; use float32 on the CPU")
    if settings.engine == "graph" and device.type == "cpu":
        raise ConfigError("engine = 'graph' needs a CUDA device; use eager or compile on the CPU")


def resolve_engine(
    settings: RunSettings, learner: Learner[Any, Any], stored: dict[str, Any] | None, planned_steps: int = 0
) -> ResolvedEngine:
    """Return mode, precision and threads for a run of so many gradient steps, from a checkpoint's record if there is one."""
    device = learner.model.device
    check_engine(settings, device)
    small = step_operations(learner, settings.algo_kwargs.batch_size) < _SMALL_STEP
    wanted = 1 if small else torch.get_num_threads()
    threads = wanted if stored is None else max(1, min(int(stored["threads"]), torch.get_num_threads()))
    mode = settings.engine
    if mode == "auto":
        mode = stored["mode"] if stored is not None and stored["device"] == device.type else _mode(device, planned_steps)
    return ResolvedEngine(
        device=device.type,
        mode=mode,
        precision=settings.precision,
        deterministic=settings.deterministic,
        threads=threads,
        torch=torch.__version__,
        machine=platform.machine(),
    )


def _mode(device: torch.device, planned_steps: int) -> str:
    """Compiled steps, as graphs on a GPU, where a run is long enough to win back the time to compile and can."""
    if planned_steps < STEPS_WORTH_COMPILING[device.type]:
        return "eager"
    if device.type == "cuda":
        return "graph" if triton_available() else "eager"
    return "compile" if cpp_compiler_available() else "eager"


@contextlib.contextmanager
def applied(engine: ResolvedEngine) -> Iterator[None]:
    """Apply an engine's threads and flags to torch for the length of a block, and put back what was there."""
    guard: Any = torch.utils.deterministic
    threads, tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    deterministic, fill = torch.are_deterministic_algorithms_enabled(), guard.fill_uninitialized_memory
    torch.set_num_threads(engine.threads)
    if engine.device == "cpu":
        keep_freed_memory()
    else:
        torch.backends.cuda.matmul.allow_tf32 = engine.precision == "tf32"
        guard.fill_uninitialized_memory = False  # a help for debugging that costs a kernel each
        torch.use_deterministic_algorithms(engine.deterministic)
    try:
        with bf16_products(engine.precision == "bf16"):
            yield
    finally:
        torch.set_num_threads(threads)
        if engine.device != "cpu":
            torch.backends.cuda.matmul.allow_tf32 = tf32
            guard.fill_uninitialized_memory = fill
            torch.use_deterministic_algorithms(deterministic)


def step_operations(learner: Learner[Any, Any], batch_size: int) -> float:
    """Return an upper estimate of the floating-point operations of one gradient step."""
    weights = sum(prod(spec.shape) for segment in learner.model.trained.segments for spec in segment.specs)
    return float(8 * learner.model.members * weights * batch_size * learner.knobs.rows_per_transition)


def chunk_length(learner: Learner[Any, Any], batch_size: int, *, compiled: bool = False) -> int:
    """Return the steps of a chunk: a function of shapes and mode alone, so that every run has the same boundaries."""
    limit, operations = (1000, _GPU_CHUNK_OPERATIONS) if compiled else (CHUNK_LIMIT, _CHUNK_OPERATIONS)
    return max(1, min(limit, int(operations / step_operations(learner, batch_size))))


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks: a step frees and takes the same megabytes over and over."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_threshold, 2**30)


class Acceleration:
    """How gradient steps run now: as resolved at the start, or eagerly once compiling has failed."""

    def __init__(
        self, resolved: ResolvedEngine, warn: Callable[[str], None], note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.resolved, self._warn, self._note = resolved, warn, note
        self._announced = False

    @property
    def compiles(self) -> bool:
        """Whether steps go through compiled code."""
        return self.resolved.mode != "eager"

    @property
    def on_gpu(self) -> bool:
        """Whether compiled steps run on a GPU."""
        return self.compiles and self.resolved.device == "cuda"

    def steps(self, learner: Learner[Any, Any], feed: RowFeed) -> CompiledSteps:
        """Return compiled steps of a learner on the rows of a feed."""
        use_private_cache()
        graphs = self.resolved.mode == "graph"
        return CompiledSteps(learner, feed, precision=self.resolved.precision, graphs=graphs, announce=self._announce)

    def _announce(self) -> None:
        """Say, once, that compiling begins."""
        if not self._announced:
            self._note(f"engine `{self.resolved.mode}`: compiling the first steps, up to some minutes; a signal waits for it")
        self._announced = True

    def give_up(self, error: CompilationFailedError) -> None:
        """Go on eagerly, and say so once."""
        reason = str(error).strip().splitlines()[0][:300]
        self._warn(
            f"engine `{self.resolved.mode}` failed, going on with `eager`, whose last digits differ ({reason}); "
            "`--engine eager` does not try"
        )
        self.resolved = replace(self.resolved, mode="eager")


@dataclass(frozen=True)
class Phase:
    """A stretch of positions in one unit; intervals count from its first, and its last is always evaluated and saved."""

    first: int
    last: int
    chunk: int  # most positions between two looks at the watchdog and the signals


class Engine(ABC):
    """Advances a learner; the result of a step never depends on the chunk it falls in.

    A *position* counts in the unit of `total_timesteps`: gradient steps offline, environment steps online.
    """

    unit = "step"  # what a position is called

    def __init__(
        self, learner: Learner[Any, Any], schedules: Mapping[str, str], total: int, chunk: int, span: int | None = None
    ) -> None:
        self.learner, self.total, self.chunk = learner, total, chunk
        self._eager_chunk = chunk
        self._span = total if span is None else span  # what the schedules of the learning rates stretch over
        self._schedules = {group: schedules.get(group, "constant") for group in learner.model.trained.groups}
        self.acceleration: Acceleration | None = None
        self.compiled: CompiledSteps | None = None

    def rates(self, position: int) -> dict[str, float]:
        """Return the learning-rate factor of each group at a position."""
        return {group: schedule_factor(name, position, self._span) for group, name in self._schedules.items()}

    @property
    def planned_steps(self) -> int:
        """The gradient steps of the whole run."""
        return self.total

    def accelerate(self, acceleration: Acceleration) -> None:
        """Let gradient steps run as resolved; called once, before the first."""
        self.acceleration = acceleration
        if acceleration.compiles:
            self.compiled = acceleration.steps(self.learner, self.feed(acceleration))

    def feed(self, acceleration: Acceleration) -> RowFeed:
        """Return where compiled steps take their rows."""
        raise NotImplementedError

    def take_compiled(
        self, first: int, count: int, rates: Callable[[int], Mapping[str, float]] | None, *, report: bool
    ) -> tuple[int, Metrics]:
        """Take gradient steps from number `first` on through compiled code; return how many it took, and metrics.

        They are fewer than `count` where there is none, or when compiling failed: the others are to be taken eagerly.
        """
        if self.compiled is None or self.acceleration is None or not self.acceleration.compiles:
            return 0, {}
        before = self.learner.step
        try:
            return count, self.compiled.run(first, count, rates, report=report)
        except CompilationFailedError as error:
            self.acceleration.give_up(error)
            self.compiled, self.chunk = None, self._eager_chunk
            return self.learner.step - before, {}

    @property
    def has_schedules(self) -> bool:
        """Whether any learning rate moves."""
        return any(name != "constant" for name in self._schedules.values())

    def prepare(self, first: int, count: int) -> None:
        """Do what can fail outside the learner before `run` is called with the same steps."""
        del first, count

    @abstractmethod
    def run(self, first: int, count: int) -> Metrics:
        """Advance from position `first` by `count`; return the metrics of the last gradient step, none if there was none."""

    def counters(self, position: int) -> dict[str, int]:
        """Return the counters of a position, as metric rows and the names of checkpoints show them."""
        return {"step": position}

    def position(self, checkpoint: Checkpoint) -> int:
        """Return the position at which a checkpoint stands."""
        return checkpoint.step

    def phase(self, position: int) -> Phase:
        """Return the phase that leads to a position."""
        del position
        return Phase(0, self.total, self.chunk)

    def label(self, position: int) -> str:
        """Return the words for a position, such as `step 120`."""
        return f"{self.unit} {position}"

    def member_metrics(self, member: int) -> dict[str, float]:
        """Return what a log row shows of a member beside the learner's metrics."""
        del member
        return {}

    def freeze(self, members: Collection[int]) -> None:
        """Learn which members have stopped."""
        del members

    def tensors(self, position: int) -> dict[str, Tensor]:
        """Return what a checkpoint at a position holds beside the learner, under names that begin with `online/`."""
        del position
        return {}

    def state(self, position: int) -> dict[str, Any]:
        """Return plain values for a checkpoint at a position."""
        del position
        return {}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take back what `tensors` and `state` gave."""
        del checkpoint

    def forget_unless(self, referenced: Callable[[], Collection[str] | None]) -> None:
        """Remove stored data that no checkpoint refers to by name; `referenced` is None when one cannot be read."""
        del referenced

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Let go of whatever is held."""
