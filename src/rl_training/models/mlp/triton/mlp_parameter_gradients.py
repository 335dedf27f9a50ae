"""The gradients of the parameters of stacked perceptrons as one Triton kernel: stored, or applied by Adam at once.

As in the forward kernel: a list of jobs per launch, a tile per program, the same precisions, sums in a fixed order. A sum
over rows is a product with ones, which is faster than adding: what is read goes to the units that multiply in any case. A
gradient that is applied where it was computed is never in memory, and products of some programs run beside others' traffic.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.layout import ROWS_PER_SUM as _ROWS_PER_SUM
from rl_training.models.mlp.triton.adam import adam_update, buffers_of
from rl_training.models.mlp.triton.jobs import pick, pick_pointer, place_of, product, which

ROWS_PER_SUM = tl.constexpr(_ROWS_PER_SUM)
_LEAST = tl.constexpr(16)  # rows of the smallest product


@triton.jit
def _put(to, place, gradient, mask, RULE: tl.constexpr):
    """Store a gradient at some places of its segment, or, with a RULE, update the parameters there by it."""
    if RULE == ():
        tl.store(to + place, gradient, mask=mask)
    else:
        buffers, decays, own, tau, follows = to
        adam_update(gradient, mask, place, buffers, decays, own, tau, follows, RULE)


@triton.jit
def _hidden_weight_gradient(
    below,
    above,
    to,
    weight,
    tile,
    begin,
    end,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    RULE: tl.constexpr,
):
    """Put one tile of the gradient of a weight between two hidden layers."""
    across = tl.cdiv(FAN_OUT, TILE_OUT)
    k, n = (tile // across) * TILE_IN + tl.arange(0, TILE_IN), (tile % across) * TILE_OUT + tl.arange(0, TILE_OUT)
    total = tl.zeros((TILE_IN, TILE_OUT), dtype=tl.float32)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        live = row < end
        x_mask = live[None, :] & (k < FAN_IN)[:, None]
        x = tl.load(below + (row * FAN_IN)[None, :] + k[:, None], mask=x_mask, other=0.0)
        g_mask = live[:, None] & (n < FAN_OUT)[None, :]
        g = tl.load(above + (row * FAN_OUT)[:, None] + n[None, :], mask=g_mask, other=0.0)
        total = product(x, g, total, PRECISION)
    inside = (k < FAN_IN)[:, None] & (n < FAN_OUT)[None, :]
    _put(to, weight + k[:, None] * FAN_OUT + n[None, :], total, inside, RULE)


@triton.jit
def _sum_of_rows(
    values,
    to,
    vector,
    tile,
    begin,
    end,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    RULE: tl.constexpr,
):
    """Put one tile of the sum of some rows, the gradient of a vector: as a product with ones, which is the fastest way."""
    k, n = tl.arange(0, _LEAST), tile * TILE + tl.arange(0, TILE)
    total = tl.zeros((_LEAST, TILE), dtype=tl.float32)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        mask = (row < end)[:, None] & (n < WIDTH)[None, :]
        g = tl.load(values + (row * WIDTH)[:, None] + n[None, :], mask=mask, other=0.0)
        total = product(tl.full((_LEAST, STEP), 1.0, dtype=g.dtype), g, total, PRECISION)
    _put(to, vector + n[None, :] + k[:, None] * 0, total, (k == 0)[:, None] & (n < WIDTH)[None, :], RULE)


@triton.jit
def _norm_gradients(
    sums,
    to,
    scale,
    offset,
    tile,
    stack,
    stacks,
    rows,
    begin,
    end,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    RULE: tl.constexpr,
):
    """Put one tile of the gradients of a LayerNorm's scale and offset, which are stored as sums of some rows each."""
    count = tl.cdiv(rows, ROWS_PER_SUM)
    first, last = begin // ROWS_PER_SUM, tl.cdiv(end, ROWS_PER_SUM)
    sums += stack.to(tl.int64) * count * WIDTH
    _sum_of_rows(sums, to, scale, tile, first, last, WIDTH, TILE, STEP, PRECISION, RULE)
    sums += stacks.to(tl.int64) * count * WIDTH
    _sum_of_rows(sums, to, offset, tile, first, last, WIDTH, TILE, STEP, PRECISION, RULE)


@triton.jit
def _last_layer_gradients(
    gradient,
    below,
    to,
    weight,
    bias,
    tile,
    begin,
    end,
    out_width,
    filled,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    RULE: tl.constexpr,
):
    """Put one tile of the gradients of the last layer, transposed so that `below` is read as stored.

    The bias is followed by padding where it has more than `out_width` numbers to fill, which is zeroed.
    """
    n, k = tl.arange(0, SMALL), tile * TILE + tl.arange(0, TILE)
    total = tl.zeros((SMALL, TILE), dtype=tl.float32)
    sums = tl.zeros((SMALL, STEP), dtype=tl.float32)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        live = row < end
        g_mask = live[None, :] & (n < out_width)[:, None]
        g = tl.load(gradient + (row * out_width)[None, :] + n[:, None], mask=g_mask, other=0.0)
        x_mask = live[:, None] & (k < WIDTH)[None, :]
        x = tl.load(below + (row * WIDTH)[:, None] + k[None, :], mask=x_mask, other=0.0)
        total = product(g.to(x.dtype), x, total, PRECISION)
        sums += g
    live = (k < WIDTH)[None, :] & (n < out_width)[:, None]
    _put(to, weight + k[None, :] * out_width + n[:, None], total, live, RULE)
    _put(to, bias + n, tl.sum(sums, 1), (n < filled) & (tile == 0), RULE)


