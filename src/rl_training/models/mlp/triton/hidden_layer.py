"""What the kernels do between two products: activations, LayerNorm, and the slopes of both.

A tile (rows, width) holds all units of its rows, so that the mean over units is a sum inside a program.
"""

import triton
import triton.language as tl

from rl_training.models.mlp.eager import LAYER_NORM_EPS

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
