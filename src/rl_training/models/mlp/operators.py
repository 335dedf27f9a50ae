"""Perceptrons as three operators that a compiler leaves whole: forward, gradients at hidden layers, gradients of parameters.

Each takes a list of *jobs*, networks of equal hidden widths that do not depend on one another, so that several calls can be
merged into one launch. On a GPU a call is one Triton kernel; nothing else implements it. A shape that the kernels do not know
never comes here: such a network is traced operation by operation, and so is every network on the CPU.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rl_training.models.mlp.eager import MLPLayout

LARGEST_WIDTH = 512
_precision: str | None = None


@contextlib.contextmanager
def fused_networks(precision: str) -> Iterator[None]:
    """Let networks inside the block be recorded for a compiler, on a GPU as operators of this module in a precision."""
    global _precision  # noqa: PLW0603 - a property of the engine that is compiling a step
    before, _precision = _precision, precision
    try:
        yield
    finally:
        _precision = before


def recorded_plainly(device: torch.device) -> bool:
    """Return whether a network is being recorded for a compiler that fuses its operations itself: the CPU's."""
    return _precision is not None and device.type == "cpu"


def fused_precision(layout: MLPLayout, device: torch.device) -> str | None:
    """Return the precision in which a network goes through these operators now, None if it does not."""
    if _precision is None or (device.type == "cuda" and not has_kernels(layout)):
        return None
    return _precision


def has_kernels(layout: MLPLayout) -> bool:
    """Return whether the kernels know a shape: hidden widths that are powers of two, no LayerNorm."""
    powers = all(16 <= width <= LARGEST_WIDTH and width & (width - 1) == 0 for width in layout.hidden)
    return powers and not layout.layer_norm and layout.widths[-1] <= LARGEST_WIDTH and triton_available()


@lru_cache(maxsize=1)
def triton_available() -> bool:
    """Return whether the compiler of the kernels is installed."""
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
    """An operator of lists that a GPU runs as one kernel; `results` gives its results, still to be written."""

    def run(*given: Any) -> list[Tensor]:
        from rl_training.models.mlp.triton import launch  # needs a GPU's compiler

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
    """Return the results of `mlp_forward`, still to be written."""
    results = []
    for own, first, second, width, layout in zip(columns, firsts, seconds, second_widths, layouts, strict=True):
        members, rows = own.shape[0], _rows(first, second, width)
        size = layout.saved_size(members * layout.ensemble, rows)
        results += [
            own.new_empty(members, layout.ensemble, rows, layout.widths[-1]),
            own.new_empty(size, dtype=_saved_type(precision)),
        ]
    return results


def empty_slopes(gradients: Sequence[Tensor], saved: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
    """Return the results of `mlp_hidden_slopes`, still to be written."""
    results = []
    for gradient, kept, count in zip(gradients, saved, wanted[1::2], strict=True):
        results += [torch.empty_like(kept), gradient.new_empty(*gradient.shape[:3], count)]
    return results


def _empty_forward(*given: Any) -> list[Tensor]:
    columns, firsts, seconds, second_widths, _trained, layouts, precision = given
    return empty_outputs(columns, firsts, seconds, second_widths, MLPLayout.decode(layouts), precision)


def _empty_slopes(*given: Any) -> list[Tensor]:
    _columns, gradients, saved, wanted, _layouts, _precision = given
    return empty_slopes(gradients, saved, wanted)


def _empty_gradients(*given: Any) -> list[Tensor]:
    gradients, layouts = given[3], given[-2]
    return [g.new_empty(g.shape[0], layout.size) for g, layout in zip(gradients, MLPLayout.decode(layouts), strict=True)]


mlp_forward = _operator(
    "mlp_forward",
    "forward",
    "Tensor[] columns, Tensor[] firsts, Tensor[] seconds, int[] second_widths, int[] trained",
    _empty_forward,
)
"""For each job its outputs (members, critics, rows, out) and what its backward pass needs.

`trained` says which jobs will have a backward pass; what is saved for the others is not to be read.
"""
mlp_hidden_slopes = _operator(
    "mlp_hidden_slopes",
    "hidden_slopes",
    "Tensor[] columns, Tensor[] gradients, Tensor[] saved, int[] wanted",
    _empty_slopes,
)
"""For each job the slopes at its hidden layers, laid out as saved, and at the wanted inputs.

`wanted` holds for each job the first column and their number; the result is (members, critics, rows, columns).
"""
mlp_gradients = _operator(
    "mlp_gradients",
    "parameter_gradients",
    "Tensor[] firsts, Tensor[] seconds, int[] second_widths, Tensor[] gradients, Tensor[] saved, Tensor[] slopes",
    _empty_gradients,
)
"""For each job the gradient of its parameters, (members, columns), with zeros between them."""
