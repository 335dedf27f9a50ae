"""The forward pass of stacked perceptrons as one Triton kernel.

One launch runs a list of *jobs*: networks with the same hidden layers, each with its own inputs and parameters. A program
runs a tile of rows of one network through all layers and reads the weights through the cache. Between layers the tile is
written to memory, where the backward pass needs it anyway.

Products are in full float32 ("ieee"), TF32 ("tf32") or bfloat16 ("bf16", factors rounded, sums in float32). Each element of
a result is summed by one program in a fixed order, so that a launch repeats bit for bit.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.hidden_layer import activated, normalised, slope_argument
from rl_training.models.mlp.triton.jobs import parameter, pick, pick_pointer, product, which


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
def _activate(
    total,
    own,
    job,
    critic,
    kept,
    statistics,
    plane,
    line,
    written,
    trained,
    PLACES: tl.constexpr,
    JOBS: tl.constexpr,
    LAYER: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    KEPT: tl.constexpr,
):
    """Add the bias, apply activation and LayerNorm, and store the rows `written` of the result in `kept`.

    Rows that are `trained` also store what gives their slopes; `plane` is the number of all rows of the job.
    """
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    unit = tl.arange(0, WIDTH)
    place = line[:, None] * WIDTH + unit[None, :]
    values = total + tl.load(parameter(own, job, critic, PLACES, COUNT * LAYER + 1, JOBS) + unit)[None, :]
    if NORM == "none":
        hidden = activated(values, ACTIVATION)
        if KEPT == 2:
            tl.store(kept + plane * WIDTH + place, slope_argument(values, hidden, ACTIVATION), mask=trained[:, None])
    else:
        scale = tl.load(parameter(own, job, critic, PLACES, COUNT * LAYER + 2, JOBS) + unit)[None, :]
        offset = tl.load(parameter(own, job, critic, PLACES, COUNT * LAYER + 3, JOBS) + unit)[None, :]
        if NORM == "before":
            norm, _, rstd = normalised(values, WIDTH)
            tl.store(kept + plane * WIDTH + place, norm, mask=trained[:, None])
            hidden = activated(norm * scale + offset, ACTIVATION)
        else:
            active = activated(values, ACTIVATION)
            tl.store(kept + plane * WIDTH + place, slope_argument(values, active, ACTIVATION), mask=trained[:, None])
            norm, mean, rstd = normalised(active, WIDTH)
            tl.store(statistics + plane + line, mean, mask=trained)
            hidden = norm * scale + offset
        tl.store(statistics + line, rstd, mask=trained)
    tl.store(kept + place, hidden, mask=written[:, None])
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
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    KEPT: tl.constexpr,
    STATISTICS: tl.constexpr,
    ROWS: tl.constexpr,
    PAIR: tl.constexpr,
    STEP: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the outputs of every job, and what its hidden layers save to `saved`; see `MLPLayout.saved_views`.

    A program has ROWS rows, or with PAIR twice as many.
    """
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    TILE: tl.constexpr = ROWS * (2 if PAIR else 1)
    tiles = (rows + TILE - 1) // TILE
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    own = pick_pointer(job, columns, JOBS) + member.to(tl.int64) * pick(job, META, 11, JOBS)
    kept, plane = pick_pointer(job, saved, JOBS), stacks.to(tl.int64) * rows
    statistics = kept
    for layer in tl.static_range(0, LAYERS):
        statistics += plane * KEPT * WIDTHS[layer]
    row = tile * TILE + tl.arange(0, ROWS)
    live, below_live = row < rows, row + ROWS < rows
    line = stack.to(tl.int64) * rows + row
    trained = pick(job, META, 14, JOBS) > 0

    weight = parameter(own, job, critic, PLACES, 0, JOBS)
    total = _first_layer(*(job, firsts, seconds, weight, member, row, live), *(META, JOBS, WIDTHS[0], ROWS, STEP, PRECISION))
    hidden = _activate(
        *(total, own, job, critic, kept, statistics, plane, line, live, live & trained),
        *(PLACES, JOBS, 0, WIDTHS[0], NORM, ACTIVATION, KEPT),
    )
    other = hidden
    if PAIR:
        total = _first_layer(
            *(job, firsts, seconds, weight, member, row + ROWS, below_live), *(META, JOBS, WIDTHS[0], ROWS, STEP, PRECISION)
        )
        other = _activate(
            *(total, own, job, critic, kept, statistics, plane, line + ROWS, below_live, below_live & trained),
            *(PLACES, JOBS, 0, WIDTHS[0], NORM, ACTIVATION, KEPT),
        )

    for layer in tl.static_range(1, LAYERS):
        keeps = (layer < LAYERS - 1) | (ROWS > 32) | trained  # a small last tile is multiplied from registers
        weight = parameter(own, job, critic, PLACES, COUNT * layer, JOBS)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        below = kept
        kept += plane * KEPT * WIDTHS[layer - 1]
        statistics += plane * STATISTICS
        if PAIR:
            total, total_other = _pair_times_weight(
                *(below, weight, line, rows - tile * TILE), *(WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
            )
            other = _activate(
                *(
                    total_other,
                    own,
                    job,
                    critic,
                    kept,
                    statistics,
                    plane,
                    line + ROWS,
                    below_live & keeps,
                    below_live & trained,
                ),
                *(PLACES, JOBS, layer, WIDTHS[layer], NORM, ACTIVATION, KEPT),
            )
        else:
            total = _times_weight(below, weight, line, live, WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
        hidden = _activate(
            *(total, own, job, critic, kept, statistics, plane, line, live & keeps, live & trained),
            *(PLACES, JOBS, layer, WIDTHS[layer], NORM, ACTIVATION, KEPT),
        )

    out_width, result = pick(job, META, 12, JOBS), pick_pointer(job, outputs, JOBS)
    weight = parameter(own, job, critic, PLACES, COUNT * LAYERS, JOBS)
    bias = parameter(own, job, critic, PLACES, COUNT * LAYERS + 1, JOBS)
    _last_layer(
        *(hidden, kept, weight, bias, result, line, live, out_width), *(WIDTHS[LAYERS - 1], OUT, ROWS, STEP, PRECISION)
    )
    if PAIR:
        _last_layer(
            *(other, kept, weight, bias, result, line + ROWS, below_live, out_width),
            *(WIDTHS[LAYERS - 1], OUT, ROWS, STEP, PRECISION),
        )
