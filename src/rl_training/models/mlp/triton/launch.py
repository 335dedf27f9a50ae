"""Launches of the kernels of stacked perceptrons, with the tables of jobs that they need."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import torch
import triton
from torch import Tensor

from rl_training.models.mlp.layout import MLPLayout
from rl_training.models.mlp.operators import Backward, empty_hidden_gradients, empty_outputs
from rl_training.models.mlp.tiles import (
    backward_tiles,
    forward_tiles,
    parameter_programs,
    parameter_tiles,
    parts_of_product,
    rest_tiles,
    rows_of_part,
    taken_together,
)
from rl_training.models.mlp.triton.mlp_forward import forward_kernel
from rl_training.models.mlp.triton.mlp_hidden_gradients import hidden_gradients_kernel
from rl_training.models.mlp.triton.mlp_parameter_gradients import parameter_gradients_kernel
from rl_training.models.mlp.triton.partial_sums import add_parts_kernel, add_ranges_kernel
from rl_training.models.parameters import ALIGNMENT

_COMPILING = 16  # threads that compile kernels
_launched = True
_SHORT = 1024  # rows up to which a program adds up a gradient alone
Ranges = Sequence[tuple[int, int]]
"""Columns as pairs (first, end)."""
_PRECISIONS = {"float32": "ieee", "tf32": "tf32", "bf16": "bf16"}


@contextlib.contextmanager
def only_compiled() -> Iterator[None]:
    """Compile the kernels launched inside the block side by side, and run none of them: results are left uninitialised."""
    global _launched  # noqa: PLW0603 - a process-wide switch, set while a block of steps is prepared
    with (
        ThreadPoolExecutor(min(_COMPILING, os.cpu_count() or 1)) as threads,
        triton.AsyncCompileMode(threads, ignore_errors=True),
    ):
        _launched = False
        try:
            yield
        finally:
            _launched = True


def start_kernel(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel or, inside `only_compiled`, let it be compiled for these arguments."""
    if _launched:
        kernel[grid](*arguments, **options)
    else:
        kernel.warmup(*arguments, grid=grid, **options)


def _padded(size: int) -> int:
    return size + -size % ALIGNMENT


def first_programs(programs: Sequence[int]) -> list[int]:
    """Return the first program of each job, given the number of programs of each."""
    return [0, *accumulate(programs[:-1])]


def _shapes(layouts: Sequence[MLPLayout], precision: str) -> dict[str, Any]:
    """The constants that all perceptron kernels share."""
    layout, hidden = layouts[0], layouts[0].hidden
    locations = tuple(tuple(number for location in layout.locations for number in location) for layout in layouts)
    return {
        "PLACES": locations,
        "WIDTHS": hidden,
        "JOBS": len(layouts),
        "LAYERS": len(hidden),
        "NORM": layout.norm,
        "KEPT": layout.kept,
        "PRECISION": _PRECISIONS[precision],
    }


def _layer(layout: MLPLayout) -> dict[str, Any]:
    """The constants of kernels that pass through hidden layers."""
    return {"ACTIVATION": layout.activation, "STATISTICS": layout.statistics, "SIGNS": layout.signs}


def _contiguous_rows(parts: Sequence[Tensor]) -> list[Tensor]:
    """The parts with contiguous features, as the kernels read them."""
    return [part if part.stride(-1) == 1 else part.contiguous() for part in parts]


