"""The backward pass of stacked perceptrons to their hidden layers and inputs as one Triton kernel.

As in the forward kernel: a list of jobs per launch, a tile per program, the same precisions, sums in a fixed order.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.layout import ROWS_PER_SUM as _ROWS_PER_SUM
from rl_training.models.mlp.triton.hidden_layer import (
    ROWS_PER_WORD,
    activated,
    activation_of,
    deactivated,
    denormalised,
    load_signs,
    slope_argument,
)
from rl_training.models.mlp.triton.jobs import parameter, pick, pick_pointer, product, which

ROWS_PER_SUM = tl.constexpr(_ROWS_PER_SUM)


@triton.jit
def _times_transposed(
    above,
    weight,
    live,
    FAN_IN: tl.constexpr,
    FAN_OUT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the ROWS rows at `above` (rows, out) times the transpose of a weight (in, out)."""
    number, unit = tl.arange(0, ROWS), tl.arange(0, FAN_IN)
    total = tl.zeros((ROWS, FAN_IN), dtype=tl.float32)
    for start in range(0, FAN_OUT, STEP):
        feature = start + tl.arange(0, STEP)
        g = tl.load(above + number[:, None] * FAN_OUT + feature[None, :], mask=live[:, None], other=0.0)
        w = tl.load(weight + unit[None, :] * FAN_OUT + feature[:, None])
        total = product(g, w, total, PRECISION)
    return total


