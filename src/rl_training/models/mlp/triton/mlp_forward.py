"""The forward pass of stacked perceptrons as one Triton kernel.

One launch runs a list of *jobs*: networks with the same hidden layers, each with its own inputs and parameters. A program
runs a tile of rows of one network through all layers and reads the weights through the cache. Between layers the tile is
written to memory, where the backward pass needs it anyway.

Products are in full float32 ("ieee"), TF32 ("tf32") or bfloat16 ("bf16", factors rounded, sums in float32). Each element of
a result is summed by one program in a fixed order, so that a launch repeats bit for bit.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.hidden_layer import ROWS_PER_WORD, activated, normalised, slope_argument, store_signs
from rl_training.models.mlp.triton.jobs import parameter, pick, pick_pointer, product, which

_LARGE_TILE = 64  # rows from which Hopper has instructions for a product of several warps


@triton.constexpr_function
def _weight_first(rows, precision):
    """Return whether a product is computed transposed, the weight as its first factor.

    Hopper's instructions for large products read the first factor from registers in any order, the second from shared memory
    and in TF32 only in the order of the sum: so rows as they are stored, but not weights.
    """
    return precision == "tf32" and rows >= _LARGE_TILE


@triton.jit
def _nearest(values):
    """Return the nearest numbers of TF32, where the product itself would cut digits off."""
    return tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [values], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _times_weight(
    below,
    weight,
    live,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the ROWS rows at `below` (rows, in) times a weight (in, out)."""
    number, unit = tl.arange(0, ROWS), tl.arange(0, FAN_OUT)
    WEIGHT_FIRST: tl.constexpr = _weight_first(ROWS, PRECISION)
    total = tl.zeros((FAN_OUT, ROWS) if WEIGHT_FIRST else (ROWS, FAN_OUT), dtype=tl.float32)
    for start in range(0, FAN_IN, STEP):
        feature = start + tl.arange(0, STEP)
        x = tl.load(below + number[:, None] * FAN_IN + feature[None, :], mask=live[:, None], other=0.0)
        if WEIGHT_FIRST:
            w = tl.load(weight + feature[None, :] * FAN_OUT + unit[:, None])
            total = product(_nearest(w), tl.trans(x), total, PRECISION)
        else:
            w = tl.load(weight + feature[:, None] * FAN_OUT + unit[None, :])
            total = product(x, w, total, PRECISION)
    return tl.trans(total) if WEIGHT_FIRST else total


