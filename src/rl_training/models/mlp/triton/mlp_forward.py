"""The forward pass of stacked perceptrons as one Triton kernel.

One launch runs a list of *jobs*: networks of the same hidden widths, each with its own inputs and parameters. A program runs
a tile of rows of one network through all layers and reads the weights through the cache. Between layers the tile is written
to memory, where the backward pass needs it anyway.

Products are in full float32 ("ieee"), TF32 ("tf32") or bfloat16 ("bf16", factors rounded, sums in float32). Each element of
a result is summed by one program in a fixed order, so that a launch repeats bit for bit.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.jobs import pick, pick_pointer, product, which


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
    """Return the rows `line` of `below` (rows, in) times a weight (in, out)."""
    unit = tl.arange(0, FAN_OUT)
    total = tl.zeros((ROWS, FAN_OUT), dtype=tl.float32)
    for start in range(0, FAN_IN, STEP):
        feature = start + tl.arange(0, STEP)
        x = tl.load(below + line[:, None] * FAN_IN + feature[None, :], mask=live[:, None], other=0.0)
        w = tl.load(weight + feature[:, None] * FAN_OUT + unit[None, :])
        total = product(x, w, total, PRECISION)
    return total


@triton.jit
def _pair_times_weight(
    below,
    weight,
    line,
    rows_left,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the same for two adjacent tiles of rows, which share each loaded weight."""
    unit = tl.arange(0, FAN_OUT)
    one = tl.zeros((ROWS, FAN_OUT), dtype=tl.float32)
    two = tl.zeros((ROWS, FAN_OUT), dtype=tl.float32)
    number = tl.arange(0, ROWS)
    for start in range(0, FAN_IN, STEP):
        feature = start + tl.arange(0, STEP)
        address = below + line[:, None] * FAN_IN + feature[None, :]
        w = tl.load(weight + feature[:, None] * FAN_OUT + unit[None, :])
        x = tl.load(address, mask=(number < rows_left)[:, None], other=0.0)
        one = product(x, w, one, PRECISION)
        y = tl.load(address + ROWS * FAN_IN, mask=(number + ROWS < rows_left)[:, None], other=0.0)
        two = product(y, w, two, PRECISION)
    return one, two


