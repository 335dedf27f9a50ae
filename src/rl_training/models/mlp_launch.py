"""Launches of the kernels of stacked perceptrons: tiles, tables of jobs, and which size suits how much work."""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from rl_training.models import mlp_kernels
from rl_training.models.mlp_math import MLPLayout
from rl_training.models.mlp_ops import empty_gradients, empty_outputs, empty_slopes, first_programs
from rl_training.models.parameters import ALIGNMENT

_PRECISIONS = {"float32": "ieee", "tf32": "tf32", "bf16": "bf16"}


def _tiles(rows_in_all: int) -> dict[str, int]:
    """Rows per program and how a program is run: few rows while there are processors to spare, many for reuse of weights."""
    if rows_in_all <= 16 * 132:
        return {"ROWS": 16, "STEP": 32, "num_warps": 4, "num_stages": 4}
    if rows_in_all <= 32 * 264:
        return {"ROWS": 32, "STEP": 32, "num_warps": 4, "num_stages": 4}
    return {"ROWS": 64, "STEP": 32, "num_warps": 8, "num_stages": 3}


def _gradient_tiles(stacks: int, precision: str) -> dict[str, int]:
    """Tiles of the gradient of a weight. In TF32 few rows keep to instructions that read both factors as they lie."""
    if stacks <= 32:
        return {"TILE_IN": 32 if precision == "tf32" else 64, "TILE_OUT": 64, "STEP": 64, "num_warps": 4, "num_stages": 3}
    if precision == "tf32":
        return {"TILE_IN": 32, "TILE_OUT": 256, "STEP": 32, "num_warps": 4, "num_stages": 3}
    return {"TILE_IN": 128, "TILE_OUT": 128, "STEP": 64, "num_warps": 4, "num_stages": 3}


def _padded(size: int) -> int:
    return size + -size % ALIGNMENT


def _places(layouts: Sequence[MLPLayout]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(number for place in layout.places for number in place) for layout in layouts)


def _contiguous_rows(parts: Sequence[Tensor]) -> list[Tensor]:
    """The parts with neighbouring features side by side, as the kernels read them."""
    return [part if part.stride(-1) == 1 else part.contiguous() for part in parts]


