"""The activations of hidden layers, forward and backward.

The backward pass of ReLU and tanh needs their result, that of GELU and SiLU their input; either is called the *slope's
argument* here. GELU is its tanh approximation, which is what the JAX projects use.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from rl_training.config.shared_knobs import Activation

_APPROXIMATION = "tanh"


def plain(activation: Activation, values: Tensor) -> Tensor:
    """Return the activation of values as a plain operation."""
    if activation == "relu":
        return values.relu()
    if activation == "tanh":
        return values.tanh()
    return silu(values) if activation == "silu" else gelu(values, approximate=_APPROXIMATION)


def apply(activation: Activation, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the activation of values, which may be overwritten, and the argument of its slope."""
    if activation == "relu":
        return (result := values.relu_()), result
    if activation == "tanh":
        return (result := values.tanh_()), result
    return plain(activation, values), values


def biased(activation: Activation, values: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the activation of values plus a bias, and the argument of its slope; values are overwritten."""
    if activation == "relu" and values.is_cpu:
        torch._add_relu_(values, bias)  # one pass over memory for both
        return values, values
    return apply(activation, values.add_(bias))


def backward(activation: Activation, gradient: Tensor, argument: Tensor) -> Tensor:
    """Return the gradient before an activation, given the one after it, which may be overwritten."""
    aten: Any = torch.ops.aten
    result: Tensor
    if activation == "relu":
        result = aten.threshold_backward.grad_input(gradient, argument, 0.0, grad_input=gradient)
    elif activation == "tanh":
        result = aten.tanh_backward(gradient, argument)
    elif activation == "silu":
        result = aten.silu_backward(gradient, argument)
    else:
        result = aten.gelu_backward(gradient, argument, approximate=_APPROXIMATION)
    return result
