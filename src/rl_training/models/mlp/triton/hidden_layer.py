"""What the kernels do between two products: activations, LayerNorm, and the slopes of both.

A tile (rows, width) holds all units of its rows, so that the mean over units is a sum inside a program.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.eager import LAYER_NORM_EPS
from rl_training.models.mlp.layout import ROWS_PER_WORD as _ROWS_PER_WORD

ROWS_PER_WORD = tl.constexpr(_ROWS_PER_WORD)
_EPS = tl.constexpr(LAYER_NORM_EPS)
_GELU_SCALE = tl.constexpr(1.5957691216057308)  # 2 sqrt(2 / pi)
_GELU_CUBIC = tl.constexpr(0.044715)


@triton.jit
def _gate(values, ACTIVATION: tl.constexpr):
    """Return v of SiLU and of GELU's tanh approximation, which both are x * sigmoid(v(x))."""
    return _GELU_SCALE * (values + _GELU_CUBIC * values * values * values) if ACTIVATION == "gelu" else values


@triton.jit
def activated(values, ACTIVATION: tl.constexpr):
    """Return the activation of values."""
    if ACTIVATION == "relu":
        result = tl.maximum(values, 0.0)
    elif ACTIVATION == "tanh":
        result = 2.0 * tl.sigmoid(2.0 * values) - 1.0
    else:
        result = values * tl.sigmoid(_gate(values, ACTIVATION))
    return result


@triton.jit
def slope_argument(values, result, ACTIVATION: tl.constexpr):
    """Return what gives the slope of an activation: its result (ReLU, tanh) or its input."""
    return result if (ACTIVATION == "relu") | (ACTIVATION == "tanh") else values


@triton.jit
def activation_of(argument, ACTIVATION: tl.constexpr):
    """Return the result of an activation, given the argument of its slope."""
    return argument if (ACTIVATION == "relu") | (ACTIVATION == "tanh") else activated(argument, ACTIVATION)


@triton.jit
def deactivated(gradient, argument, ACTIVATION: tl.constexpr):
    """Return the gradient before an activation, given the one after it."""
    if ACTIVATION == "relu":
        result = tl.where(argument > 0.0, gradient, 0.0)
    elif ACTIVATION == "tanh":
        result = gradient * (1.0 - argument * argument)
    else:
        share = tl.sigmoid(_gate(argument, ACTIVATION))
        change = argument * share * (1.0 - share)
        if ACTIVATION == "gelu":
            change *= _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBIC * argument * argument)
        result = gradient * (share + change)
    return result


@triton.jit
def normalised(values, WIDTH: tl.constexpr):
    """Return the norm of each row, and its mean and 1 / std."""
    mean = tl.sum(values, 1) / WIDTH
    centred = values - mean[:, None]
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + _EPS)
    return centred * rstd[:, None], mean, rstd


@triton.jit
def denormalised(gradient, norm, rstd, WIDTH: tl.constexpr):
    """Return the gradient before a norm, given the one after it."""
    along = tl.sum(gradient * norm, 1) / WIDTH
    mean = tl.sum(gradient, 1) / WIDTH
    return (gradient - mean[:, None] - norm * along[:, None]) * rstd[:, None]


@triton.jit
def store_signs(values, words, rows_left, WIDTH: tl.constexpr, ROWS: tl.constexpr, BESIDE: tl.constexpr):
    """Store a bit for each number of the rows that exist, 1 where it is positive; a word has adjacent rows of one unit.

    If a thread has units BESIDE one another, it adds up two words at a time.
    """
    UNITS: tl.constexpr = 2 if BESIDE else 1
    GROUPS: tl.constexpr = ROWS // ROWS_PER_WORD
    number, unit, group = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, GROUPS)
    bit = tl.where(number < rows_left, 1 << number % ROWS_PER_WORD, 0)[:, None] << (unit % UNITS * ROWS_PER_WORD)[None, :]
    bits = tl.reshape(tl.where(values > 0.0, bit, 0), (GROUPS, ROWS_PER_WORD, WIDTH // UNITS, UNITS))
    word = tl.sum(tl.sum(bits, 3), 1)
    place = group[:, None] * (WIDTH // UNITS) + tl.arange(0, WIDTH // UNITS)[None, :]
    words = words.to(tl.pointer_type(tl.int32)) if BESIDE else words
    tl.store(words + place, word, mask=(group * ROWS_PER_WORD < rows_left)[:, None])


@triton.jit
def load_signs(words, rows_left, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Return whether each number was positive, as stored by `store_signs`; False for rows that do not exist."""
    GROUPS: tl.constexpr = ROWS // ROWS_PER_WORD
    group, bit = tl.arange(0, GROUPS), tl.arange(0, ROWS_PER_WORD)
    place = group[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    word = tl.load(words + place, mask=(group * ROWS_PER_WORD < rows_left)[:, None], other=0).to(tl.int32)
    return tl.reshape((word[:, None, :] >> bit[None, :, None]) & 1, (ROWS, WIDTH)) != 0
