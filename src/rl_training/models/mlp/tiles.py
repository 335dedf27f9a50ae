"""Tile sizes of the kernels of stacked perceptrons, chosen by the amount of work; tuned on a GPU with 132 processors."""

from itertools import pairwise
from typing import Any

from rl_training.models.mlp.layout import MLPLayout

PROCESSORS = 132
_USUAL_WIDTH = 256
_MANY_ROWS = 4096  # stacks times rows of several members from which gradients of parameters take more than one launch
_FEW_ROWS, _FEW_OUTPUTS = 256, 16  # up to which gradients are applied where they are computed; more take too many registers
_WIDE = {"ROWS": 32, "STEP": 32, "num_warps": 8, "num_stages": 3}  # as many weights as fit into shared memory
_WIDE_NORM = {"ROWS": 64, "STEP": 16, "num_warps": 8, "num_stages": 4}  # LayerNorm takes a few rows of them at a time
_PARAMETERS = {"TILE_IN": 32, "TILE_OUT": 128, "TILE_END": 128, "STEP": 32, "num_warps": 4, "num_stages": 3}  # except in bf16
_TILES_OF_PRODUCT = 4  # programs with which torch multiplies a matrix of the usual width


def forward_tiles(rows: int, precision: str, layout: MLPLayout) -> dict[str, int]:
    """Return the tiles of a forward pass: few rows per program while processors are idle, many where weights are read most.

    In TF32, tiles of 32 rows use instructions that read a weight as stored, and tiles of 64 rows take transposed products;
    LayerNorm is faster with small ones, but for wide layers, where each program reads too many weights for few rows.
    """
    first = {"FIRST": 16 if layout.widths[0] <= 16 else 32}
    if rows <= 16 * PROCESSORS:
        return first | _fitted({"ROWS": 16, "PAIR": 0, "STEP": 32, "num_warps": 4, "num_stages": 3}, layout)
    if precision == "bf16" and rows > 64 * PROCESSORS and not layout.layer_norm:
        if rows > 512 * PROCESSORS:
            return first | _fitted({"ROWS": 128, "PAIR": 0, "STEP": 64, "num_warps": 8, "num_stages": 3}, layout)
        return first | _fitted({"ROWS": 64, "PAIR": 0, "STEP": 32, "num_warps": 4, "num_stages": 3}, layout)
    if precision == "tf32" and rows > 128 * PROCESSORS and not layout.layer_norm:
        warps = 4 * max(1, max(layout.hidden) // _USUAL_WIDTH)
        return first | {"ROWS": 64, "PAIR": 0, "STEP": 16, "num_warps": warps, "num_stages": 4}
    if _is_wide(precision, layout):
        return first | {"PAIR": 0} | _within(_WIDE_NORM if layout.layer_norm else _WIDE, layout)
    pair = int(rows > 128 * PROCESSORS and max(layout.hidden) <= _USUAL_WIDTH)
    return first | _fitted({"ROWS": 32, "PAIR": pair, "STEP": 16, "num_warps": 4, "num_stages": 4}, layout)


def backward_tiles(rows: int, precision: str, layout: MLPLayout) -> dict[str, int]:
    """Return the tiles of a backward pass, which never has to transpose a weight."""
    if rows <= 16 * PROCESSORS:
        return _fitted({"ROWS": 16, "STEP": 64, "num_warps": 4, "num_stages": 3}, layout)
    if _is_wide(precision, layout):
        return _within(_WIDE, layout)
    if rows <= 64 * PROCESSORS:
        return _fitted({"ROWS": 32, "STEP": 32, "num_warps": 4, "num_stages": 3}, layout)
    if precision == "bf16":
        return _fitted({"ROWS": 64, "STEP": 64, "num_warps": 8, "num_stages": 2}, layout)
    return _fitted({"ROWS": 128, "STEP": 32, "num_warps": 8, "num_stages": 4}, layout)


def taken_together(stacks: int, members: int, rows: int) -> bool:
    """Return whether the gradients of all parameters are one launch."""
    return members == 1 or stacks * rows < _MANY_ROWS


def parameter_tiles(stacks: int, precision: str) -> dict[str, int]:
    """Return the tiles of the gradients of parameters: of weights between hidden layers, and, of TILE_END, of the rest."""
    if precision == "bf16":
        size = 64 if stacks <= 32 else 128
        return {"TILE_IN": size, "TILE_OUT": size, "TILE_END": 128, "STEP": 64, "num_warps": 4, "num_stages": 3}
    return _PARAMETERS


def rest_tiles(precision: str) -> dict[str, int]:
    """Return the tiles of the gradients of all but the weights between hidden layers, where they are a launch."""
    return {"TILE_END": 256, "STEP": 64 if precision == "bf16" else 32, "num_warps": 4, "num_stages": 3}


def updates_at_once(stacks: int, members: int, rows: int, outputs: int, precision: str) -> bool:
    """Return whether Adam applies gradients of parameters where they are computed.

    Not in bfloat16, whose gradients are computed by larger programs than Adam has registers for.
    """
    few = rows <= _FEW_ROWS and outputs <= _FEW_OUTPUTS
    return precision == "tf32" and few and not taken_together(stacks, members, rows)


def update_tiles() -> dict[str, int]:
    """Return the tiles of parameters that a program updates, with a limit to registers, so that three programs fit."""
    return _PARAMETERS | {"maxnreg": 168}


def parameter_programs(layout: MLPLayout, small: int, options: dict[str, Any]) -> int:
    """Return the number of tiles of one stack: of WEIGHTS between hidden layers, and of the REST, as the options say."""
    weights = sum(
        _parts(below, options["TILE_IN"]) * _parts(above, options["TILE_OUT"]) for below, above in pairwise(layout.hidden)
    )
    across = [_parts(width, options["TILE_END"]) for width in layout.hidden]
    rest = across[0] * _parts(layout.widths[0] + 1, small) + sum(across[1:]) + across[-1]  # first layer, vectors, last layer
    return (weights if options["WEIGHTS"] else 0) + (rest if options["REST"] else 0)


def rows_of_part(rows: int, programs: int) -> int:
    """Return the rows per partial sum: long sums are split to keep the processors busy, and the parts are added in order."""
    parts = max(1, min(4 * PROCESSORS // programs, rows // 256))
    return _parts(_parts(rows, parts), 64) * 64


def parts_of_product(matrices: int, rows: int) -> int:
    """Return into how many equal parts torch's products split sums over rows: one, unless they leave processors idle."""
    programs = _TILES_OF_PRODUCT * matrices
    most = min(rows // 256, 8 * PROCESSORS // programs) if programs < 4 * PROCESSORS else 1
    return max((parts for parts in range(1, most + 1) if rows % parts == 0), default=1)


def _is_wide(precision: str, layout: MLPLayout) -> bool:
    """Whether more warps pay in place of fewer rows, because each program reads all weights of wide layers."""
    return precision == "tf32" and max(layout.hidden) == 2 * _USUAL_WIDTH


def _fitted(options: dict[str, int], layout: MLPLayout) -> dict[str, int]:
    """The options, with smaller tiles for wider networks, so that they fit into registers and shared memory."""
    times = max(1, max(layout.hidden) // _USUAL_WIDTH)
    rows, step = max(16, options["ROWS"] // times), max(16, options["STEP"] // times)
    return _within(options | {"ROWS": rows, "STEP": step}, layout)


def _within(options: dict[str, int], layout: MLPLayout) -> dict[str, int]:
    """The options, with steps that end within every layer: the kernels would read on in the next row."""
    return options | {"STEP": min(options["STEP"], *layout.hidden)}


def _parts(size: int, most: int) -> int:
    """How many parts of at most this size there are."""
    return -(-size // most)
