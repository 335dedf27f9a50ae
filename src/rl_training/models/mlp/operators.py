"""Perceptrons as three operators that are opaque to the compiler: forward, hidden gradients, parameter gradients.

Each takes a list of *jobs*, networks with the same hidden layers that do not depend on one another, so that several calls
can be merged into one launch. A call is one Triton kernel on a GPU; there is no other implementation. Networks whose shape
the kernels do not support are traced operation by operation instead, and so is every network on the CPU.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.models.mlp.layout import MLPLayout

SMALLEST_WIDTH, LARGEST_WIDTH = 16, 512  # of a hidden layer that has a kernel
_precision: str | None = None
_owner = 0  # the thread that traces


class Backward(NamedTuple):
    """What gradients of parameters are computed from, for each job; as in `mlp_gradients`, with layouts as such."""

    firsts: Sequence[Tensor]
    seconds: Sequence[Tensor]
    second_widths: Sequence[int]
    gradients: Sequence[Tensor]
    saved: Sequence[Tensor]
    hidden: Sequence[Tensor]
    layouts: Sequence[MLPLayout]
    precision: str


@contextlib.contextmanager
def fused_networks(precision: str) -> Iterator[None]:
    """Trace networks inside the block for a compiler, on a GPU as operators of this module in the given precision.

    One thread at a time may do so. On the CPU others may take eager steps meanwhile; on a GPU torch has threads of its own
    for the backward pass, so there the switch is the process's.
    """
    global _precision, _owner  # noqa: PLW0603 - a switch, set while a step is traced
    before, _precision, _owner = _precision, precision, threading.get_ident()
    try:
        yield
    finally:
        _precision = before


def recorded_plainly(device: torch.device) -> bool:
    """Return whether a network is being traced as plain operations, which the CPU's compiler fuses itself."""
    return _precision is not None and device.type == "cpu" and _owner == threading.get_ident()


def fused_precision(layout: MLPLayout, device: torch.device) -> str | None:
    """Return the precision in which a network calls these operators, None if it does not call them."""
    if _precision is None or (device.type == "cuda" and not has_kernels(layout)):
        return None
    if device.type == "cpu" and _owner != threading.get_ident():
        return None
    return _precision


def has_kernels(layout: MLPLayout) -> bool:
    """Return whether the kernels support a shape: hidden layers of widths that are powers of two."""
    powers = all(SMALLEST_WIDTH <= width <= LARGEST_WIDTH and width & (width - 1) == 0 for width in layout.hidden)
    return powers and layout.widths[-1] <= LARGEST_WIDTH and triton_available()


@lru_cache(maxsize=1)
def triton_available() -> bool:
    """Return whether Triton is installed."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def _saved_type(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _rows(first: Tensor, second: Tensor, second_width: int) -> int:
    return second.shape[1] if second_width else first.shape[1]


def _operator(name: str, launched: str, arguments: str, results: Callable[..., list[Tensor]]) -> Any:
    """An operator on lists of tensors that a GPU runs as one kernel; `results` allocates its results."""

    def run(*given: Any) -> list[Tensor]:
        from rl_training.models.mlp.triton import launch  # needs Triton

        *others, layouts, precision = given
        return list(getattr(launch, launched)(*others, MLPLayout.decode(layouts), precision))

    schema = f"({arguments}, int[] layouts, str precision) -> Tensor[]"
    operator = torch.library.custom_op(f"rl_training::{name}", run, mutates_args=(), device_types="cuda", schema=schema)
    operator.register_fake(results)
    return operator


def empty_outputs(
    columns: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    layouts: Sequence[MLPLayout],
    precision: str,
) -> list[Tensor]:
    """Return uninitialised results of `mlp_forward`."""
    results = []
    for own, first, second, width, layout in zip(columns, firsts, seconds, second_widths, layouts, strict=True):
        members, rows = own.shape[0], _rows(first, second, width)
        dtype = _saved_type(precision)
        size = layout.saved_size(members * layout.ensemble, rows, dtype.itemsize)
        results += [
            own.new_empty(members, layout.ensemble, rows, layout.widths[-1]),
            own.new_empty(size, dtype=dtype),
        ]
    return results


def empty_hidden_gradients(
    gradients: Sequence[Tensor], saved: Sequence[Tensor], wanted: Sequence[int], layouts: Sequence[MLPLayout]
) -> list[Tensor]:
    """Return uninitialised results of `mlp_hidden_gradients`."""
    results = []
    for gradient, kept, count, layout in zip(gradients, saved, wanted[1::2], layouts, strict=True):
        members, critics, rows, _ = gradient.shape
        hidden = kept.new_empty(layout.gradient_size(members * critics, rows))
        results += [hidden, gradient.new_empty(members, critics, rows, count)]
    return results


def _empty_forward(*given: Any) -> list[Tensor]:
    columns, _rounded, firsts, seconds, second_widths, _trained, layouts, precision = given
    return empty_outputs(columns, firsts, seconds, second_widths, MLPLayout.decode(layouts), precision)


def _empty_hidden_gradients(*given: Any) -> list[Tensor]:
    _columns, _rounded, gradients, saved, wanted, layouts, _precision = given
    return empty_hidden_gradients(gradients, saved, wanted, MLPLayout.decode(layouts))


def _empty_gradients(*given: Any) -> list[Tensor]:
    gradients, layouts = given[3], given[-2]
    return [g.new_empty(g.shape[0], layout.size) for g, layout in zip(gradients, MLPLayout.decode(layouts), strict=True)]


mlp_forward = _operator(
    "mlp_forward",
    "forward",
    "Tensor[] columns, Tensor[] rounded, Tensor[] firsts, Tensor[] seconds, int[] second_widths, int[] trained",
    _empty_forward,
)
"""For each job its outputs (members, critics, rows, out) and what its backward pass needs, as in `MLPLayout.saved_views`.

`rounded` are the columns in bfloat16, of all jobs or of none; see `RoundedWeights`. `trained` says which jobs will have a
backward pass; the saved values of the others are undefined.
"""
mlp_hidden_gradients = _operator(
    "mlp_hidden_gradients",
    "hidden_gradients",
    "Tensor[] columns, Tensor[] rounded, Tensor[] gradients, Tensor[] saved, int[] wanted",
    _empty_hidden_gradients,
)
"""For each job the gradients at its hidden layers, as in `MLPLayout.gradient_views`, and at the wanted inputs.

`wanted` holds the first wanted column and the number of columns of each job; the result is (members, critics, rows, columns).
"""
mlp_gradients = _operator(
    "mlp_gradients",
    "parameter_gradients",
    "Tensor[] firsts, Tensor[] seconds, int[] second_widths, Tensor[] gradients, Tensor[] saved, Tensor[] hidden",
    _empty_gradients,
)
"""For each job the gradient of its parameters, (members, columns), with zeros in the padding."""
