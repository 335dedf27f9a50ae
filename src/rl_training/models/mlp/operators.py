"""Perceptrons as three operators that a compiler leaves whole: forward, slopes of hidden layers, gradients of parameters.

Each takes a list of *jobs*, networks of equal hidden widths that do not depend on one another, so that several calls can be
merged into one launch. On a GPU a call is one Triton kernel. A shape that the kernels do not know never comes here: such a
network is traced operation by operation, and so is every network on the CPU. What the operators do there, with torch's
batched products, is what the kernels are tested against.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rl_training.models import mlp_math
from rl_training.models.mlp_math import MLPLayout

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


def _parts(first: Tensor, second: Tensor, second_width: int) -> list[Tensor]:
    return [first, second] if second_width else [first]


@torch.library.custom_op("rl_training::mlp_forward", mutates_args=())
def mlp_forward(
    columns: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    trained: Sequence[int],
    layouts: Sequence[int],
    precision: str,
) -> list[Tensor]:
    """Return for each job its outputs (members, critics, rows, out) and what its backward pass needs.

    `trained` says which jobs will have a backward pass; what is saved for the others is not to be read.
    """
    if columns[0].is_cuda:
        return list(
            _launched().forward(columns, firsts, seconds, second_widths, trained, MLPLayout.decode(layouts), precision)
        )
    results = []
    for own, first, second, width, used, layout in zip(
        columns, firsts, seconds, second_widths, trained, MLPLayout.decode(layouts), strict=True
    ):
        inputs = mlp_math.joined_inputs(_parts(first, second, width), layout.ensemble)
        saved, kept = inputs.new_empty(layout.saved_size(*inputs.shape[:2])), list[list[Tensor]]()
        views = layout.saved_views(saved, *inputs.shape[:2]) if used else []
        outputs = mlp_math.forward(layout, layout.stacks(own), inputs, kept, views)
        _fill(views, kept)
        results += [outputs.view(own.shape[0], layout.ensemble, *outputs.shape[1:]), saved]
    return results


def _fill(places: Sequence[Sequence[Tensor]], values: Sequence[Sequence[Tensor]]) -> None:
    """Copy values to their places, but for those that were made there."""
    for own, made in zip(places, values, strict=False):
        for place, value in zip(own, made, strict=False):
            if place is not value:
                place.copy_(value)


@mlp_forward.register_fake
def _(
    columns: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    trained: Sequence[int],
    layouts: Sequence[int],
    precision: str,
) -> list[Tensor]:
    del trained
    return empty_outputs(columns, firsts, seconds, second_widths, MLPLayout.decode(layouts), precision)


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


@torch.library.custom_op("rl_training::mlp_hidden_slopes", mutates_args=())
def mlp_hidden_slopes(
    columns: Sequence[Tensor],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    wanted: Sequence[int],
    layouts: Sequence[int],
    precision: str,
) -> list[Tensor]:
    """Return for each job the slopes at its hidden layers, laid out as saved, and at the wanted inputs.

    `wanted` holds for each job the first column and their number; the result is (members, critics, rows, columns).
    """
    if columns[0].is_cuda:
        return list(_launched().hidden_slopes(columns, gradients, saved, wanted, MLPLayout.decode(layouts), precision))
    results = []
    for index, layout in enumerate(MLPLayout.decode(layouts)):
        start, count = wanted[2 * index : 2 * index + 2]
        stacks, above = layout.stacks(columns[index]), gradients[index].flatten(0, 1)
        kept = layout.saved_views(saved[index], *above.shape[:2])
        slopes = torch.empty_like(saved[index])
        places = layout.saved_views(slopes, *above.shape[:2])
        for layer in reversed(range(len(kept))):
            behind = places[layer][int(layout.layer_norm)]  # what the product gives lies behind the norm
            found = mlp_math.slope_below(layout, kept[layer], stacks, layer, above, behind)
            _fill([places[layer]], [found])
            above = found[0]
        inputs = above.new_empty(*above.shape[:2], 0)
        if count:
            inputs = mlp_math.product(above, stacks[0][:, start : start + count].transpose(1, 2))
        results += [slopes, inputs.view(*gradients[index].shape[:3], count)]
    return results


@mlp_hidden_slopes.register_fake
def _(
    columns: Sequence[Tensor],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    wanted: Sequence[int],
    layouts: Sequence[int],
    precision: str,
) -> list[Tensor]:
    del columns, layouts, precision
    return empty_slopes(gradients, saved, wanted)


def empty_slopes(gradients: Sequence[Tensor], saved: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
    """Return the results of `mlp_hidden_slopes`, still to be written."""
    results = []
    for gradient, kept, count in zip(gradients, saved, wanted[1::2], strict=True):
        results += [torch.empty_like(kept), gradient.new_empty(*gradient.shape[:3], count)]
    return results


@torch.library.custom_op("rl_training::mlp_gradients", mutates_args=())
def mlp_gradients(
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    slopes: Sequence[Tensor],
    layouts: Sequence[int],
    precision: str,
) -> list[Tensor]:
    """Return for each job the gradient of its parameters, (members, columns), with zeros between them."""
    decoded = MLPLayout.decode(layouts)
    if gradients[0].is_cuda:
        return list(
            _launched().parameter_gradients(firsts, seconds, second_widths, gradients, saved, slopes, decoded, precision)
        )
    results = []
    for index, layout in enumerate(decoded):
        result = layout.new_columns(gradients[index].shape[0], gradients[index])
        inputs = mlp_math.joined_inputs(_parts(firsts[index], seconds[index], second_widths[index]), layout.ensemble)
        last = gradients[index].flatten(0, 1)
        kept = [[inputs], *layout.saved_views(saved[index], *last.shape[:2])]
        found = [*layout.saved_views(slopes[index], *last.shape[:2]), [last]]
        places, count = layout.destinations(result), layout.parameters_per_layer
        for layer, slope in enumerate(found):
            own = places[layer * count : (layer + 1) * count]
            mlp_math.layer_gradients(own, kept[layer][0], slope, kept[layer + 1] if layer + 1 < len(kept) else [])
        results.append(result)
    return results


@mlp_gradients.register_fake
def _(
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    slopes: Sequence[Tensor],
    layouts: Sequence[int],
    precision: str,
) -> list[Tensor]:
    del firsts, seconds, second_widths, saved, slopes, precision
    return [g.new_empty(g.shape[0], layout.size) for g, layout in zip(gradients, MLPLayout.decode(layouts), strict=True)]


def _launched() -> Any:
    """The module that launches the kernels; loaded when a GPU asks for it."""
    from rl_training.models.kernels import launch

    return launch
