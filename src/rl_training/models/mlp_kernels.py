"""Triton kernels of stacked perceptrons: forward, backward to the hidden layers, and gradients of the parameters.

One launch serves a list of *jobs*: networks of the same hidden widths, each with inputs and parameters of its own. A program
holds a tile of rows of one network and takes it through all layers; weights come through the cache. Between layers the tile
goes through memory, which the backward pass needs anyway. Everything that differs between jobs is known when the kernel is
compiled (`META`), except the addresses.

Products are in full float32 ("ieee"), TF32 ("tf32") or bfloat16 ("bf16", inputs rounded, sums in float32). Each element of
a result is summed by one program in one order, so that a launch repeats bit for bit.
"""

import triton
import triton.language as tl


@triton.jit
def _product(a, b, total, PRECISION: tl.constexpr):
    """total + a @ b."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        result = tl.dot(a, b, total, input_precision=PRECISION)
    return result


@triton.jit
def _which(META: tl.constexpr, JOBS: tl.constexpr):
    """The job of this program; the first field of a job is its first program."""
    program = tl.program_id(0)
    job = program * 0
    for other in tl.static_range(1, JOBS):
        job += tl.where(program >= META[other][0], 1, 0)
    return job


@triton.jit
def _pick(job, META: tl.constexpr, FIELD: tl.constexpr, JOBS: tl.constexpr):
    """A number of the job."""
    value = job * 0 + META[0][FIELD]
    for other in tl.static_range(1, JOBS):
        value = tl.where(job == other, META[other][FIELD], value)
    return value


@triton.jit
def _pick_pointer(job, pointers, JOBS: tl.constexpr):
    """An address of the job."""
    pointer = pointers[0]
    for other in tl.static_range(1, JOBS):
        pointer = tl.where(job == other, pointers[other], pointer)
    return pointer


@triton.jit
def _times_weight(
    below,
    weight,
    line,
    live,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Rows number `line` of `below` (rows, in) times a weight (in, out)."""
    unit = tl.arange(0, FAN_OUT)
    total = tl.zeros((ROWS, FAN_OUT), dtype=tl.float32)
    for start in range(0, FAN_IN, STEP):
        feature = start + tl.arange(0, STEP)
        x = tl.load(below + line[:, None] * FAN_IN + feature[None, :], mask=live[:, None], other=0.0)
        w = tl.load(weight + feature[:, None] * FAN_OUT + unit[None, :])
        total = _product(x, w, total, PRECISION)
    return total


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
    """Rows number `line` of `above` (rows, out) times the transpose of a weight (in, out)."""
    unit = tl.arange(0, FAN_IN)
    total = tl.zeros((ROWS, FAN_IN), dtype=tl.float32)
    for start in range(0, FAN_OUT, STEP):
        feature = start + tl.arange(0, STEP)
        g = tl.load(above + line[:, None] * FAN_OUT + feature[None, :], mask=live[:, None], other=0.0)
        w = tl.load(weight + unit[None, :] * FAN_OUT + feature[:, None])
        total = _product(g, w, total, PRECISION)
    return total


@triton.jit
def _activate(total, bias, kept, line, live, WIDTH: tl.constexpr):
    """Add the bias, cut at zero, and keep the result."""
    unit = tl.arange(0, WIDTH)
    hidden = tl.maximum(total + tl.load(bias + unit)[None, :], 0.0)
    tl.store(kept + line[:, None] * WIDTH + unit[None, :], hidden, mask=live[:, None])
    return hidden