def _power(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


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
    options = _tiles(sum(s * r for s, r in zip(stacks, rows, strict=True))) | tiles
    programs = [s * triton.cdiv(r, options["ROWS"]) for s, r in zip(stacks, rows, strict=True)]
    fields = [_input_fields(*parts) for parts in zip(firsts, seconds, second_widths, strict=True)]
    kept = [number for flag in trained for number in (0, flag)]
    table = _jobs(layouts, members, rows, programs, [own.stride(0) for own in columns], fields, kept)
    mlp_kernels.forward_kernel[(sum(programs),)](
        *(tuple(columns), tuple(firsts), tuple(seconds), tuple(outputs), tuple(saved)),
        META=table,
        PLACES=_places(layouts),
        WIDTHS=layouts[0].hidden,
        JOBS=len(layouts),
        LAYERS=len(layouts[0].hidden),
        OUT=max(_power(layout.widths[-1]) for layout in layouts),
        PRECISION=_PRECISIONS[precision],
        **options,
    )
    return results


def hidden_slopes(
    columns: Sequence[Tensor],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    wanted: Sequence[int],
    layouts: Sequence[MLPLayout],
    precision: str,
    **tiles: Any,
) -> list[Tensor]:
    """Launch the backward pass to hidden layers and inputs of all jobs; see `mlp_hidden_slopes`."""
    gradients = [gradient.contiguous() for gradient in gradients]
    results = empty_slopes(gradients, saved, wanted)
    members, rows = columns[0].shape[0], [gradient.shape[2] for gradient in gradients]
    stacks = [members * layout.ensemble for layout in layouts]
    options = _tiles(sum(s * r for s, r in zip(stacks, rows, strict=True))) | tiles
    programs = [s * triton.cdiv(r, options["ROWS"]) for s, r in zip(stacks, rows, strict=True)]
    table = _jobs(layouts, members, rows, programs, [own.stride(0) for own in columns], None, wanted)
    mlp_kernels.hidden_slopes_kernel[(sum(programs),)](
        *(tuple(columns), tuple(gradients), tuple(saved), tuple(results[::2]), tuple(results[1::2])),
        META=table,
        PLACES=_places(layouts),
        WIDTHS=layouts[0].hidden,
        JOBS=len(layouts),
        LAYERS=len(layouts[0].hidden),
        OUT=max(_power(layout.widths[-1]) for layout in layouts),
        IN=_power(max(wanted[1::2])),
        PRECISION=_PRECISIONS[precision],
        **options,
    )
    return results


def parameter_gradients(
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    second_widths: Sequence[int],
    gradients: Sequence[Tensor],
    saved: Sequence[Tensor],
    slopes: Sequence[Tensor],
    layouts: Sequence[MLPLayout],
    precision: str,
    **tiles: Any,
) -> list[Tensor]:
    """Launch the gradients of the parameters of all jobs; see `mlp_gradients`."""
    firsts, seconds = _contiguous_rows(firsts), _contiguous_rows(seconds)
    gradients = [gradient.contiguous() for gradient in gradients]
    results = empty_gradients(gradients, layouts)
    members, rows = gradients[0].shape[0], [gradient.shape[2] for gradient in gradients]
    options = _gradient_tiles(members * sum(layout.ensemble for layout in layouts), precision) | tiles
    filled = [_padded(layout.ensemble * layout.widths[-1]) - (layout.ensemble - 1) * layout.widths[-1] for layout in layouts]
    small = _power(max(filled))
    programs = []
    for layout in layouts:
        down = [triton.cdiv(width, options["TILE_IN"]) for width in layout.hidden]
        across = [triton.cdiv(width, options["TILE_OUT"]) for width in layout.hidden]
        hidden = sum(a * b for a, b in zip(down, across[1:], strict=False))
        count = hidden + down[-1] + across[0] * triton.cdiv(layout.widths[0], small)
        programs.append(members * layout.ensemble * count)
    fields = [_input_fields(*parts) for parts in zip(firsts, seconds, second_widths, strict=True)]
    unused = [0] * len(layouts)
    table = _jobs(
        layouts, members, rows, programs, unused, fields, [n for pair in zip(filled, unused, strict=True) for n in pair]
    )
    mlp_kernels.parameter_gradients_kernel[(sum(programs),)](
        *(tuple(firsts), tuple(seconds), tuple(gradients), tuple(saved), tuple(slopes), tuple(results)),
        META=table,
        PLACES=_places(layouts),
        WIDTHS=layouts[0].hidden,
        JOBS=len(layouts),
        LAYERS=len(layouts[0].hidden),
        SMALL=small,
        PRECISION=_PRECISIONS[precision],
        **options,
    )
    return results


def adam(
    parameters: Tensor,
    first: Tensor,
    second: Tensor,
    targets: Tensor,
    gradients: Sequence[Tensor],
    segments: Sequence[tuple[int, int, int, int]],
    factors: Tensor,
    tau: Tensor,
    betas: tuple[float, float],
    block: int = 1024,
    **options: Any,
) -> None:
    """Launch Adam on segments (column, size, group, column of the target or -1), and polyak of their targets."""
    programs = [triton.cdiv(size, block) for _, size, _, _ in segments]
    table = tuple((start, *segment) for start, segment in zip(first_programs(programs), segments, strict=True))
    mlp_kernels.adam_kernel[(sum(programs), parameters.shape[0])](
        *(parameters, first, second, targets, tuple(gradients), factors, tau),
        META=table,
        SEGMENTS=len(segments),
        BLOCK=block,
        ROW=parameters.stride(0),
        TARGET_ROW=targets.stride(0),
        GROUPS=factors.shape[-2],
        BETA1=betas[0],
        BETA2=betas[1],
        **options,
    )


def device_of(tensors: Sequence[Tensor]) -> torch.device:
    """Return the device that a launch runs on."""
    return tensors[0].device