@triton.jit
def _first_layer_gradients(
    first,
    second,
    above,
    to,
    weight,
    bias,
    tile,
    begin,
    end,
    job,
    META: tl.constexpr,
    JOBS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    RULE: tl.constexpr,
):
    """Put one tile of the gradients of the first layer; the bias is the weight of a further input, which is always 1."""
    first_width = pick(job, META, 4, JOBS)
    width = first_width + pick(job, META, 5, JOBS)
    across = tl.cdiv(WIDTH, TILE)
    k, n = (tile // across) * SMALL + tl.arange(0, SMALL), (tile % across) * TILE + tl.arange(0, TILE)
    total = tl.zeros((SMALL, TILE), dtype=tl.float32)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        live = row < end
        first_row = (row % pick(job, META, 8, JOBS)) * pick(job, META, 7, JOBS)
        second_row = row * pick(job, META, 10, JOBS)
        in_first = live[None, :] & (k < first_width)[:, None]
        in_second = live[None, :] & ((k >= first_width) & (k < width))[:, None]
        x = tl.load(first + first_row[None, :] + k[:, None], mask=in_first, other=0.0)
        x += tl.load(second + second_row[None, :] + (k - first_width)[:, None], mask=in_second, other=0.0)
        x = tl.where((k == width)[:, None], 1.0, x)
        g_mask = live[:, None] & (n < WIDTH)[None, :]
        g = tl.load(above + (row * WIDTH)[:, None] + n[None, :], mask=g_mask, other=0.0)
        total = product(x.to(g.dtype), g, total, PRECISION)
    start = tl.where(k < width, weight + k * WIDTH, bias)
    _put(to, start[:, None] + n[None, :], total, (k <= width)[:, None] & (n < WIDTH)[None, :], RULE)


@triton.jit
def _tile(
    job,
    stack,
    tile,
    begin,
    end,
    to,
    firsts,
    seconds,
    gradients,
    saved,
    hidden_gradients,
    META: tl.constexpr,
    PLACES: tl.constexpr,
    WIDTHS: tl.constexpr,
    JOBS: tl.constexpr,
    LAYERS: tl.constexpr,
    NORM: tl.constexpr,
    KEPT: tl.constexpr,
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    TILE_END: tl.constexpr,
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    WEIGHTS: tl.constexpr,
    REST: tl.constexpr,
    PRECISION: tl.constexpr,
    RULE: tl.constexpr,
):
    """Put one tile of one parameter's gradient: of the WEIGHTS between hidden layers, or of the REST."""
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    member, critic = stack // ensemble, stack % ensemble
    kept, hidden = pick_pointer(job, saved, JOBS), pick_pointer(job, hidden_gradients, JOBS)
    # the first row is added to pointers, so that the places beside them are small numbers
    before, plane = stack.to(tl.int64) * rows, stacks.to(tl.int64) * rows
    sums_of_norms, sum_plane = hidden, stacks.to(tl.int64) * tl.cdiv(rows, ROWS_PER_SUM)
    for layer in tl.static_range(0, LAYERS):
        sums_of_norms += plane * WIDTHS[layer]

    for layer in tl.static_range(0, LAYERS):
        above = hidden + before * WIDTHS[layer]
        weight = place_of(job, critic, PLACES, COUNT * layer, JOBS)
        bias = place_of(job, critic, PLACES, COUNT * layer + 1, JOBS)
        if layer > 0 and WEIGHTS:
            tiles = tl.cdiv(WIDTHS[layer], TILE_OUT) * tl.cdiv(WIDTHS[layer - 1], TILE_IN)
            if (tile >= 0) & (tile < tiles):
                _hidden_weight_gradient(
                    *(kept + before * WIDTHS[layer - 1], above, to, weight, tile, begin, end),
                    *(WIDTHS[layer - 1], WIDTHS[layer], TILE_IN, TILE_OUT, STEP, PRECISION, RULE),
                )
            tile -= tiles
        if REST:
            across = tl.cdiv(WIDTHS[layer], TILE_END)
            tiles = across
            if layer == 0:
                first = pick_pointer(job, firsts, JOBS) + member.to(tl.int64) * pick(job, META, 6, JOBS)
                second = pick_pointer(job, seconds, JOBS) + member.to(tl.int64) * pick(job, META, 9, JOBS)
                tiles = across * tl.cdiv(pick(job, META, 4, JOBS) + pick(job, META, 5, JOBS) + 1, SMALL)
                if (tile >= 0) & (tile < tiles):
                    _first_layer_gradients(
                        *(first, second, above, to, weight, bias, tile, begin, end, job),
                        *(META, JOBS, WIDTHS[0], TILE_END, SMALL, STEP, PRECISION, RULE),
                    )
            else:  # noqa: PLR5501 - the condition above is a constant, the one below is not
                if (tile >= 0) & (tile < tiles):
                    _sum_of_rows(above, to, bias, tile, begin, end, WIDTHS[layer], TILE_END, STEP, PRECISION, RULE)
            if NORM != "none":
                if (tile >= 0) & (tile < across):
                    scale = place_of(job, critic, PLACES, COUNT * layer + 2, JOBS)
                    offset = place_of(job, critic, PLACES, COUNT * layer + 3, JOBS)
                    _norm_gradients(
                        *(sums_of_norms, to, scale, offset, tile, stack, stacks, rows, begin, end),
                        *(WIDTHS[layer], TILE_END, STEP, PRECISION, RULE),
                    )
            tile -= tiles
        hidden += plane * WIDTHS[layer]
        sums_of_norms += 2 * sum_plane * WIDTHS[layer]
        if layer > 0:
            kept += plane * KEPT * WIDTHS[layer - 1]

    if REST:
        if tile >= 0:
            out_width = pick(job, META, 12, JOBS)
            gradient = pick_pointer(job, gradients, JOBS) + before * out_width
            weight = place_of(job, critic, PLACES, COUNT * LAYERS, JOBS)
            bias = place_of(job, critic, PLACES, COUNT * LAYERS + 1, JOBS)
            filled = tl.where(critic == ensemble - 1, pick(job, META, 13, JOBS), out_width)
            _last_layer_gradients(
                *(gradient, kept + before * WIDTHS[LAYERS - 1], to, weight, bias, tile, begin, end, out_width, filled),
                *(WIDTHS[LAYERS - 1], TILE_END, SMALL, STEP, PRECISION, RULE),
            )


@triton.jit
def parameter_gradients_kernel(
    firsts,
    seconds,
    gradients,
    saved,
    hidden_gradients,
    results,
    META: tl.constexpr,
    PLACES: tl.constexpr,
    WIDTHS: tl.constexpr,
    JOBS: tl.constexpr,
    LAYERS: tl.constexpr,
    NORM: tl.constexpr,
    KEPT: tl.constexpr,
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    TILE_END: tl.constexpr,
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    PART: tl.constexpr,
    WEIGHTS: tl.constexpr,
    REST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients in the layout of the parameters, of each PART of the rows; a program computes one tile.

    These are the WEIGHTS between hidden layers, the REST, or both. The tiles of a network are neighbours, so that what they
    share is read once.
    """
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    tiles = pick(job, META, 14, JOBS)
    stack, tile, part = (inside // tiles) % stacks, inside % tiles, inside // (stacks * tiles)
    number = part * (stacks // ensemble) + stack // ensemble  # partial results are stored part after part
    result = pick_pointer(job, results, JOBS) + number.to(tl.int64) * pick(job, META, 15, JOBS)
    _tile(
        *(job, stack, tile, part * PART, tl.minimum(rows, (part + 1) * PART), result),
        *(firsts, seconds, gradients, saved, hidden_gradients),
        *(META, PLACES, WIDTHS, JOBS, LAYERS, NORM, KEPT, TILE_IN, TILE_OUT, TILE_END, SMALL, STEP),
        *(WEIGHTS, REST, PRECISION, ()),
    )


@triton.jit
def parameter_updates_kernel(
    firsts,
    seconds,
    gradients,
    saved,
    hidden_gradients,
    buffers,
    factors,
    tau,
    decays,
    META: tl.constexpr,
    SEGMENTS: tl.constexpr,
    ROW: tl.constexpr,
    TARGET_ROW: tl.constexpr,
    GROUPS: tl.constexpr,
    RULE: tl.constexpr,
    PLACES: tl.constexpr,
    WIDTHS: tl.constexpr,
    JOBS: tl.constexpr,
    LAYERS: tl.constexpr,
    NORM: tl.constexpr,
    KEPT: tl.constexpr,
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    TILE_END: tl.constexpr,
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Update all parameters of the jobs by their gradients, and their targets; a program updates one tile.

    A segment is (column, group, column of its target or less than 0) of the job; see `adam_kernel` for the rest.
    """
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    tiles = pick(job, META, 14, JOBS)
    stack, tile = inside // tiles, inside % tiles
    member = stack // pick(job, META, 2, JOBS)
    column, target_column = pick(job, SEGMENTS, 0, JOBS), pick(job, SEGMENTS, 2, JOBS)
    here = buffers_of(member, column, target_column, buffers, ROW, TARGET_ROW)
    own = factors + (member * GROUPS + pick(job, SEGMENTS, 1, JOBS)) * 3
    to = (here, decays + column, own, tau + member, target_column >= 0)
    _tile(
        *(job, stack, tile, 0, pick(job, META, 3, JOBS), to),
        *(firsts, seconds, gradients, saved, hidden_gradients),
        *(META, PLACES, WIDTHS, JOBS, LAYERS, NORM, KEPT, TILE_IN, TILE_OUT, TILE_END, SMALL, STEP),
        *(True, True, PRECISION, RULE),
    )