@triton.jit
def _deactivate(total, kept, slope, line, live, WIDTH: tl.constexpr):
    """Write the slopes before an activation from those behind it."""
    place = line[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    active = tl.load(kept + place, mask=live[:, None], other=0.0) > 0.0
    tl.store(slope + place, tl.where(active, total, 0.0), mask=live[:, None])


@triton.jit
def forward_kernel(
    columns,
    firsts,
    seconds,
    outputs,
    saved,
    META: tl.constexpr,
    PLACES: tl.constexpr,
    WIDTHS: tl.constexpr,
    JOBS: tl.constexpr,
    LAYERS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Outputs of every job; hidden activations go to `saved`, layer after layer, each (stack, rows, width)."""
    job = _which(META, JOBS)
    inside = tl.program_id(0) - _pick(job, META, 0, JOBS)
    stacks, ensemble, rows = _pick(job, META, 1, JOBS), _pick(job, META, 2, JOBS), _pick(job, META, 3, JOBS)
    tiles = (rows + ROWS - 1) // ROWS
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    row = tile * ROWS + tl.arange(0, ROWS)
    live = row < rows

    first_width, second_width = _pick(job, META, 4, JOBS), _pick(job, META, 5, JOBS)
    width = first_width + second_width
    first = _pick_pointer(job, firsts, JOBS) + member.to(tl.int64) * _pick(job, META, 6, JOBS)
    first_row = (row % _pick(job, META, 8, JOBS)) * _pick(job, META, 7, JOBS)
    second = _pick_pointer(job, seconds, JOBS) + member.to(tl.int64) * _pick(job, META, 9, JOBS)
    second_row = row * _pick(job, META, 10, JOBS)
    own = _pick_pointer(job, columns, JOBS) + member.to(tl.int64) * _pick(job, META, 11, JOBS)
    kept = _pick_pointer(job, saved, JOBS)

    LOWEST: tl.constexpr = WIDTHS[0]
    unit = tl.arange(0, LOWEST)
    weight = own + _pick(job, PLACES, 0, JOBS) + critic * _pick(job, PLACES, 1, JOBS)
    total = tl.zeros((ROWS, LOWEST), dtype=tl.float32)
    for start in range(0, width, STEP):
        feature = start + tl.arange(0, STEP)
        in_first = live[:, None] & (feature < first_width)[None, :]
        in_second = live[:, None] & ((feature >= first_width) & (feature < width))[None, :]
        x = tl.load(first + first_row[:, None] + feature[None, :], mask=in_first, other=0.0)
        x += tl.load(second + second_row[:, None] + (feature - first_width)[None, :], mask=in_second, other=0.0)
        w = tl.load(weight + feature[:, None] * LOWEST + unit[None, :], mask=(feature < width)[:, None], other=0.0)
        total = _product(x, w, total, PRECISION)
    bias = own + _pick(job, PLACES, 2, JOBS) + critic * _pick(job, PLACES, 3, JOBS)
    line = stack.to(tl.int64) * rows + row
    hidden = _activate(total, bias, kept, line, live, LOWEST)

    for layer in tl.static_range(1, LAYERS):
        weight = own + _pick(job, PLACES, 4 * layer, JOBS) + critic * _pick(job, PLACES, 4 * layer + 1, JOBS)
        bias = own + _pick(job, PLACES, 4 * layer + 2, JOBS) + critic * _pick(job, PLACES, 4 * layer + 3, JOBS)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        total = _times_weight(kept, weight, line, live, WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
        kept += stacks.to(tl.int64) * rows * WIDTHS[layer - 1]
        kept_rows = live & ((layer < LAYERS - 1) | (ROWS > 32) | (_pick(job, META, 14, JOBS) > 0))
        hidden = _activate(total, bias, kept, line, kept_rows, WIDTHS[layer])

    out_width = _pick(job, META, 12, JOBS)
    out = tl.arange(0, OUT)
    weight = own + _pick(job, PLACES, 4 * LAYERS, JOBS) + critic * _pick(job, PLACES, 4 * LAYERS + 1, JOBS)
    bias = own + _pick(job, PLACES, 4 * LAYERS + 2, JOBS) + critic * _pick(job, PLACES, 4 * LAYERS + 3, JOBS)
    shown = (out < out_width)[None, :]
    total = tl.zeros((ROWS, OUT), dtype=tl.float32)
    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    if ROWS <= 32:  # a small tile goes from registers into the last product
        w = tl.load(weight + tl.arange(0, HIGHEST)[:, None] * out_width + out[None, :], mask=shown, other=0.0)
        total = _product(hidden, w, total, PRECISION)
    else:
        tl.debug_barrier()
        for start in range(0, HIGHEST, STEP):
            feature = start + tl.arange(0, STEP)
            x = tl.load(kept + line[:, None] * HIGHEST + feature[None, :], mask=live[:, None], other=0.0)
            w = tl.load(weight + feature[:, None] * out_width + out[None, :], mask=shown, other=0.0)
            total = _product(x, w, total, PRECISION)
    result = total + tl.load(bias + out, mask=out < out_width, other=0.0)[None, :]
    place = _pick_pointer(job, outputs, JOBS) + line[:, None] * out_width + out[None, :]
    tl.store(place, result, mask=live[:, None] & shown)


@triton.jit
def _input_slopes(
    slope,
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
    """Slopes at the first `wanted` inputs that a weight (in, out) sees."""
    column = tl.arange(0, IN)
    total = tl.zeros((ROWS, IN), dtype=tl.float32)
    for start in range(0, WIDTH, STEP):
        feature = start + tl.arange(0, STEP)
        g = tl.load(slope + line[:, None] * WIDTH + feature[None, :], mask=live[:, None], other=0.0)
        place = weight + column[None, :] * WIDTH + feature[:, None]
        w = tl.load(place, mask=(column < wanted)[None, :], other=0.0)
        total = _product(g, w, total, PRECISION)
    place = result + line[:, None] * wanted + column[None, :]
    tl.store(place, total, mask=live[:, None] & (column < wanted)[None, :])


@triton.jit
def hidden_slopes_kernel(
    columns,
    gradients,
    saved,
    slopes,
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
    """Slopes of the loss at every hidden layer before its activation, laid out like `saved`, and at some of the inputs."""
    job = _which(META, JOBS)
    inside = tl.program_id(0) - _pick(job, META, 0, JOBS)
    stacks, ensemble, rows = _pick(job, META, 1, JOBS), _pick(job, META, 2, JOBS), _pick(job, META, 3, JOBS)
    tiles = (rows + ROWS - 1) // ROWS
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    row = tile * ROWS + tl.arange(0, ROWS)
    live = row < rows
    line = stack.to(tl.int64) * rows + row
    own = _pick_pointer(job, columns, JOBS) + member.to(tl.int64) * _pick(job, META, 11, JOBS)
    kept, slope = _pick_pointer(job, saved, JOBS), _pick_pointer(job, slopes, JOBS)
    for layer in tl.static_range(0, LAYERS - 1):
        kept += stacks.to(tl.int64) * rows * WIDTHS[layer]
        slope += stacks.to(tl.int64) * rows * WIDTHS[layer]

    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    out_width = _pick(job, META, 12, JOBS)
    out, unit = tl.arange(0, OUT), tl.arange(0, HIGHEST)
    shown = out < out_width
    weight = own + _pick(job, PLACES, 4 * LAYERS, JOBS) + critic * _pick(job, PLACES, 4 * LAYERS + 1, JOBS)
    gradient = _pick_pointer(job, gradients, JOBS) + line[:, None] * out_width + out[None, :]
    g = tl.load(gradient, mask=live[:, None] & shown[None, :], other=0.0)
    w = tl.load(weight + unit[None, :] * out_width + out[:, None], mask=shown[:, None], other=0.0)
    total = _product(g, w, tl.zeros((ROWS, HIGHEST), dtype=tl.float32), PRECISION)
    _deactivate(total, kept, slope, line, live, HIGHEST)

    for layer in tl.static_range(LAYERS - 2, -1, -1):
        above = slope
        kept -= stacks.to(tl.int64) * rows * WIDTHS[layer]
        slope -= stacks.to(tl.int64) * rows * WIDTHS[layer]
        weight = own + _pick(job, PLACES, 4 * layer + 4, JOBS) + critic * _pick(job, PLACES, 4 * layer + 5, JOBS)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        total = _times_transposed(above, weight, line, live, WIDTHS[layer], WIDTHS[layer + 1], ROWS, STEP, PRECISION)
        _deactivate(total, kept, slope, line, live, WIDTHS[layer])

    wanted = _pick(job, META, 14, JOBS)  # how many of the inputs, from field 13 on
    if wanted > 0:
        tl.debug_barrier()
        weight = own + _pick(job, PLACES, 0, JOBS) + critic * _pick(job, PLACES, 1, JOBS)
        weight += _pick(job, META, 13, JOBS) * WIDTHS[0]
        _input_slopes(
            *(slope, weight, _pick_pointer(job, inputs, JOBS), line, live, wanted),
            *(WIDTHS[0], IN, ROWS, STEP, PRECISION),
        )


@triton.jit
def _store_gradient(weight, bias, total, sums, k, n, fan_in, fan_out, filled):
    """Write a tile of a weight's gradient and, from the first row of tiles, the bias's, with zeros up to `filled`."""
    mask = (k < fan_in)[:, None] & (n < fan_out)[None, :]
    tl.store(weight + k[:, None] * fan_out + n[None, :], total, mask=mask)
    tl.store(bias + n, sums, mask=(n < filled) & (tl.min(k, 0) == 0))


@triton.jit
def _hidden_gradient(
    below,
    above,
    weight,
    bias,
    tile,
    before,
    rows,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    TILE_IN: tl.constexpr,
    TILE_OUT: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One tile of the gradient of a layer between two hidden ones."""
    across = tl.cdiv(FAN_OUT, TILE_OUT)
    k, n = (tile // across) * TILE_IN + tl.arange(0, TILE_IN), (tile % across) * TILE_OUT + tl.arange(0, TILE_OUT)
    total = tl.zeros((TILE_IN, TILE_OUT), dtype=tl.float32)
    sums = tl.zeros((TILE_OUT,), dtype=tl.float32)
    for start in range(0, rows, STEP):
        row = start + tl.arange(0, STEP)
        live = row < rows
        x_mask = live[None, :] & (k < FAN_IN)[:, None]
        x = tl.load(below + (before + row)[None, :] * FAN_IN + k[:, None], mask=x_mask, other=0.0)
        g_mask = live[:, None] & (n < FAN_OUT)[None, :]
        g = tl.load(above + (before + row)[:, None] * FAN_OUT + n[None, :], mask=g_mask, other=0.0)
        total = _product(x, g, total, PRECISION)
        sums += tl.sum(g.to(tl.float32), 0)
    _store_gradient(weight, bias, total, sums, k, n, FAN_IN, FAN_OUT, FAN_OUT)


@triton.jit
def parameter_gradients_kernel(
    firsts,
    seconds,
    gradients,
    saved,
    slopes,
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
    PRECISION: tl.constexpr,
):
    """Gradients of weights and biases, in the layout of the parameters; a program makes one tile of one layer."""
    job = _which(META, JOBS)
    inside = tl.program_id(0) - _pick(job, META, 0, JOBS)
    stacks, ensemble, rows = _pick(job, META, 1, JOBS), _pick(job, META, 2, JOBS), _pick(job, META, 3, JOBS)
    stack, tile = inside % stacks, inside // stacks
    member, critic = stack // ensemble, stack % ensemble
    before = stack.to(tl.int64) * rows
    first_width, second_width = _pick(job, META, 4, JOBS), _pick(job, META, 5, JOBS)
    width = first_width + second_width
    out_width = _pick(job, META, 12, JOBS)
    result = _pick_pointer(job, results, JOBS) + member.to(tl.int64) * _pick(job, META, 15, JOBS)
    kept, slope = _pick_pointer(job, saved, JOBS), _pick_pointer(job, slopes, JOBS)

    for layer in tl.static_range(1, LAYERS):
        above = slope + stacks.to(tl.int64) * rows * WIDTHS[layer - 1]
        weight = result + _pick(job, PLACES, 4 * layer, JOBS) + critic * _pick(job, PLACES, 4 * layer + 1, JOBS)
        bias = result + _pick(job, PLACES, 4 * layer + 2, JOBS) + critic * _pick(job, PLACES, 4 * layer + 3, JOBS)
        tiles = tl.cdiv(WIDTHS[layer], TILE_OUT) * tl.cdiv(WIDTHS[layer - 1], TILE_IN)
        if (tile >= 0) & (tile < tiles):
            _hidden_gradient(
                *(kept, above, weight, bias, tile, before, rows),
                *(WIDTHS[layer - 1], WIDTHS[layer], TILE_IN, TILE_OUT, STEP, PRECISION),
            )
        tile -= tiles
        kept += stacks.to(tl.int64) * rows * WIDTHS[layer - 1]
        slope = above

    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    if (tile >= 0) & (tile < tl.cdiv(HIGHEST, TILE_IN)):  # the last layer: `kept` is that of the last hidden one
        k, n = tile * TILE_IN + tl.arange(0, TILE_IN), tl.arange(0, SMALL)
        total = tl.zeros((TILE_IN, SMALL), dtype=tl.float32)
        sums = tl.zeros((SMALL,), dtype=tl.float32)
        gradient = _pick_pointer(job, gradients, JOBS)
        for start in range(0, rows, STEP):
            row = start + tl.arange(0, STEP)
            live = row < rows
            x_mask = live[None, :] & (k < HIGHEST)[:, None]
            x = tl.load(kept + (before + row)[None, :] * HIGHEST + k[:, None], mask=x_mask, other=0.0)
            g_mask = live[:, None] & (n < out_width)[None, :]
            g = tl.load(gradient + (before + row)[:, None] * out_width + n[None, :], mask=g_mask, other=0.0)
            total = _product(x, g.to(x.dtype), total, PRECISION)
            sums += tl.sum(g, 0)
        weight = result + _pick(job, PLACES, 4 * LAYERS, JOBS) + critic * _pick(job, PLACES, 4 * LAYERS + 1, JOBS)
        bias = result + _pick(job, PLACES, 4 * LAYERS + 2, JOBS) + critic * _pick(job, PLACES, 4 * LAYERS + 3, JOBS)
        # behind the bias of the last critic comes padding
        filled = tl.where(critic == ensemble - 1, _pick(job, META, 13, JOBS), out_width)
        _store_gradient(weight, bias, total, sums, k, n, HIGHEST, out_width, filled)
    tile -= tl.cdiv(HIGHEST, TILE_IN)

    LOWEST: tl.constexpr = WIDTHS[0]
    if tile >= 0:  # the first layer
        first = _pick_pointer(job, firsts, JOBS) + member.to(tl.int64) * _pick(job, META, 6, JOBS)
        second = _pick_pointer(job, seconds, JOBS) + member.to(tl.int64) * _pick(job, META, 9, JOBS)
        lowest = _pick_pointer(job, slopes, JOBS)
        across = tl.cdiv(LOWEST, TILE_OUT)
        k, n = (tile // across) * SMALL + tl.arange(0, SMALL), (tile % across) * TILE_OUT + tl.arange(0, TILE_OUT)
        total = tl.zeros((SMALL, TILE_OUT), dtype=tl.float32)
        sums = tl.zeros((TILE_OUT,), dtype=tl.float32)
        for start in range(0, rows, STEP):
            row = start + tl.arange(0, STEP)
            live = row < rows
            first_row = (row % _pick(job, META, 8, JOBS)) * _pick(job, META, 7, JOBS)
            second_row = row * _pick(job, META, 10, JOBS)
            in_first = live[None, :] & (k < first_width)[:, None]
            in_second = live[None, :] & ((k >= first_width) & (k < width))[:, None]
            x = tl.load(first + first_row[None, :] + k[:, None], mask=in_first, other=0.0)
            x += tl.load(second + second_row[None, :] + (k - first_width)[:, None], mask=in_second, other=0.0)
            g_mask = live[:, None] & (n < LOWEST)[None, :]
            g = tl.load(lowest + (before + row)[:, None] * LOWEST + n[None, :], mask=g_mask, other=0.0)
            total = _product(x.to(g.dtype), g, total, PRECISION)
            sums += tl.sum(g.to(tl.float32), 0)
        weight = result + _pick(job, PLACES, 0, JOBS) + critic * _pick(job, PLACES, 1, JOBS)
        bias = result + _pick(job, PLACES, 2, JOBS) + critic * _pick(job, PLACES, 3, JOBS)
        _store_gradient(weight, bias, total, sums, k, n, width, LOWEST, LOWEST)


@triton.jit
def adam_kernel(
    parameters,
    first,
    second,
    targets,
    gradients,
    factors,
    tau,
    META: tl.constexpr,
    SEGMENTS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
    TARGET_ROW: tl.constexpr,
    GROUPS: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
):
    """Adam on some segments of the flat buffers, and polyak of their targets, in one pass over memory.

    A segment is (first program, column, size, group, column of its target or -1); `factors` holds for each member and group
    what multiplies m / (sqrt(v) + e), and e.
    """
    segment = _which(META, SEGMENTS)
    member = tl.program_id(1)
    place = (tl.program_id(0) - _pick(segment, META, 0, SEGMENTS)) * BLOCK + tl.arange(0, BLOCK)
    size = _pick(segment, META, 2, SEGMENTS)
    live = place < size
    gradient = tl.load(_pick_pointer(segment, gradients, SEGMENTS) + member.to(tl.int64) * size + place, mask=live, other=0.0)
    column = member.to(tl.int64) * ROW + _pick(segment, META, 1, SEGMENTS) + place
    m = tl.load(first + column, mask=live, other=0.0)
    v = tl.load(second + column, mask=live, other=0.0)
    p = tl.load(parameters + column, mask=live, other=0.0)
    m += (gradient - m) * (1.0 - BETA1)
    v = v * BETA2 + gradient * gradient * (1.0 - BETA2)
    own = factors + (member * GROUPS + _pick(segment, META, 3, SEGMENTS)) * 2
    p += tl.load(own) * m / (tl.sqrt(v) + tl.load(own + 1))
    tl.store(first + column, m, mask=live)
    tl.store(second + column, v, mask=live)
    tl.store(parameters + column, p, mask=live)
    target_column = _pick(segment, META, 4, SEGMENTS)
    if target_column >= 0:
        followed = targets + member.to(tl.int64) * TARGET_ROW + target_column + place
        old = tl.load(followed, mask=live, other=0.0)
        tl.store(followed, old + tl.load(tau + member) * (p - old), mask=live)
