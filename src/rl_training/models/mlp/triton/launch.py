"""Launches of the kernels of stacked perceptrons: the tables of jobs, and tile sizes chosen by the amount of work."""

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
from rl_training.models.mlp.operators import empty_hidden_gradients, empty_outputs
from rl_training.models.mlp.triton.adam import adam_kernel
from rl_training.models.mlp.triton.mlp_forward import forward_kernel
from rl_training.models.mlp.triton.mlp_hidden_gradients import hidden_gradients_kernel
from rl_training.models.mlp.triton.mlp_parameter_gradients import add_parts_kernel, parameter_gradients_kernel
from rl_training.models.parameters import ALIGNMENT

PROCESSORS = 132  # multiprocessors of the GPU that the tile sizes were tuned on
MANY_ROWS = 4096  # stacks times rows of several members from which torch computes the gradients of the hidden weights
_USUAL_WIDTH = 256
_COMPILING = 16  # threads that compile kernels
_launched = True
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


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel or, inside `only_compiled`, let it be compiled for these arguments."""
    if _launched:
        kernel[grid](*arguments, **options)
    else:
        kernel.warmup(*arguments, grid=grid, **options)


def _forward_tiles(rows: int, precision: str, layout: MLPLayout) -> dict[str, int]:
    """Tiles of the forward pass: few rows per program while processors are idle, many where reading the weights is the limit.

    In TF32, tiles of 32 rows use instructions that read a weight as stored; larger ones would transpose it first.
    """
    if rows <= 16 * PROCESSORS:
        return _fitted({"ROWS": 16, "PAIR": 0, "STEP": 32, "num_warps": 4, "num_stages": 3}, layout)
    if precision == "bf16" and rows > 64 * PROCESSORS and not layout.layer_norm:
        return _fitted({"ROWS": 128, "PAIR": 0, "STEP": 32, "num_warps": 8, "num_stages": 3}, layout)
    pair = int(rows > 128 * PROCESSORS and max(layout.hidden) <= _USUAL_WIDTH)
    return _fitted({"ROWS": 32, "PAIR": pair, "STEP": 16, "num_warps": 4, "num_stages": 4}, layout)


def _backward_tiles(rows: int, precision: str, layout: MLPLayout) -> dict[str, int]:
    """Tiles of the backward pass, which never has to transpose a weight."""
    if rows <= 16 * PROCESSORS:
        return _fitted({"ROWS": 16, "STEP": 64, "num_warps": 4, "num_stages": 3}, layout)
    if rows <= 64 * PROCESSORS:
        return _fitted({"ROWS": 32, "STEP": 32, "num_warps": 4, "num_stages": 3}, layout)
    if precision == "bf16":
        return _fitted({"ROWS": 64, "STEP": 32, "num_warps": 4, "num_stages": 3}, layout)
    return _fitted({"ROWS": 128, "STEP": 32, "num_warps": 8, "num_stages": 4}, layout)


def _fitted(options: dict[str, int], layout: MLPLayout) -> dict[str, int]:
    """The options, with smaller tiles for wider networks, so that they fit into registers and shared memory."""
    times = max(1, max(layout.hidden) // _USUAL_WIDTH)
    rows, step = max(16, options["ROWS"] // times), max(16, options["STEP"] // times)
    return options | {"ROWS": rows, "STEP": min((step, *layout.hidden))}


def _gradient_tiles(stacks: int, precision: str) -> dict[str, int]:
    """Tiles of the gradient of a weight."""
    if precision == "bf16":
        size = 64 if stacks <= 32 else 128
        return {"TILE_IN": size, "TILE_OUT": size, "STEP": 64, "num_warps": 4, "num_stages": 3}
    return {"TILE_IN": 32, "TILE_OUT": 128, "STEP": 32, "num_warps": 4, "num_stages": 3}


def _tiles_of(layout: MLPLayout, small: int, options: dict[str, Any]) -> int:
    """The number of tiles of one stack: of gradients between hidden layers (or of biases only), and at either end."""
    down = [triton.cdiv(width, options["TILE_IN"]) for width in layout.hidden]
    across = [triton.cdiv(width, options["TILE_OUT"]) for width in layout.hidden]
    hidden = sum(a * b if options["HIDDEN"] else b for a, b in zip(down, across[1:], strict=False))
    return int(hidden + across[-1] + across[0] * triton.cdiv(layout.widths[0], small))


def _rows_of_part(rows: int, programs: int) -> int:
    """Rows per partial sum: long sums are split to keep the processors busy, and the parts are added in order."""
    parts = max(1, min(4 * PROCESSORS // programs, rows // 256))
    return int(triton.cdiv(triton.cdiv(rows, parts), 64) * 64)


def _padded(size: int) -> int:
    return size + -size % ALIGNMENT


def _first_programs(programs: Sequence[int]) -> list[int]:
    """The first program of each job, given the number of programs of each."""
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
    return {"ACTIVATION": layout.activation, "STATISTICS": layout.statistics}


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
    for index, (start, layout) in enumerate(zip(_first_programs(programs), layouts, strict=True)):
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
    options = _forward_tiles(total, precision, layouts[0]) | tiles
    tile = options["ROWS"] * (1 + options["PAIR"])
    programs = [s * triton.cdiv(r, tile) for s, r in zip(stacks, rows, strict=True)]
    fields = [_input_fields(*parts) for parts in zip(firsts, seconds, second_widths, strict=True)]
    kept = [number for flag in trained for number in (0, flag)]
    table = _jobs(layouts, members, rows, programs, [own.stride(0) for own in columns], fields, kept)
    _launch(
        forward_kernel,
        (sum(programs),),
        *(tuple(columns), tuple(firsts), tuple(seconds), tuple(outputs), tuple(saved)),
        META=table,
        OUT=max(_power(layout.widths[-1]) for layout in layouts),
        **_layer(layouts[0]),
        **_shapes(layouts, precision),
        **options,
    )
    return results


def hidden_gradients(
    columns: Sequence[Tensor],
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
    options = _backward_tiles(sum(s * r for s, r in zip(stacks, rows, strict=True)), precision, layouts[0]) | tiles
    programs = [s * triton.cdiv(r, options["ROWS"]) for s, r in zip(stacks, rows, strict=True)]
    table = _jobs(layouts, members, rows, programs, [own.stride(0) for own in columns], None, wanted)
    _launch(
        hidden_gradients_kernel,
        (sum(programs),),
        *(tuple(columns), tuple(gradients), tuple(saved), tuple(results[::2]), tuple(results[1::2])),
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
    """Launch the parameter gradients of all jobs; see `mlp_gradients`."""
    firsts, seconds = _contiguous_rows(firsts), _contiguous_rows(seconds)
    gradients = [gradient.contiguous() for gradient in gradients]
    members, rows = gradients[0].shape[0], [gradient.shape[2] for gradient in gradients]
    stacks = members * sum(layout.ensemble for layout in layouts)
    options: dict[str, Any] = {"HIDDEN": precision == "bf16" or members == 1 or stacks * max(rows) < MANY_ROWS}
    options |= _gradient_tiles(stacks, precision) | tiles
    filled = [_padded(layout.ensemble * layout.widths[-1]) - (layout.ensemble - 1) * layout.widths[-1] for layout in layouts]
    small = _power(max(filled))
    tiles_of = [_tiles_of(layout, small, options) for layout in layouts]
    whole = sum(members * layout.ensemble * count for layout, count in zip(layouts, tiles_of, strict=True))
    part = options.setdefault("PART", _rows_of_part(max(rows), whole))
    parts = [triton.cdiv(r, part) for r in rows]
    programs = [members * layout.ensemble * t * p for layout, t, p in zip(layouts, tiles_of, parts, strict=True)]
    partial = [
        gradient.new_empty(count, members, layout.size)
        for gradient, count, layout in zip(gradients, parts, layouts, strict=True)
    ]
    fields = [_input_fields(*some) for some in zip(firsts, seconds, second_widths, strict=True)]
    last = [number for pair in zip(filled, tiles_of, strict=True) for number in pair]
    table = _jobs(layouts, members, rows, programs, [0] * len(layouts), fields, last)
    _launch(
        parameter_gradients_kernel,
        (sum(programs),),
        *(tuple(firsts), tuple(seconds), tuple(gradients), tuple(saved), tuple(hidden), tuple(partial)),
        META=table,
        SMALL=small,
        **_shapes(layouts, precision),
        **options,
    )
    results = [values[0] if len(values) == 1 else _added(values) for values in partial]
    if not options["HIDDEN"]:
        for job in zip(layouts, saved, hidden, results, rows, strict=True):
            _hidden_weights(*job, precision)
    return results


def _added(parts: Tensor, block: int = 1024) -> Tensor:
    """Return the sum of partial results (parts, members, size)."""
    result = torch.empty_like(parts[0])
    size = result.numel()
    _launch(add_parts_kernel, (triton.cdiv(size, block),), parts, result, size, COUNT=len(parts), BLOCK=block)
    return result


def _hidden_weights(layout: MLPLayout, saved: Tensor, hidden: Tensor, result: Tensor, rows: int, precision: str) -> None:
    """Write the gradients of the weights between hidden layers into `result` with torch's products, critic by critic."""
    shape = (result.shape[0] * layout.ensemble, rows)
    kept, gradients = layout.saved_views(saved, *shape), layout.gradient_views(hidden, *shape)
    outs = layout.destinations(result)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        for layer in range(1, len(kept)):
            out = outs[layout.parameters_per_layer * layer]
            for critic in range(layout.ensemble):
                below, above = (v[critic :: layout.ensemble] for v in (kept[layer - 1][0], gradients[layer][0]))
                own = out[:, critic] if out.ndim == 4 else out[critic :: layout.ensemble]
                torch.bmm(below.transpose(1, 2), above, out=own)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def adam(
    parameters: Tensor,
    first: Tensor,
    second: Tensor,
    targets: Tensor,
    gradients: Sequence[Tensor],
    segments: Sequence[tuple[int, int, int, int]],
    factors: Tensor,
    tau: Tensor,
    decays: Tensor | None,
    betas: tuple[float, float],
    block: int = 1024,
    **options: Any,
) -> None:
    """Launch Adam on segments (column, size, group, column of the target or -1), and polyak averaging of their targets.

    `decays` says for each column whether it decays, if any does.
    """
    programs = [triton.cdiv(size, block) for _, size, _, _ in segments]
    table = tuple((start, *segment) for start, segment in zip(_first_programs(programs), segments, strict=True))
    _launch(
        adam_kernel,
        (sum(programs), parameters.shape[0]),
        *(parameters, first, second, targets, tuple(gradients), factors, tau, factors if decays is None else decays),
        META=table,
        SEGMENTS=len(segments),
        BLOCK=block,
        ROW=parameters.stride(0),
        TARGET_ROW=targets.stride(0),
        GROUPS=factors.shape[-2],
        DECAY=decays is not None,
        BETA1=betas[0],
        BETA2=betas[1],
        **options,
    )