@triton.jit
def _deactivate(
    total,
    own,
    job,
    critic,
    kept,
    statistics,
    words,
    result,
    sums,
    plane,
    live,
    rows_left,
    first_sum,
    sum_plane,
    PLACES: tl.constexpr,
    JOBS: tl.constexpr,
    LAYER: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    KEPT: tl.constexpr,
    SIGNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write the gradient at a hidden layer's product for a tile of rows, given the gradient at its result in `total`.

    With LayerNorm, also write the sums that make the gradients of scale and offset, from number `first_sum` on. It takes
    several tiles at once, so that a large one goes through memory, a few rows at a time.
    """
    number, unit = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    place = number[:, None] * WIDTH + unit[None, :]
    if SIGNS:
        positive = load_signs(words, rows_left, WIDTH, ROWS)
        tl.store(result + place, tl.where(positive, total, 0.0), mask=live[:, None])
    elif NORM == "none":
        second = tl.load(kept + (KEPT - 1) * plane * WIDTH + place, mask=live[:, None], other=0.0).to(tl.float32)
        tl.store(result + place, deactivated(total, second, ACTIVATION), mask=live[:, None])
    else:
        scale = parameter(own, job, critic, PLACES, 4 * LAYER + 2, JOBS)
        offset = parameter(own, job, critic, PLACES, 4 * LAYER + 3, JOBS)
        kept += (KEPT - 1) * plane * WIDTH
        if ROWS == ROWS_PER_SUM:
            gradient = _norm_gradient(
                *(total, scale, offset, kept, statistics, sums, plane, rows_left, first_sum, sum_plane),
                *(WIDTH, NORM, ACTIVATION, ROWS),
            )
            tl.store(result + place, gradient, mask=live[:, None])
        else:
            tl.store(result + place, total, mask=live[:, None])
            tl.debug_barrier()  # a thread reads what others wrote
            CHUNK: tl.constexpr = ROWS // 2 if ROWS < 64 else 32
            some = tl.arange(0, CHUNK)[:, None] * WIDTH + unit[None, :]
            for start in range(0, ROWS, CHUNK):
                mask = (tl.arange(0, CHUNK) < rows_left - start)[:, None]
                above = result + start * WIDTH + some
                gradient = _norm_gradient(
                    *(tl.load(above, mask=mask, other=0.0).to(tl.float32), scale, offset),
                    *(kept + start * WIDTH, statistics + start, sums, plane, rows_left - start),
                    *(first_sum + start // ROWS_PER_SUM, sum_plane),
                    *(WIDTH, NORM, ACTIVATION, CHUNK),
                )
                tl.store(above, gradient, mask=mask)


@triton.jit
def _norm_gradient(
    total,
    scale,
    offset,
    second,
    statistics,
    sums,
    plane,
    rows_left,
    first_sum,
    sum_plane,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Return the gradient at the product of a layer with LayerNorm, given the one at its result, and write the sums."""
    number, unit = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    live = number < rows_left
    argument = tl.load(second + number[:, None] * WIDTH + unit[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    scales = tl.load(scale + unit)[None, :]
    rstd = tl.load(statistics + number, mask=live, other=0.0).to(tl.float32)
    if NORM == "before":
        values = argument * scales + tl.load(offset + unit)[None, :]
        total = deactivated(total, slope_argument(values, activated(values, ACTIVATION), ACTIVATION), ACTIVATION)
        norm = argument
    else:
        mean = tl.load(statistics + plane + number, mask=live, other=0.0).to(tl.float32)
        norm = (activation_of(argument, ACTIVATION) - mean[:, None]) * rstd[:, None]
    _store_sums(total * norm, sums, first_sum, rows_left, WIDTH, ROWS)
    _store_sums(total, sums + sum_plane * WIDTH, first_sum, rows_left, WIDTH, ROWS)
    gradient = denormalised(total * scales, norm, rstd, WIDTH)
    if NORM == "after":
        gradient = deactivated(gradient, argument, ACTIVATION)
    return gradient


@triton.jit
def _store_sums(values, sums, first, rows_left, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Store the sum of the rows as number `first`, and zeros as the numbers of their further groups of ROWS_PER_SUM."""
    number = tl.arange(0, ROWS // ROWS_PER_SUM)
    found = tl.where((number == 0)[:, None], tl.sum(values, 0)[None, :], 0.0)
    place = (first + number)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(sums + place, found, mask=(number * ROWS_PER_SUM < rows_left)[:, None])


@triton.jit
def _input_gradients(
    hidden,
    weight,
    result,
    live,
    wanted,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients at the first `wanted` inputs of a weight (in, out)."""
    number, column = tl.arange(0, ROWS), tl.arange(0, IN)
    total = tl.zeros((ROWS, IN), dtype=tl.float32)
    for start in range(0, WIDTH, STEP):
        feature = start + tl.arange(0, STEP)
        g = tl.load(hidden + number[:, None] * WIDTH + feature[None, :], mask=live[:, None], other=0.0)
        address = weight + column[None, :] * WIDTH + feature[:, None]
        w = tl.load(address, mask=(column < wanted)[None, :], other=0.0)
        total = product(g, w, total, PRECISION)
    address = result + number[:, None] * wanted + column[None, :]
    tl.store(address, total, mask=live[:, None] & (column < wanted)[None, :])


@triton.jit
def hidden_gradients_kernel(
    columns,
    weights,
    gradients,
    saved,
    hidden_gradients,
    inputs,
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
    STEP: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradients at every hidden layer, as in `MLPLayout.gradient_views`, and at the wanted inputs.

    `weights` are the columns, or the same rounded, from which the weights between hidden layers are read.
    """
    COUNT: tl.constexpr = 2 if NORM == "none" else 4
    job = which(META, JOBS)
    inside = tl.program_id(0) - pick(job, META, 0, JOBS)
    stacks, ensemble, rows = pick(job, META, 1, JOBS), pick(job, META, 2, JOBS), pick(job, META, 3, JOBS)
    tiles = (rows + ROWS - 1) // ROWS
    stack, tile = inside // tiles, inside % tiles
    member, critic = stack // ensemble, stack % ensemble
    row = tile * ROWS + tl.arange(0, ROWS)
    live = row < rows
    line = stack.to(tl.int64) * rows + tile * ROWS  # the first row among all of the job
    number = tl.arange(0, ROWS)
    first_column = member.to(tl.int64) * pick(job, META, 11, JOBS)
    own, own_weights = pick_pointer(job, columns, JOBS) + first_column, pick_pointer(job, weights, JOBS) + first_column
    kept, hidden = pick_pointer(job, saved, JOBS), pick_pointer(job, hidden_gradients, JOBS)
    plane, blocks = stacks.to(tl.int64) * rows, tl.cdiv(rows, ROWS_PER_SUM)
    sum_plane, first_sum = stacks.to(tl.int64) * blocks, stack.to(tl.int64) * blocks + tile * (ROWS // ROWS_PER_SUM)
    HIGHEST: tl.constexpr = WIDTHS[LAYERS - 1]
    for layer in tl.static_range(0, LAYERS - 1):
        kept += plane * KEPT * WIDTHS[layer]
        hidden += plane * WIDTHS[layer]
    words, groups = (kept + plane * KEPT * HIGHEST).to(tl.pointer_type(tl.int16)), tl.cdiv(rows, ROWS_PER_WORD)
    word_plane, word_line = stacks.to(tl.int64) * groups, stack.to(tl.int64) * groups + tile * (ROWS // ROWS_PER_WORD)
    for layer in tl.static_range(0, LAYERS - 1):
        words += word_plane * WIDTHS[layer]
    statistics = kept + plane * (KEPT * HIGHEST + STATISTICS * (LAYERS - 1)) + line
    sums = hidden + plane * HIGHEST
    for layer in tl.static_range(0, LAYERS - 1):
        sums += 2 * sum_plane * WIDTHS[layer]

    out_width = pick(job, META, 12, JOBS)
    out, unit = tl.arange(0, OUT), tl.arange(0, HIGHEST)
    shown = out < out_width
    weight = parameter(own, job, critic, PLACES, COUNT * LAYERS, JOBS)
    gradient = pick_pointer(job, gradients, JOBS) + line * out_width
    g = tl.load(gradient + number[:, None] * out_width + out[None, :], mask=live[:, None] & shown[None, :], other=0.0)
    w = tl.load(weight + unit[None, :] * out_width + out[:, None], mask=shown[:, None], other=0.0)
    total = product(g, w, tl.zeros((ROWS, HIGHEST), dtype=tl.float32), PRECISION)
    _deactivate(
        *(total, own, job, critic, kept + line * HIGHEST, statistics, words + word_line * HIGHEST),
        *(hidden + line * HIGHEST, sums, plane, live, rows - tile * ROWS, first_sum, sum_plane),
        *(PLACES, JOBS, LAYERS - 1, HIGHEST, NORM, ACTIVATION, KEPT, SIGNS, ROWS),
    )

    for layer in tl.static_range(LAYERS - 2, -1, -1):
        above = hidden + line * WIDTHS[layer + 1]
        kept -= plane * KEPT * WIDTHS[layer]
        hidden -= plane * WIDTHS[layer]
        statistics -= plane * STATISTICS
        words -= word_plane * WIDTHS[layer]
        sums -= 2 * sum_plane * WIDTHS[layer]
        weight = parameter(own_weights, job, critic, PLACES, COUNT * (layer + 1), JOBS)
        tl.debug_barrier()  # other threads of this program wrote what is read next
        total = _times_transposed(above, weight, live, WIDTHS[layer], WIDTHS[layer + 1], ROWS, STEP, PRECISION)
        _deactivate(
            *(total, own, job, critic, kept + line * WIDTHS[layer], statistics, words + word_line * WIDTHS[layer]),
            *(hidden + line * WIDTHS[layer], sums, plane, live, rows - tile * ROWS, first_sum, sum_plane),
            *(PLACES, JOBS, layer, WIDTHS[layer], NORM, ACTIVATION, KEPT, SIGNS, ROWS),
        )

    wanted = pick(job, META, 14, JOBS)  # number of inputs; field 13 is the first
    if wanted > 0:
        tl.debug_barrier()
        first_weight = parameter(own, job, critic, PLACES, 0, JOBS) + pick(job, META, 13, JOBS) * WIDTHS[0]
        _input_gradients(
            *(hidden + line * WIDTHS[0], first_weight, pick_pointer(job, inputs, JOBS) + line * wanted, live, wanted),
            *(WIDTHS[0], IN, ROWS, STEP, PRECISION),
        )