def _power(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def _jobs(
    layouts: Sequence[MLPLayout],
    members: int,
    rows: Sequence[int],
    programs: Sequence[int],
    strides: Sequence[int],
    inputs: Sequence[tuple[int, ...]] | None = None,
    wanted: Sequence[int] = (),
) -> tuple[tuple[int, ...], ...]:
    """The table of jobs; see the kernels for its fields."""
    table = []
    for index, (start, layout) in enumerate(zip(first_programs(programs), layouts, strict=True)):
        own = inputs[index] if inputs is not None else (0,) * 7
        some = tuple(wanted[2 * index : 2 * index + 2]) or (0, 0)
        head = (start, members * layout.ensemble, layout.ensemble, rows[index])
        table.append((*head, *own, strides[index], layout.widths[-1], *some, layout.size))
    return tuple(table)


def _input_fields(first: Tensor, second: Tensor, second_width: int) -> tuple[int, ...]:
    first_width = first.shape[-1]
    return (first_width, second_width, first.stride(0), first.stride(1), first.shape[1], second.stride(0), second.stride(1))


def forward(
    columns: Sequence[Tensor],
    rounded: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    trained: Sequence[int],
    layouts: Sequence[MLPLayout],
    precision: str,
    **tiles: Any,
) -> list[Tensor]:
    """Launch the forward pass of all jobs; see `mlp_forward`."""
    firsts, seconds = _contiguous_rows(firsts), _contiguous_rows(seconds)
    results = empty_outputs(columns, firsts, seconds, second_widths, layouts, precision)
    outputs, saved = results[::2], results[1::2]
    members, rows = columns[0].shape[0], [output.shape[2] for output in outputs]
    stacks = [members * layout.ensemble for layout in layouts]
    total = sum(s * r for s, r in zip(stacks, rows, strict=True))
    options = forward_tiles(total, precision, layouts[0]) | tiles
    tile = options["ROWS"] * (1 + options["PAIR"])
    programs = [s * triton.cdiv(r, tile) for s, r in zip(stacks, rows, strict=True)]
    fields = [_input_fields(*parts) for parts in zip(firsts, seconds, second_widths, strict=True)]
    kept = [number for flag in trained for number in (0, flag)]
    table = _jobs(layouts, members, rows, programs, [own.stride(0) for own in columns], fields, kept)
    start_kernel(
        forward_kernel,
        (sum(programs),),
        *(tuple(columns), tuple(rounded or columns), tuple(firsts), tuple(seconds), tuple(outputs), tuple(saved)),
        META=table,
        OUT=max(_power(layout.widths[-1]) for layout in layouts),
        **_layer(layouts[0]),
        **_shapes(layouts, precision),
        **options,
    )
    return results


def hidden_gradients(
    columns: Sequence[Tensor],
    rounded: Sequence[Tensor],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    wanted: Sequence[int],
    layouts: Sequence[MLPLayout],
    precision: str,
    **tiles: Any,
) -> list[Tensor]:
    """Launch the backward pass to hidden layers and inputs of all jobs; see `mlp_hidden_gradients`."""
    gradients = [gradient.contiguous() for gradient in gradients]
    results = empty_hidden_gradients(gradients, saved, wanted, layouts)
    members, rows = columns[0].shape[0], [gradient.shape[2] for gradient in gradients]
    stacks = [members * layout.ensemble for layout in layouts]
    options = backward_tiles(sum(s * r for s, r in zip(stacks, rows, strict=True)), precision, layouts[0]) | tiles
    programs = [s * triton.cdiv(r, options["ROWS"]) for s, r in zip(stacks, rows, strict=True)]
    table = _jobs(layouts, members, rows, programs, [own.stride(0) for own in columns], None, wanted)
    start_kernel(
        hidden_gradients_kernel,
        (sum(programs),),
        *(tuple(columns), tuple(rounded or columns), tuple(gradients), tuple(saved)),
        *(tuple(results[::2]), tuple(results[1::2])),
        META=table,
        OUT=max(_power(layout.widths[-1]) for layout in layouts),
        IN=_power(max(wanted[1::2])),
        **_layer(layouts[0]),
        **_shapes(layouts, precision),
        **options,
    )
    return results


def parameter_gradients(
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    hidden: Sequence[Tensor],
    layouts: Sequence[MLPLayout],
    precision: str,
    **tiles: Any,
) -> list[Tensor]:
    """Launch the parameter gradients of all jobs; see `mlp_gradients`.

    With little work everything is one launch. Otherwise the weights between hidden layers are a launch of their own, or
    torch's products in float32 and TF32, and the rest is a launch of small programs, of which more run at a time.
    """
    given = readable(Backward(firsts, seconds, second_widths, gradients, saved, hidden, layouts, precision))
    members, rows = gradients[0].shape[0], [gradient.shape[2] for gradient in gradients]
    stacks = members * sum(layout.ensemble for layout in layouts)
    together = tiles.pop("together", taken_together(stacks, members, max(rows)))
    usual = parameter_tiles(stacks, precision)
    if together or len(layouts[0].hidden) == 1:  # with one hidden layer there are no weights between such layers
        partial = _gradient_parts(given, {"WEIGHTS": True, "REST": True} | usual | tiles)
        return [parts[0] if len(parts) == 1 else _added(parts) for parts in partial]
    results = [gradient.new_empty(members, layout.size) for gradient, layout in zip(gradients, layouts, strict=True)]
    rest = {"WEIGHTS": False, "REST": True} | usual | rest_tiles(precision)
    if max(rows) > _SHORT:
        rest["PART"] = _SHORT // 2
    _gradients_into(results, [layout.other_columns for layout in layouts], given, rest | tiles)
    if precision == "bf16":
        weights = {"WEIGHTS": True, "REST": False} | usual | tiles
        _gradients_into(results, [layout.hidden_weight_columns for layout in layouts], given, weights)
    else:
        for job in zip(layouts, saved, hidden, results, rows, strict=True):
            _hidden_weights(*job, precision)
    return results


def readable(given: Backward) -> Backward:
    """Return the same as the kernels read it."""
    firsts, seconds = _contiguous_rows(given.firsts), _contiguous_rows(given.seconds)
    return given._replace(firsts=firsts, seconds=seconds, gradients=[gradient.contiguous() for gradient in given.gradients])


def _gradients_into(results: Sequence[Tensor], columns: Sequence[Ranges], given: Backward, options: dict[str, Any]) -> None:
    """Write the gradients of some columns of each job into `results`, long sums in parts."""
    if max(gradient.shape[2] for gradient in given.gradients) <= _SHORT:
        _gradient_parts(given, options, results)
    else:
        _add_columns(_gradient_parts(given, options), results, columns)


def _gradient_parts(given: Backward, options: dict[str, Any], results: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Partial gradients (parts, members, size) of all jobs; those of one part each are written to `results`, if given."""
    members, rows = given.gradients[0].shape[0], [gradient.shape[2] for gradient in given.gradients]
    part = max(rows) if results is not None else rows_of_part(max(rows), parameter_jobs(given, options, [1] * len(rows))[0])
    part = options.setdefault("PART", part)
    parts = [triton.cdiv(r, part) for r in rows]
    partial = [result.unsqueeze(0) for result in results or ()] or [
        gradient.new_empty(count, members, layout.size)
        for gradient, count, layout in zip(given.gradients, parts, given.layouts, strict=True)
    ]
    programs, tensors, constants = parameter_jobs(given, options, parts)
    start_kernel(parameter_gradients_kernel, (programs,), *tensors, tuple(partial), **constants, **options)
    return partial


def parameter_jobs(
    given: Backward, options: dict[str, Any], parts: Sequence[int]
) -> tuple[int, tuple[tuple[Tensor, ...], ...], dict[str, Any]]:
    """Return programs, tensors and constants of a launch over the tiles of all parameters, for each of the parts."""
    layouts, members = given.layouts, given.gradients[0].shape[0]
    small = max(_power(_filled(layout)) for layout in layouts)
    counts = [parameter_programs(layout, small, options) for layout in layouts]
    programs = [members * layout.ensemble * t * p for layout, t, p in zip(layouts, counts, parts, strict=True)]
    fields = [_input_fields(*some) for some in zip(given.firsts, given.seconds, given.second_widths, strict=True)]
    last = [number for layout, count in zip(layouts, counts, strict=True) for number in (_filled(layout), count)]
    rows = [gradient.shape[2] for gradient in given.gradients]
    table = _jobs(layouts, members, rows, programs, [0] * len(layouts), fields, last)
    tensors = (given.firsts, given.seconds, given.gradients, given.saved, given.hidden)
    constants = {"META": table, "SMALL": small, **_shapes(layouts, given.precision)}
    return sum(programs), tuple(tuple(own) for own in tensors), constants


def _filled(layout: MLPLayout) -> int:
    """Numbers of the last critic's last bias, with the padding behind it, which is zeroed."""
    return _padded(layout.ensemble * layout.widths[-1]) - (layout.ensemble - 1) * layout.widths[-1]


def _added(parts: Tensor, block: int = 1024) -> Tensor:
    """Return the sum of partial results (parts, members, size)."""
    result = torch.empty_like(parts[0])
    size = result.numel()
    start_kernel(add_parts_kernel, (triton.cdiv(size, block),), parts, result, size, COUNT=len(parts), BLOCK=block)
    return result


def _add_columns(partial: Sequence[Tensor], results: Sequence[Tensor], columns: Sequence[Ranges], block: int = 128) -> None:
    """Write the sums of partial gradients (parts, members, size) to `results`, for some columns of each job."""
    pieces = [
        (job, start, stop - start, result.shape[1], len(parts))
        for job, (result, parts, ranges) in enumerate(zip(results, partial, columns, strict=True))
        for start, stop in ranges
    ]
    programs = [triton.cdiv(size, block) for _, _, size, _, _ in pieces]
    members = results[0].shape[0]
    start_kernel(
        add_ranges_kernel,
        (sum(programs), members),
        *(tuple(partial[job] for job, *_ in pieces), tuple(results[job] for job, *_ in pieces), members),
        META=tuple((start, *piece[1:]) for start, piece in zip(first_programs(programs), pieces, strict=True)),
        PIECES=len(pieces),
        BLOCK=block,
    )


def _hidden_weights(layout: MLPLayout, saved: Tensor, hidden: Tensor, result: Tensor, rows: int, precision: str) -> None:
    """Write the gradients of the weights between hidden layers into `result` with torch's products, critic by critic.

    Where that would leave processors idle, all critics are multiplied at once, and long sums are split.
    """
    members, ensemble = result.shape[0], layout.ensemble
    shape = (members * ensemble, rows)
    kept, gradients = layout.saved_views(saved, *shape), layout.gradient_views(hidden, *shape)
    outs, parts = layout.destinations(result), parts_of_product(members * ensemble, rows)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        for layer in range(1, len(kept)):
            out = outs[layout.parameters_per_layer * layer]
            below, above = kept[layer - 1][0], gradients[layer][0]
            if parts > 1:
                below, above = (values.view(-1, rows // parts, values.shape[-1]) for values in (below, above))
                products = torch.bmm(below.transpose(1, 2), above)
                out.copy_(products.view(-1, parts, *products.shape[1:]).sum(1).view(out.shape))
                continue
            for critic in range(ensemble):
                own = out[:, critic] if out.ndim == 4 else out[critic::ensemble]
                torch.bmm(below[critic::ensemble].transpose(1, 2), above[critic::ensemble], out=own)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
