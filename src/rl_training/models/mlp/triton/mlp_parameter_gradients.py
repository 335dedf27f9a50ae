"""The gradients of the parameters of stacked perceptrons as one Triton kernel.

As in the forward kernel: a list of jobs per launch, a tile per program, the same precisions, sums in a fixed order.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.layout import ROWS_PER_SUM as _ROWS_PER_SUM
from rl_training.models.mlp.triton.jobs import parameter, pick, pick_pointer, product, which

ROWS_PER_SUM = tl.constexpr(_ROWS_PER_SUM)


@triton.jit
def add_parts_kernel(parts, result, size, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sum of COUNT partial results, which are stored one after another, added in order."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < size
    total = tl.load(parts + place, mask=mask)
    for part in tl.static_range(1, COUNT):
        total += tl.load(parts + size.to(tl.int64) * part + place, mask=mask)
    tl.store(result + place, total, mask=mask)


@triton.jit
def add_ranges_kernel(parts, results, members, META: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sums of partial results (parts, members, size), added in order, for some ranges of columns.

    A piece is (first program, column, columns, size, parts).
    """
    piece = which(META, PIECES)
    place = (tl.program_id(0) - pick(piece, META, 0, PIECES)) * BLOCK + tl.arange(0, BLOCK)
    live = place < pick(piece, META, 2, PIECES)
    place += pick(piece, META, 1, PIECES)
    size, count = pick(piece, META, 3, PIECES), pick(piece, META, 4, PIECES)
    own = tl.program_id(1).to(tl.int64) * size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, count, 8):
        part = start + tl.arange(0, 8)
        address = pick_pointer(piece, parts, PIECES) + own + (part.to(tl.int64) * members * size)[:, None] + place[None, :]
        total += tl.sum(tl.load(address, mask=(part < count)[:, None] & live[None, :], other=0.0), 0)
    tl.store(pick_pointer(piece, results, PIECES) + own + place, total, mask=live)


@triton.jit
def _begin_sums(STEP: tl.constexpr, WIDTH: tl.constexpr):
    """Return zeros to add rows to: STEP rows, which are summed at the end, or one where they would take many registers."""
    return tl.zeros((STEP if STEP * WIDTH <= 4096 else 1, WIDTH), dtype=tl.float32)


@triton.jit
def _add_rows(sums, rows):
    """Return the sums with further rows added."""
    values = rows.to(tl.float32)
    return sums + (values if sums.shape[0] == rows.shape[0] else tl.sum(values, 0, keep_dims=True))


@triton.jit
def _store_gradient(weight, bias, total, sums, k, n, fan_in, fan_out):
    """Write a tile of a weight's gradient; the first row of tiles also writes the bias's gradient."""
    tl.store(weight + k[:, None] * fan_out + n[None, :], total, mask=(k < fan_in)[:, None] & (n < fan_out)[None, :])
    tl.store(bias + n, sums, mask=(n < fan_out) & (tl.min(k, 0) == 0))


