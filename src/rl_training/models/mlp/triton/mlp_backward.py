"""The backward pass of stacked perceptrons as two Triton kernels: hidden gradients, parameter gradients.

As in the forward kernel: a list of jobs per launch, a tile per program, the same precisions, sums in a fixed order.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.jobs import pick, pick_pointer, product, which


@triton.jit
def _times_transposed(
    above,
    weight,
    line,
    live,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the rows `line` of `above` (rows, out) times the transpose of a weight (in, out)."""
    unit = tl.arange(0, FAN_IN)
    total = tl.zeros((ROWS, FAN_IN), dtype=tl.float32)
    for start in range(0, FAN_OUT, STEP):
        feature = start + tl.arange(0, STEP)
        g = tl.load(above + line[:, None] * FAN_OUT + feature[None, :], mask=live[:, None], other=0.0)
        w = tl.load(weight + unit[None, :] * FAN_OUT + feature[:, None])
        total = product(g, w, total, PRECISION)
    return total


@triton.jit
def _deactivate(total, kept, result, line, live, WIDTH: tl.constexpr):
    """Write the gradient before an activation, given the gradient after it in `total`."""
    offset = line[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    active = tl.load(kept + offset, mask=live[:, None], other=0.0) > 0.0
    tl.store(result + offset, tl.where(active, total, 0.0), mask=live[:, None])


@triton.jit
def _input_gradients(
    hidden,
    weight,
    result,
    line,
    live,
    wanted,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients at the first `wanted` inputs of a weight (in, out)."""
    column = tl.arange(0, IN)
    total = tl.zeros((ROWS, IN), dtype=tl.float32)
    for start in range(0, WIDTH, STEP):
        feature = start + tl.arange(0, STEP)
        g = tl.load(hidden + line[:, None] * WIDTH + feature[None, :], mask=live[:, None], other=0.0)
        address = weight + column[None, :] * WIDTH + feature[:, None]
        w = tl.load(address, mask=(column < wanted)[None, :], other=0.0)
        total = product(g, w, total, PRECISION)
    address = result + line[:, None] * wanted + column[None, :]
    tl.store(address, total, mask=live[:, None] & (column < wanted)[None, :])


@triton.jit
def hidden_gradients_kernel(
    columns,
    gradients,
    saved,
    hidden_gradients,
    inputs,
    META: tl.constexpr,
    PLACES: tl.constexpr,
    WIDTHS: tl.constexpr,
    JOBS: tl.constexpr,
    LAYERS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients at every hidden layer before its activation, in the layout of `saved`, and at the wanted inputs."""
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    tiles = (rows + ROWS - 1) // ROWS
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    row = tile * ROWS + tl.arange(0, ROWS)
    live = row < rows
    line = stack.to(tl.int64) * rows + row
    own = pick_pointer(job, columns, JOBS) + member.to(tl.int64) * pick(job, META, 11, JOBS)
    kept, hidden = pick_pointer(job, saved, JOBS), pick_pointer(job, hidden_gradients, JOBS)
    for layer in tl.static_range(0, LAYERS - 1):
        kept += stacks.to(tl.int64) * rows * WIDTHS[layer]
        hidden += stacks.to(tl.int64) * rows * WIDTHS[layer]

    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    out_width = pick(job, META, 12, JOBS)
    out, unit = tl.arange(0, OUT), tl.arange(0, HIGHEST)
    shown = out < out_width
    weight = own + pick(job, PLACES, 4 * LAYERS, JOBS) + critic * pick(job, PLACES, 4 * LAYERS + 1, JOBS)
    gradient = pick_pointer(job, gradients, JOBS) + line[:, None] * out_width + out[None, :]
    g = tl.load(gradient, mask=live[:, None] & shown[None, :], other=0.0)
    w = tl.load(weight + unit[None, :] * out_width + out[:, None], mask=shown[:, None], other=0.0)
    total = product(g, w, tl.zeros((ROWS, HIGHEST), dtype=tl.float32), PRECISION)
    _deactivate(total, kept, hidden, line, live, HIGHEST)

    for layer in tl.static_range(LAYERS - 2, -1, -1):
        above = hidden
        kept -= stacks.to(tl.int64) * rows * WIDTHS[layer]
        hidden -= stacks.to(tl.int64) * rows * WIDTHS[layer]
        weight = own + pick(job, PLACES, 4 * layer + 4, JOBS) + critic * pick(job, PLACES, 4 * layer + 5, JOBS)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        total = _times_transposed(above, weight, line, live, WIDTHS[layer], WIDTHS[layer + 1], ROWS, STEP, PRECISION)
        _deactivate(total, kept, hidden, line, live, WIDTHS[layer])

    wanted = pick(job, META, 14, JOBS)  # number of inputs; field 13 is the first
    if wanted > 0:
        tl.debug_barrier()
        weight = own + pick(job, PLACES, 0, JOBS) + critic * pick(job, PLACES, 1, JOBS)
        weight += pick(job, META, 13, JOBS) * WIDTHS[0]
        _input_gradients(
            *(hidden, weight, pick_pointer(job, inputs, JOBS), line, live, wanted),
            *(WIDTHS[0], IN, ROWS, STEP, PRECISION),
        )


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
    sums = tl.zeros((TILE_OUT,), dtype=tl.float32)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        live = row < end
        x_mask = live[None, :] & (k < FAN_IN)[:, None]
        x = tl.load(below + (before + row)[None, :] * FAN_IN + k[:, None], mask=x_mask, other=0.0)
        g_mask = live[:, None] & (n < FAN_OUT)[None, :]
        g = tl.load(above + (before + row)[:, None] * FAN_OUT + n[None, :], mask=g_mask, other=0.0)
        total = product(x, g, total, PRECISION)
        sums += tl.sum(g.to(tl.float32), 0)
    _store_gradient(weight, bias, total, sums, k, n, FAN_IN, FAN_OUT)


@triton.jit
def _bias_gradient(above, bias, tile, before, begin, end, FAN_OUT: tl.constexpr, TILE_OUT: tl.constexpr, STEP: tl.constexpr):
    """Write one tile of the gradient of a bias."""
    n = tile * TILE_OUT + tl.arange(0, TILE_OUT)
    sums = tl.zeros((TILE_OUT,), dtype=tl.float32)
    for start in range(begin, end, STEP):
        row = start + tl.arange(0, STEP)
        mask = (row < end)[:, None] & (n < FAN_OUT)[None, :]
        g = tl.load(above + (before + row)[:, None] * FAN_OUT + n[None, :], mask=mask, other=0.0)
        sums += tl.sum(g.to(tl.float32), 0)
    tl.store(bias + n, sums, mask=n < FAN_OUT)


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
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    SMALL: tl.constexpr,
    STEP: tl.constexpr,
    PART: tl.constexpr,
    HIDDEN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients of weights and biases, in the layout of the parameters; a program computes one tile of one layer.

    Without HIDDEN the weights between hidden layers are skipped.
    """
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

    for layer in tl.static_range(1, LAYERS):
        above = hidden + stacks.to(tl.int64) * rows * WIDTHS[layer - 1]
        weight = result + pick(job, PLACES, 4 * layer, JOBS) + critic * pick(job, PLACES, 4 * layer + 1, JOBS)
        bias = result + pick(job, PLACES, 4 * layer + 2, JOBS) + critic * pick(job, PLACES, 4 * layer + 3, JOBS)
        tiles = tl.cdiv(WIDTHS[layer], TILE_OUT) * (tl.cdiv(WIDTHS[layer - 1], TILE_IN) if HIDDEN else 1)
        if (tile >= 0) & (tile < tiles):
            if HIDDEN:
                _hidden_weight_gradient(
                    *(kept, above, weight, bias, tile, before, begin, end),
                    *(WIDTHS[layer - 1], WIDTHS[layer], TILE_IN, TILE_OUT, STEP, PRECISION),
                )
            else:
                _bias_gradient(above, bias, tile, before, begin, end, WIDTHS[layer], TILE_OUT, STEP)
        tile -= tiles
        kept += stacks.to(tl.int64) * rows * WIDTHS[layer - 1]
        hidden = above

    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    if (tile >= 0) & (tile < tl.cdiv(HIGHEST, TILE_OUT)):  # the last layer, transposed so that `kept` is read as stored
        n, k = tl.arange(0, SMALL), tile * TILE_OUT + tl.arange(0, TILE_OUT)
        total = tl.zeros((SMALL, TILE_OUT), dtype=tl.float32)
        sums = tl.zeros((SMALL,), dtype=tl.float32)
        gradient = pick_pointer(job, gradients, JOBS)
        for start in range(begin, end, STEP):
            row = start + tl.arange(0, STEP)
            live = row < end
            g_mask = live[None, :] & (n < out_width)[:, None]
            g = tl.load(gradient + (before + row)[None, :] * out_width + n[:, None], mask=g_mask, other=0.0)
            x_mask = live[:, None] & (k < HIGHEST)[None, :]
            x = tl.load(kept + (before + row)[:, None] * HIGHEST + k[None, :], mask=x_mask, other=0.0)
            total = product(g.to(x.dtype), x, total, PRECISION)
            sums += tl.sum(g, 1)
        weight = result + pick(job, PLACES, 4 * LAYERS, JOBS) + critic * pick(job, PLACES, 4 * LAYERS + 1, JOBS)
        bias = result + pick(job, PLACES, 4 * LAYERS + 2, JOBS) + critic * pick(job, PLACES, 4 * LAYERS + 3, JOBS)
        address = weight + k[None, :] * out_width + n[:, None]
        tl.store(address, total, mask=(k < HIGHEST)[None, :] & (n < out_width)[:, None])
        # the bias of the last critic is followed by padding, which is zeroed here
        filled = tl.where(critic == ensemble - 1, pick(job, META, 13, JOBS), out_width)
        tl.store(bias + n, sums, mask=(n < filled) & (tile == 0))
    tile -= tl.cdiv(HIGHEST, TILE_OUT)

    LOWEST: tl.constexpr = WIDTHS[0]
    if tile >= 0:  # the first layer
        first = pick_pointer(job, firsts, JOBS) + member.to(tl.int64) * pick(job, META, 6, JOBS)
        second = pick_pointer(job, seconds, JOBS) + member.to(tl.int64) * pick(job, META, 9, JOBS)
        lowest = pick_pointer(job, hidden_gradients, JOBS)
        across = tl.cdiv(LOWEST, TILE_OUT)
        k, n = (tile // across) * SMALL + tl.arange(0, SMALL), (tile % across) * TILE_OUT + tl.arange(0, TILE_OUT)
        total = tl.zeros((SMALL, TILE_OUT), dtype=tl.float32)
        sums = tl.zeros((TILE_OUT,), dtype=tl.float32)
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
            sums += tl.sum(g.to(tl.float32), 0)
        weight = result + pick(job, PLACES, 0, JOBS) + critic * pick(job, PLACES, 1, JOBS)
        bias = result + pick(job, PLACES, 2, JOBS) + critic * pick(job, PLACES, 3, JOBS)
        _store_gradient(weight, bias, total, sums, k, n, width, LOWEST)
