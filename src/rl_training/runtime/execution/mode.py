"""Where and how steps run: device, mode, precision and threads, resolved once and stored in every checkpoint."""

import contextlib
import ctypes
import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.utils.deterministic

from rl_training.algorithms.learner import Learner
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError
from rl_training.models.mlp.eager import bf16_products
from rl_training.models.mlp.operators import triton_available
from rl_training.models.threads import SMALL_WORK, weights
from rl_training.runtime.execution.compiler_cache import cpp_compiler_available

CHUNK_LIMIT = 100  # steps between two checks of the watchdog and the signals, at most
_CHUNK_OPERATIONS = 2e10  # floating-point operations of a chunk: well under a second on one slow core
_GPU_CHUNK_OPERATIONS = 1e13  # the same for compiled steps on a GPU
STEPS_WORTH_COMPILING = {"cuda": 10_000, "cpu": 30_000}  # of a run; below, compiling takes longer than it saves


_forked = False


def _note_fork() -> None:
    global _forked  # noqa: PLW0603 - a fact about the process
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def leave_lost_threads(warn: Callable[[str], None]) -> None:
    """Use one thread in a process that was forked since torch was loaded: it would wait forever for those of its parent."""
    if _forked and (threads := torch.get_num_threads()) > 1:
        torch.set_num_threads(1)
        warn(f"this process is a fork, so torch's {threads} threads are gone: it uses one; start it with `spawn` for more")


@dataclass(frozen=True)
class Execution:
    """How a run's steps are executed; stored in every checkpoint and applied again on resume."""

    device: str
    mode: str
    precision: str
    deterministic: bool
    threads: int
    torch: str
    machine: str
    batch_parts: int = 1  # ranks that share every batch: their sums are in another order than those of one

    def record(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; a batch that is not split is not mentioned."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("batch_parts", 1)}


def resolve_device(name: str) -> torch.device:
    """Return the device of a name, or raise a ConfigError that lists what is available."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; makes products repeatable
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", name):
        raise ConfigError(f"device = {name!r} is not known; use auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise ConfigError(f"device = {name!r} not found: this machine has {count} CUDA devices; use auto or cpu")
    return device


def check_execution(config: RunConfig[Any], device: torch.device) -> None:
    """Raise a ConfigError for a mode or precision that a device does not support; cheap, so done before data is read."""
    if config.precision != "float32" and device.type == "cpu":
        raise ConfigError(f"precision = {config.precision!r} needs a CUDA device; use float32 on the CPU")
    if config.engine == "graph" and device.type == "cpu":
        raise ConfigError("engine = 'graph' needs a CUDA device; use eager or compile on the CPU")


def resolve_execution(
    config: RunConfig[Any],
    learner: Learner[Any, Any],
    stored: dict[str, Any] | None,
    planned_steps: int = 0,
    *,
    batch_parts: int = 1,
) -> Execution:
    """Return how a run of `planned_steps` gradient steps is executed; a checkpoint's record decides on mode and threads.

    Steps on a batch that ranks share are eager, since they meet in the middle of each.
    """
    device = learner.model.device
    check_execution(config, device)
    small = step_operations(learner, config.algo_kwargs.batch_size, len(config.member_seeds)) < SMALL_WORK
    wanted = 1 if small else torch.get_num_threads()
    threads = wanted if stored is None else max(1, min(int(stored["threads"]), torch.get_num_threads()))
    mode: str = config.engine if batch_parts == 1 else "eager"
    if mode == "auto":
        mode = (
            stored["mode"] if stored is not None and stored["device"] == device.type else fastest_mode(device, planned_steps)
        )
    return Execution(
        device=device.type,
        mode=mode,
        precision=config.precision,
        deterministic=config.deterministic,
        threads=threads,
        torch=torch.__version__,
        machine=platform.machine(),
        batch_parts=batch_parts,
    )


def fastest_mode(device: torch.device, planned_steps: int) -> str:
    """Return the fastest mode: compiled steps, as graphs on a GPU, if the run is long enough for compiling to pay off."""
    if planned_steps < STEPS_WORTH_COMPILING[device.type]:
        return "eager"
    if device.type == "cuda":
        return "graph" if triton_available() else "eager"
    return "compile" if cpp_compiler_available() else "eager"


@contextlib.contextmanager
def applied(execution: Execution) -> Iterator[None]:
    """Apply an execution's threads and flags to torch inside the block, and restore the previous ones after it."""
    guard: Any = torch.utils.deterministic
    threads, tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    deterministic, fill = torch.are_deterministic_algorithms_enabled(), guard.fill_uninitialized_memory
    torch.set_num_threads(execution.threads)
    if execution.device == "cpu":
        keep_freed_memory()
    else:
        torch.backends.cuda.matmul.allow_tf32 = execution.precision == "tf32"
        guard.fill_uninitialized_memory = False  # a debugging aid that costs a kernel per allocation
        torch.use_deterministic_algorithms(execution.deterministic)
    try:
        with bf16_products(execution.precision == "bf16"):
            yield
    finally:
        torch.set_num_threads(threads)
        if execution.device != "cpu":
            torch.backends.cuda.matmul.allow_tf32 = tf32
            guard.fill_uninitialized_memory = fill
            torch.use_deterministic_algorithms(deterministic)


def step_operations(learner: Learner[Any, Any], batch_size: int, members: int) -> float:
    """Return an upper estimate of the floating-point operations of one gradient step of so many members."""
    per_row = 8 * members * weights(learner.model)
    return float(per_row * batch_size * learner.knobs.rows_per_transition)


def chunk_length(learner: Learner[Any, Any], batch_size: int, members: int, *, compiled: bool = False) -> int:
    """Return the steps of a chunk: a function of shapes and mode alone, so that every run has the same boundaries.

    `members` are those of the whole run, so that they are the same on any number of ranks.
    """
    limit, operations = (1000, _GPU_CHUNK_OPERATIONS) if compiled else (CHUNK_LIMIT, _CHUNK_OPERATIONS)
    return max(1, min(limit, int(operations / step_operations(learner, batch_size, members))))


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, because every step frees and allocates the same megabytes again."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_threshold, 2**30)