@triton.jit
def _pair_times_weight(
    below,
    weight,
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
        address = below + number[:, None] * FAN_IN + feature[None, :]
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
    WEIGHT_FIRST: tl.constexpr = _weight_first(ROWS, PRECISION)
    total = tl.zeros((WIDTH, ROWS) if WEIGHT_FIRST else (ROWS, WIDTH), dtype=tl.float32)
    # the end is not a constant, though the same, because a loop of one turn would be unrolled and take more registers
    for start in tl.range(0, width + tl.num_programs(1) - 1, STEP, num_stages=1):
        feature = start + tl.arange(0, STEP)
        in_first = live[:, None] & (feature < first_width)[None, :]
        in_second = live[:, None] & ((feature >= first_width) & (feature < width))[None, :]
        x = tl.load(first + feature[None, :], mask=in_first, other=0.0)
        x += tl.load(second + (feature - first_width)[None, :], mask=in_second, other=0.0)
        if WEIGHT_FIRST:
            w = tl.load(weight + feature[None, :] * WIDTH + unit[:, None], mask=(feature < width)[None, :], other=0.0)
            total = product(_nearest(w), tl.trans(x), total, PRECISION)
        else:
            w = tl.load(weight + feature[:, None] * WIDTH + unit[None, :], mask=(feature < width)[:, None], other=0.0)
            total = product(x, w, total, PRECISION)
    return tl.trans(total) if WEIGHT_FIRST else total


@triton.jit
def _activate(
    total,
    own,
    job,
    critic,
    kept,
    statistics,
    words,
    plane,
    rows_left,
    keeps,
    trained,
    PLACES: tl.constexpr,
    JOBS: tl.constexpr,
    LAYER: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    KEPT: tl.constexpr,
    SIGNS: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add the bias, apply activation and LayerNorm, and store the rows that exist at `kept` if the network `keeps` them.

    If it is `trained`, also store what gives the slopes; `plane` is the number of all rows of the job. LayerNorm takes
    several tiles at once, so that a large one goes through memory, a few rows at a time, and is not returned.
    """
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    number, unit = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = number[:, None] * WIDTH + unit[None, :], (number < rows_left)[:, None]
    second = kept + plane * WIDTH
    values = total + tl.load(parameter(own, job, critic, PLACES, COUNT * LAYER + 1, JOBS) + unit)[None, :]
    if NORM == "none":
        hidden = activated(values, ACTIVATION)
        if KEPT == 2:
            tl.store(second + place, slope_argument(values, hidden, ACTIVATION), mask=live & trained)
        tl.store(kept + place, hidden, mask=live & keeps)
        if SIGNS:
            if trained:  # a branch, so that other networks do not pay for the bits
                store_signs(hidden, words, rows_left, WIDTH, ROWS, not _weight_first(ROWS, PRECISION))
    else:
        scale = parameter(own, job, critic, PLACES, COUNT * LAYER + 2, JOBS)
        offset = parameter(own, job, critic, PLACES, COUNT * LAYER + 3, JOBS)
        if ROWS <= 32:
            hidden = _normalise(
                *(values, scale, offset, second, statistics, plane, rows_left, trained), *(WIDTH, NORM, ACTIVATION, ROWS)
            )
            tl.store(kept + place, hidden, mask=live & keeps)
        else:
            hidden = values
            tl.store(kept + place, values, mask=live)
            tl.debug_barrier()  # a thread reads what others wrote
            CHUNK: tl.constexpr = 32
            some = tl.arange(0, CHUNK)[:, None] * WIDTH + unit[None, :]
            for start in range(0, ROWS, CHUNK):
                mask = (tl.arange(0, CHUNK) < rows_left - start)[:, None]
                here = kept + start * WIDTH + some
                found = _normalise(
                    *(tl.load(here, mask=mask, other=0.0).to(tl.float32), scale, offset),
                    *(second + start * WIDTH, statistics + start, plane, rows_left - start, trained),
                    *(WIDTH, NORM, ACTIVATION, CHUNK),
                )
                tl.store(here, found, mask=mask)
    return hidden


@triton.jit
def _normalise(
    values,
    scale,
    offset,
    second,
    statistics,
    plane,
    rows_left,
    trained,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Return the result of a hidden layer with LayerNorm, given its product with the bias, and store what its slopes need."""
    number, unit = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place, live = number[:, None] * WIDTH + unit[None, :], (number < rows_left) & trained
    scales, offsets = tl.load(scale + unit)[None, :], tl.load(offset + unit)[None, :]
    if NORM == "before":
        norm, _, rstd = normalised(values, WIDTH)
        tl.store(second + place, norm, mask=live[:, None])
        hidden = activated(norm * scales + offsets, ACTIVATION)
    else:
        active = activated(values, ACTIVATION)
        tl.store(second + place, slope_argument(values, active, ACTIVATION), mask=live[:, None])
        norm, mean, rstd = normalised(active, WIDTH)
        tl.store(statistics + plane + number, mean, mask=live)
        hidden = norm * scales + offsets
    tl.store(statistics + number, rstd, mask=live)
    return hidden


@triton.jit
def _last_layer(
    hidden,
    kept,
    weight,
    bias,
    result,
    live,
    out_width,
    WIDTH: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
    READ_BACK: tl.constexpr,
):
    """Write the outputs: a small tile is multiplied from registers, a large one summed output by output or read back."""
    number, out = tl.arange(0, ROWS), tl.arange(0, OUT)
    shown = (out < out_width)[None, :]
    total = tl.zeros((ROWS, OUT), dtype=tl.float32)
    if ROWS <= 32:
        w = tl.load(weight + tl.arange(0, WIDTH)[:, None] * out_width + out[None, :], mask=shown, other=0.0)
        total = product(hidden, w, total, PRECISION)
    elif not READ_BACK:
        for column in range(0, out_width):
            w = tl.load(weight + tl.arange(0, WIDTH) * out_width + column)
            sums = tl.sum(hidden * w[None, :], 1)
            total += tl.where((out == column)[None, :], sums[:, None], 0.0)
    else:
        tl.debug_barrier()
        for start in range(0, WIDTH, STEP):
            feature = start + tl.arange(0, STEP)
            x = tl.load(kept + number[:, None] * WIDTH + feature[None, :], mask=live[:, None], other=0.0)
            w = tl.load(weight + feature[:, None] * out_width + out[None, :], mask=shown, other=0.0)
            total = product(x, w, total, PRECISION)
    total += tl.load(bias + out, mask=out < out_width, other=0.0)[None, :]
    tl.store(result + number[:, None] * out_width + out[None, :], total, mask=live[:, None] & shown)


@triton.jit
def forward_kernel(
    columns,
    weights,
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
    SIGNS: tl.constexpr,
    ROWS: tl.constexpr,
    PAIR: tl.constexpr,
    FIRST: tl.constexpr,
    STEP: tl.constexpr,
    OUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the outputs of every job, and what its hidden layers save to `saved`; see `MLPLayout.saved_views`.

    A program has ROWS rows, or with PAIR twice as many. The weights between hidden layers are read from
    `weights`: the columns, or the same rounded. FIRST is the STEP of the first layer.
    """
    # where the last hidden layer goes through memory to the outputs; LayerNorm leaves a large tile there anyway
    READ_BACK: tl.constexpr = ROWS > 32 and (NORM != "none" or OUT > 16)
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    TILE: tl.constexpr = ROWS * (2 if PAIR else 1)
    tiles = (rows + TILE - 1) // TILE
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    first_column = member.to(tl.int64) * pick(job, META, 11, JOBS)
    own, own_weights = pick_pointer(job, columns, JOBS) + first_column, pick_pointer(job, weights, JOBS) + first_column
    kept, plane = pick_pointer(job, saved, JOBS), stacks.to(tl.int64) * rows
    statistics = kept
    for layer in tl.static_range(0, LAYERS):
        statistics += plane * KEPT * WIDTHS[layer]
    row = tile * TILE + tl.arange(0, ROWS)
    live, below_live = row < rows, row + ROWS < rows
    # the first row among all of the job; a scalar, so that the places of a tile are small numbers beside it
    line = stack.to(tl.int64) * rows + tile * TILE
    words, groups = statistics.to(tl.pointer_type(tl.int16)), tl.cdiv(rows, ROWS_PER_WORD)  # of signs; then no statistics
    word_plane, word_line = stacks.to(tl.int64) * groups, stack.to(tl.int64) * groups + tile * (TILE // ROWS_PER_WORD)
    WORDS: tl.constexpr = ROWS // ROWS_PER_WORD
    statistics += line
    left, trained = rows - tile * TILE, pick(job, META, 14, JOBS) > 0

    weight = parameter(own, job, critic, PLACES, 0, JOBS)
    total = _first_layer(*(job, firsts, seconds, weight, member, row, live), *(META, JOBS, WIDTHS[0], ROWS, FIRST, PRECISION))
    hidden = _activate(
        *(total, own, job, critic, kept + line * WIDTHS[0], statistics, words + word_line * WIDTHS[0]),
        *(plane, left, rows > 0, trained),
        *(PLACES, JOBS, 0, WIDTHS[0], NORM, ACTIVATION, KEPT, SIGNS, ROWS, PRECISION),
    )
    other = hidden
    if PAIR:
        total = _first_layer(
            *(job, firsts, seconds, weight, member, row + ROWS, below_live), *(META, JOBS, WIDTHS[0], ROWS, FIRST, PRECISION)
        )
        other = _activate(
            *(total, own, job, critic, kept + (line + ROWS) * WIDTHS[0], statistics + ROWS),
            *(words + (word_line + WORDS) * WIDTHS[0], plane, left - ROWS, rows > 0, trained),
            *(PLACES, JOBS, 0, WIDTHS[0], NORM, ACTIVATION, KEPT, SIGNS, ROWS, PRECISION),
        )

    for layer in tl.static_range(1, LAYERS):
        keeps = (layer < LAYERS - 1) | READ_BACK | trained
        weight = parameter(own_weights, job, critic, PLACES, COUNT * layer, JOBS)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        below = kept + line * WIDTHS[layer - 1]
        kept += plane * KEPT * WIDTHS[layer - 1]
        statistics += plane * STATISTICS
        words += word_plane * WIDTHS[layer - 1]
        if PAIR:
            total, total_other = _pair_times_weight(
                *(below, weight, left), *(WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
            )
            other = _activate(
                *(total_other, own, job, critic, kept + (line + ROWS) * WIDTHS[layer], statistics + ROWS),
                *(words + (word_line + WORDS) * WIDTHS[layer], plane, left - ROWS, keeps, trained),
                *(PLACES, JOBS, layer, WIDTHS[layer], NORM, ACTIVATION, KEPT, SIGNS, ROWS, PRECISION),
            )
        else:
            total = _times_weight(below, weight, live, WIDTHS[layer - 1], WIDTHS[layer], ROWS, STEP, PRECISION)
        hidden = _activate(
            *(total, own, job, critic, kept + line * WIDTHS[layer], statistics, words + word_line * WIDTHS[layer]),
            *(plane, left, keeps, trained),
            *(PLACES, JOBS, layer, WIDTHS[layer], NORM, ACTIVATION, KEPT, SIGNS, ROWS, PRECISION),
        )

    out_width = pick(job, META, 12, JOBS)
    result = pick_pointer(job, outputs, JOBS) + line * out_width
    kept += line * WIDTHS[LAYERS - 1]
    weight = parameter(own, job, critic, PLACES, COUNT * LAYERS, JOBS)
    bias = parameter(own, job, critic, PLACES, COUNT * LAYERS + 1, JOBS)
    _last_layer(
        *(hidden, kept, weight, bias, result, live, out_width), *(WIDTHS[LAYERS - 1], OUT, ROWS, STEP, PRECISION, READ_BACK)
    )
    if PAIR:
        kept, result = kept + ROWS * WIDTHS[LAYERS - 1], result + ROWS * out_width
        _last_layer(
            *(other, kept, weight, bias, result, below_live, out_width),
            *(WIDTHS[LAYERS - 1], OUT, ROWS, STEP, PRECISION, READ_BACK),
        )