@triton.jit
def _hidden_weight_gradient(
    below,
    above,
    weight,
    bias,
    tile,
    before,
    begin,
    end,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write one tile of the gradient of a weight between two hidden layers, and of its bias."""
    across = tl.cdiv(FAN_OUT, TILE_OUT)
    k, n = (tile // across) * TILE_IN + tl.arange(0, TILE_IN), (tile % across) * TILE_OUT + tl.arange(0, TILE_OUT)
    total = tl.zeros((TILE_IN, TILE_OUT), dtype=tl.float32)
    sums = _begin_sums(STEP, TILE_OUT)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        live = row < end
        x_mask = live[None, :] & (k < FAN_IN)[:, None]
        x = tl.load(below + (before + row)[None, :] * FAN_IN + k[:, None], mask=x_mask, other=0.0)
        g_mask = live[:, None] & (n < FAN_OUT)[None, :]
        g = tl.load(above + (before + row)[:, None] * FAN_OUT + n[None, :], mask=g_mask, other=0.0)
        total = product(x, g, total, PRECISION)
        sums = _add_rows(sums, g)
    _store_gradient(weight, bias, total, tl.sum(sums, 0), k, n, FAN_IN, FAN_OUT)


@triton.jit
def _row_sums(values, result, tile, before, begin, end, WIDTH: tl.constexpr, TILE_OUT: tl.constexpr, STEP: tl.constexpr):
    """Write one tile of the sum of the rows from `begin` to `end`, the gradient of a bias."""
    n = tile * TILE_OUT + tl.arange(0, TILE_OUT)
    sums = _begin_sums(STEP, TILE_OUT)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        mask = (row < end)[:, None] & (n < WIDTH)[None, :]
        g = tl.load(values + (before + row)[:, None] * WIDTH + n[None, :], mask=mask, other=0.0)
        sums = _add_rows(sums, g)
    tl.store(result + n, tl.sum(sums, 0), mask=n < WIDTH)


@triton.jit
def _norm_gradients(
    sums,
    scale,
    offset,
    tile,
    stack,
    stacks,
    rows,
    begin,
    end,
    WIDTH: tl.constexpr,
    TILE_OUT: tl.constexpr,
    STEP: tl.constexpr,
):
    """Write one tile of the gradients of a LayerNorm's scale and offset, which are stored as sums of some rows each."""
    count = tl.cdiv(rows, ROWS_PER_SUM)
    first, last = begin // ROWS_PER_SUM, tl.cdiv(end, ROWS_PER_SUM)
    before = stack.to(tl.int64) * count
    _row_sums(sums, scale, tile, before, first, last, WIDTH, TILE_OUT, STEP)
    _row_sums(sums, offset, tile, before + stacks.to(tl.int64) * count, first, last, WIDTH, TILE_OUT, STEP)


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
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    PART: tl.constexpr,
    HIDDEN: tl.constexpr,
    ENDS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients in the layout of the parameters; a program computes one tile of one layer.

    Between hidden layers these are the "weights" with their biases, the "biases" alone, or "none", as HIDDEN says; ENDS are
    the first and the last layer.
    """
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    tiles_in_all = pick(job, META, 14, JOBS)
    stack, tile = inside % stacks, (inside // stacks) % tiles_in_all
    part = inside // (stacks * tiles_in_all)
    begin, end = part * PART, tl.minimum(rows, (part + 1) * PART)
    member, critic = stack // ensemble, stack % ensemble
    before = stack.to(tl.int64) * rows
    first_width, second_width = pick(job, META, 4, JOBS), pick(job, META, 5, JOBS)
    width = first_width + second_width
    out_width = pick(job, META, 12, JOBS)
    number = part * (stacks // ensemble) + member  # partial results are stored part after part
    result = pick_pointer(job, results, JOBS) + number.to(tl.int64) * pick(job, META, 15, JOBS)
    kept, hidden = pick_pointer(job, saved, JOBS), pick_pointer(job, hidden_gradients, JOBS)

    plane, sum_plane = stacks.to(tl.int64) * rows, stacks.to(tl.int64) * tl.cdiv(rows, ROWS_PER_SUM)
    sums_of_norms = hidden
    for layer in tl.static_range(0, LAYERS):
        sums_of_norms += plane * WIDTHS[layer]
    lowest, lowest_sums = hidden, sums_of_norms

    for layer in tl.static_range(1, LAYERS):
        hidden += plane * WIDTHS[layer - 1]
        sums_of_norms += 2 * sum_plane * WIDTHS[layer - 1]
        weight = parameter(result, job, critic, PLACES, COUNT * layer, JOBS)
        bias = parameter(result, job, critic, PLACES, COUNT * layer + 1, JOBS)
        across = tl.cdiv(WIDTHS[layer], TILE_OUT)
        down = tl.cdiv(WIDTHS[layer - 1], TILE_IN) if HIDDEN == "weights" else 1
        tiles = across * down if HIDDEN != "none" else 0
        if (tile >= 0) & (tile < tiles):
            if HIDDEN == "weights":
                _hidden_weight_gradient(
                    *(kept, hidden, weight, bias, tile, before, begin, end),
                    *(WIDTHS[layer - 1], WIDTHS[layer], TILE_IN, TILE_OUT, STEP, PRECISION),
                )
            else:
                _row_sums(hidden, bias, tile, before, begin, end, WIDTHS[layer], TILE_OUT, STEP)
        if NORM != "none" and HIDDEN != "none":
            if (tile >= 0) & (tile < across):
                scale = parameter(result, job, critic, PLACES, COUNT * layer + 2, JOBS)
                offset = parameter(result, job, critic, PLACES, COUNT * layer + 3, JOBS)
                _norm_gradients(
                    *(sums_of_norms, scale, offset, tile, stack, stacks, rows, begin, end),
                    *(WIDTHS[layer], TILE_OUT, STEP),
                )
        tile -= tiles
        kept += plane * KEPT * WIDTHS[layer - 1]

    if not ENDS:
        return
    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    if (tile >= 0) & (tile < tl.cdiv(HIGHEST, TILE_OUT)):  # the last layer, transposed so that `kept` is read as stored
        n, k = tl.arange(0, SMALL), tile * TILE_OUT + tl.arange(0, TILE_OUT)
        total = tl.zeros((SMALL, TILE_OUT), dtype=tl.float32)
        sums = tl.zeros((SMALL, STEP), dtype=tl.float32)
        gradient = pick_pointer(job, gradients, JOBS)
        for start in range(begin, end, STEP):
            row = start + tl.arange(0, STEP)
            live = row < end
            g_mask = live[None, :] & (n < out_width)[:, None]
            g = tl.load(gradient + (before + row)[None, :] * out_width + n[:, None], mask=g_mask, other=0.0)
            x_mask = live[:, None] & (k < HIGHEST)[None, :]
            x = tl.load(kept + (before + row)[:, None] * HIGHEST + k[None, :], mask=x_mask, other=0.0)
            total = product(g.to(x.dtype), x, total, PRECISION)
            sums += g
        weight = parameter(result, job, critic, PLACES, COUNT * LAYERS, JOBS)
        bias = parameter(result, job, critic, PLACES, COUNT * LAYERS + 1, JOBS)
        address = weight + k[None, :] * out_width + n[:, None]
        tl.store(address, total, mask=(k < HIGHEST)[None, :] & (n < out_width)[:, None])
        # the bias of the last critic is followed by padding, which is zeroed here
        filled = tl.where(critic == ensemble - 1, pick(job, META, 13, JOBS), out_width)
        tl.store(bias + n, tl.sum(sums, 1), mask=(n < filled) & (tile == 0))
    tile -= tl.cdiv(HIGHEST, TILE_OUT)

    LOWEST: tl.constexpr = WIDTHS[0]
    if tile >= 0:  # the first layer
        first = pick_pointer(job, firsts, JOBS) + member.to(tl.int64) * pick(job, META, 6, JOBS)
        second = pick_pointer(job, seconds, JOBS) + member.to(tl.int64) * pick(job, META, 9, JOBS)
        across = tl.cdiv(LOWEST, TILE_OUT)
        k, n = (tile // across) * SMALL + tl.arange(0, SMALL), (tile % across) * TILE_OUT + tl.arange(0, TILE_OUT)
        total = tl.zeros((SMALL, TILE_OUT), dtype=tl.float32)
        sums = _begin_sums(STEP, TILE_OUT)
        for start in range(begin, end, STEP):
            row = start + tl.arange(0, STEP)
            live = row < end
            first_row = (row % pick(job, META, 8, JOBS)) * pick(job, META, 7, JOBS)
            second_row = row * pick(job, META, 10, JOBS)
            in_first = live[None, :] & (k < first_width)[:, None]
            in_second = live[None, :] & ((k >= first_width) & (k < width))[:, None]
            x = tl.load(first + first_row[None, :] + k[:, None], mask=in_first, other=0.0)
            x += tl.load(second + second_row[None, :] + (k - first_width)[:, None], mask=in_second, other=0.0)
            g_mask = live[:, None] & (n < LOWEST)[None, :]
            g = tl.load(lowest + (before + row)[:, None] * LOWEST + n[None, :], mask=g_mask, other=0.0)
            total = product(x.to(g.dtype), g, total, PRECISION)
            sums = _add_rows(sums, g)
        weight, bias = parameter(result, job, critic, PLACES, 0, JOBS), parameter(result, job, critic, PLACES, 1, JOBS)
        _store_gradient(weight, bias, total, tl.sum(sums, 0), k, n, width, LOWEST)
        if NORM != "none":
            if tile < across:
                scale, offset = (
                    parameter(result, job, critic, PLACES, 2, JOBS),
                    parameter(result, job, critic, PLACES, 3, JOBS),
                )
                _norm_gradients(
                    *(lowest_sums, scale, offset, tile, stack, stacks, rows, begin, end), *(LOWEST, TILE_OUT, STEP)
                )