@triton.jit
def _first_layer(
    job,
    firsts,
    seconds,
    weight,
    member,
    row,
    live,
    META: tl.constexpr,
    JOBS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the inputs, given as one tensor or two, times the first weight."""
    first_width = pick(job, META, 4, JOBS)
    width = first_width + pick(job, META, 5, JOBS)
    first = pick_pointer(job, firsts, JOBS) + member.to(tl.int64) * pick(job, META, 6, JOBS)
    first += ((row % pick(job, META, 8, JOBS)) * pick(job, META, 7, JOBS))[:, None]
    second = pick_pointer(job, seconds, JOBS) + member.to(tl.int64) * pick(job, META, 9, JOBS)
    second += (row * pick(job, META, 10, JOBS))[:, None]
    unit = tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    for start in range(0, width, STEP):
        feature = start + tl.arange(0, STEP)
        in_first = live[:, None] & (feature < first_width)[None, :]
        in_second = live[:, None] & ((feature >= first_width) & (feature < width))[None, :]
        x = tl.load(first + feature[None, :], mask=in_first, other=0.0)
        x += tl.load(second + (feature - first_width)[None, :], mask=in_second, other=0.0)
        w = tl.load(weight + feature[:, None] * WIDTH + unit[None, :], mask=(feature < width)[:, None], other=0.0)
        total = product(x, w, total, PRECISION)
    return total


@triton.jit
def _activate(total, bias, kept, line, live, WIDTH: tl.constexpr):
    """Add the bias, apply ReLU, and store the result in `kept`."""
    unit = tl.arange(0, WIDTH)
    hidden = tl.maximum(total + tl.load(bias + unit)[None, :], 0.0)
    tl.store(kept + line[:, None] * WIDTH + unit[None, :], hidden, mask=live[:, None])
    return hidden


@triton.jit
def _last_layer(
    hidden,
    kept,
    weight,
    bias,
    result,
    line,
    live,
    out_width,
    WIDTH: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the outputs: a small tile is multiplied from registers, a large one is read back from memory."""
    out = tl.arange(0, OUT)
    shown = (out < out_width)[None, :]
    total = tl.zeros((ROWS, OUT), dtype=tl.float32)
    if ROWS <= 32:
        w = tl.load(weight + tl.arange(0, WIDTH)[:, None] * out_width + out[None, :], mask=shown, other=0.0)
        total = product(hidden, w, total, PRECISION)
    else:
        tl.debug_barrier()
        for start in range(0, WIDTH, STEP):
            feature = start + tl.arange(0, STEP)
            x = tl.load(kept + line[:, None] * WIDTH + feature[None, :], mask=live[:, None], other=0.0)
            w = tl.load(weight + feature[:, None] * out_width + out[None, :], mask=shown, other=0.0)
            total = product(x, w, total, PRECISION)
    total += tl.load(bias + out, mask=out < out_width, other=0.0)[None, :]
    tl.store(result + line[:, None] * out_width + out[None, :], total, mask=live[:, None] & shown)


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
    PAIR: tl.constexpr,
    STEP: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the outputs of every job, and its hidden activations to `saved`, layer after layer, each (stack, rows, width).

    A program has ROWS rows, or with PAIR twice as many.
    """
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    TILE: tl.constexpr = ROWS * (2 if PAIR else 1)
    tiles = (rows + TILE - 1) // TILE
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    own = pick_pointer(job, columns, JOBS) + member.to(tl.int64) * pick(job, META, 11, JOBS)
    kept = pick_pointer(job, saved, JOBS)
    row = tile * TILE + tl.arange(0, ROWS)
    live, below_live = row < rows, row + ROWS < rows
    line = stack.to(tl.int64) * rows + row

    weight = own + pick(job, PLACES, 0, JOBS) + critic * pick(job, PLACES, 1, JOBS)
    bias = own + pick(job, PLACES, 2, JOBS) + critic * pick(job, PLACES, 3, JOBS)
    total = _first_layer(*(job, firsts, seconds, weight, member, row, live), *(META, JOBS, WIDTHS[0], ROWS, STEP, PRECISION))
    hidden = _activate(total, bias, kept, line, live, WIDTHS[0])
    other = hidden
    if PAIR:
        total = _first_layer(
            *(job, firsts, seconds, weight, member, row + ROWS, below_live), *(META, JOBS, WIDTHS[0], ROWS, STEP, PRECISION)
        )
        other = _activate(total, bias, kept, line + ROWS, below_live, WIDTHS[0])

    for layer in tl.static_range(1, LAYERS):
        weight = own + pick(job, PLACES, 4 * layer, JOBS) + critic * pick(job, PLACES, 4 * layer + 1, JOBS)
        bias = own + pick(job, PLACES, 4 * layer + 2, JOBS) + critic * pick(job, PLACES, 4 * layer + 3, JOBS)
        keeps = (layer < LAYERS - 1) | (ROWS > 32) | (pick(job, META, 14, JOBS) > 0)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        below = kept
        kept += stacks.to(tl.int64) * rows * WIDTHS[layer - 1]
        if PAIR:
            total, total_other = _pair_times_weight(
                *(below, weight, line, rows - tile * TILE), *(WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
            )
            other = _activate(total_other, bias, kept, line + ROWS, below_live & keeps, WIDTHS[layer])
        else:
            total = _times_weight(below, weight, line, live, WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
        hidden = _activate(total, bias, kept, line, live & keeps, WIDTHS[layer])

    out_width = pick(job, META, 12, JOBS)
    weight = own + pick(job, PLACES, 4 * LAYERS, JOBS) + critic * pick(job, PLACES, 4 * LAYERS + 1, JOBS)
    bias = own + pick(job, PLACES, 4 * LAYERS + 2, JOBS) + critic * pick(job, PLACES, 4 * LAYERS + 3, JOBS)
    result = pick_pointer(job, outputs, JOBS)
    _last_layer(
        *(hidden, kept, weight, bias, result, line, live, out_width), *(WIDTHS[LAYERS - 1], OUT, ROWS, STEP, PRECISION)
    )
    if PAIR:
        _last_layer(
            *(other, kept, weight, bias, result, line + ROWS, below_live, out_width),
            *(WIDTHS[LAYERS - 1], OUT, ROWS, STEP, PRECISION),
        )
