"""Stacked multi-layer perceptrons over (members, ensemble): one batched matrix product per layer.

Forward and backward are written out by hand in one autograd function per network. Autograd would record a dozen small
operations per layer and copy every weight gradient twice; here a backward pass is two products per layer, and the gradient
of the whole network is written in place into the one segment that the optimizer reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rl_training.models.initializers import Initialization, ones, uniform, weight_initializer, zeros
from rl_training.models.parameters import ParameterSpec, Segment, SegmentValues

_LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class StackedMLP:
    """A ReLU perceptron for every member, or for every member and critic of an ensemble.

    With `ensemble` = E the parameters are (members, E, in, out) and the output (members, E, batch, out); without it the
    ensemble axis is absent. LayerNorm, when asked for, stands between each hidden product and its activation.
    """

    name: str
    group: str
    input_size: int
    hidden_sizes: tuple[int, ...]
    output_size: int
    ensemble: int | None = None
    layer_norm: bool = False
    initialization: Initialization = "orthogonal"

    @property
    def hidden_layers(self) -> int:
        """Number of layers with an activation."""
        return len(self.hidden_sizes)

    @cached_property
    def parameters(self) -> Segment:
        """The parameters in the order of the layers: weight, bias, and scale and offset of a LayerNorm."""
        lead = () if self.ensemble is None else (self.ensemble,)
        sizes = (self.input_size, *self.hidden_sizes, self.output_size)
        specs: list[ParameterSpec] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            weight = weight_initializer(self.initialization, fan_in, fan_out)
            bias = uniform(1.0 / sqrt(fan_in)) if self.initialization == "uniform" else zeros
            entries = [("weight", (fan_in, fan_out), weight), ("bias", (fan_out,), bias)]
            if self.layer_norm and layer < self.hidden_layers:
                entries += [("scale", (fan_out,), ones), ("offset", (fan_out,), zeros)]
            specs += [ParameterSpec(f"{self.name}/{layer}/{n}", (*lead, *shape), init) for n, shape, init in entries]
        return Segment(self.name, self.group, tuple(specs))

    def __call__(self, values: SegmentValues, inputs: Tensor) -> Tensor:
        """Return outputs (members[, ensemble], batch, out) of inputs (members, batch, in)."""
        return _StackedMLPFunction.apply(values.columns, inputs, self, values.tensors)  # type: ignore[no-any-return,no-untyped-call]


def _stacked(parameter: Tensor, ensemble: int | None) -> Tensor:
    """Join members and ensemble into one axis: (stack, ...); a copy only when both are larger than one."""
    return parameter if ensemble is None else parameter.flatten(0, 1)


class _StackedMLPFunction(torch.autograd.Function):
    """Forward and backward of a whole StackedMLP; differentiates the segment's columns and the inputs."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, inputs: Tensor, network: StackedMLP, tensors: Sequence[Tensor]) -> Tensor:
        members, batch, width = inputs.shape
        ensemble = network.ensemble
        hidden = inputs
        if ensemble is not None:
            hidden = inputs.unsqueeze(1).expand(-1, ensemble, -1, -1).reshape(members * ensemble, batch, width)
        saved = [columns, hidden]
        parameters = iter(tensors)
        for layer in range(network.hidden_layers + 1):
            weight, bias = _stacked(next(parameters), ensemble), _stacked(next(parameters), ensemble)
            hidden = torch.bmm(hidden, weight).add_(bias.unsqueeze(1))  # faster on the CPU than baddbmm
            if layer == network.hidden_layers:
                saved.append(weight)
                break
            if network.layer_norm:
                scale, offset = (_stacked(next(parameters), ensemble).unsqueeze(1) for _ in range(2))
                product = hidden
                hidden, mean, rstd = torch.native_layer_norm(product, product.shape[-1:], None, None, _LAYER_NORM_EPS)
                hidden = torch.addcmul(offset, hidden, scale)
                saved += [weight, product, mean, rstd, scale]
            else:
                saved.append(weight)
            saved.append(hidden.relu_())
        ctx.network = network
        ctx.save_for_backward(*saved)
        return hidden if ensemble is None else hidden.view(members, ensemble, batch, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        network: StackedMLP = ctx.network
        columns, *saved = ctx.saved_tensors
        train_columns, train_inputs = ctx.needs_input_grad[:2]
        result = network.parameters.empty_like(columns) if train_columns else None
        places = network.parameters.tensors(result) if result is not None else []
        if network.ensemble is not None:
            gradient = gradient.flatten(0, 1)
        for layer in reversed(range(network.hidden_layers + 1)):
            weight, activation = saved.pop(), saved[-1]
            if train_columns:
                _sum_rows(places.pop(), gradient)
                _weight_gradient(places.pop(), activation, gradient)
            if layer == 0:
                break
            gradient = torch.bmm(gradient, weight.transpose(1, 2))
            torch.ops.aten.threshold_backward.grad_input(gradient, saved.pop(), 0.0, grad_input=gradient)
            if network.layer_norm:
                scale, rstd, mean, product = (saved.pop() for _ in range(4))
                if train_columns:
                    _sum_rows(places.pop(), gradient)
                    _sum_rows(places.pop(), gradient * ((product - mean) * rstd))
                gradient = torch.ops.aten.native_layer_norm_backward(
                    gradient * scale, product, product.shape[-1:], mean, rstd, None, None, (True, False, False)
                )[0]
        if not train_inputs:
            return result, None, None, None
        inputs_gradient = torch.bmm(gradient, weight.transpose(1, 2))
        if network.ensemble is not None:
            inputs_gradient = inputs_gradient.view(-1, network.ensemble, *inputs_gradient.shape[1:]).sum(1)
        return result, inputs_gradient, None, None


def _weight_gradient(destination: Tensor, activation: Tensor, gradient: Tensor) -> None:
    """Write activation^T @ gradient into a view (members[, ensemble], in, out)."""
    direct = destination if destination.ndim == 3 else destination[0] if destination.shape[0] == 1 else None
    if direct is None:
        destination.copy_(torch.bmm(activation.transpose(1, 2), gradient).view(destination.shape))
    elif direct.shape[1] > direct.shape[2]:  # a product with few columns is slow, with few rows it is not
        torch.bmm(gradient.transpose(1, 2), activation, out=direct.transpose(1, 2))
    else:
        torch.bmm(activation.transpose(1, 2), gradient, out=direct)


def _sum_rows(destination: Tensor, values: Tensor) -> None:
    """Write the sum over the batch of (stack, batch, out) into a view (members[, ensemble], out)."""
    if destination.ndim == 3:
        values = values.view(*destination.shape[:2], *values.shape[1:])
    torch.sum(values, dim=-2, out=destination)
