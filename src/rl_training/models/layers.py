"""Stacked multi-layer perceptrons over (members, ensemble): one batched matrix product per layer.

Forward and backward are written out by hand in one autograd function per network. Autograd would record a dozen small
operations per layer and copy every weight gradient twice; here a backward pass is two products per layer, and the gradient
of the whole network is written in place into the one segment that the optimizer reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from rl_training.models.initializers import Initialization, ones, uniform, weight_initializer, zeros
from rl_training.models.parameters import ParameterSpec, Segment, SegmentValues

_LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class StackedMLP:
    """A ReLU perceptron for every member, or for every member and critic of an ensemble.

    With `ensemble` = E the parameters are (members, E, in, out) and the output (members, E, batch, out); without it the
    ensemble axis is absent, and so is the last axis of a `scalar` network. LayerNorm, when asked for, stands between
    each hidden product and its activation.
    """

    name: str
    group: str
    input_size: int
    hidden_sizes: tuple[int, ...]
    output_size: int
    ensemble: int | None = None
    layer_norm: bool = False
    initialization: Initialization = "orthogonal"
    scalar: bool = False  # one output, and no axis for it

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
        """Return outputs (members[, ensemble], batch[, out]) of inputs (members, batch, in)."""
        stacks = values.stacks or self._stacks(values)
        if torch.is_grad_enabled() and (values.columns.requires_grad or inputs.requires_grad):
            return _StackedMLPFunction.apply(values.columns, inputs, self, stacks)  # type: ignore[no-any-return,no-untyped-call]
        return _forward(self, inputs, stacks, None)

    def _stacks(self, values: SegmentValues) -> list[Tensor]:
        """Each parameter as (stack, rows, out), members and ensemble joined: a copy only when both are larger than one."""
        joined = [t if self.ensemble is None else t.flatten(0, 1) for t in values.tensors]
        stacks = [t if t.ndim == 3 else t.unsqueeze(1) for t in joined]
        if self.ensemble is None or values.columns.shape[0] == 1:
            values.stacks.extend(stacks)
        return stacks


def _forward(network: StackedMLP, inputs: Tensor, stacks: Sequence[Tensor], saved: list[Tensor] | None) -> Tensor:
    """Outputs of the network; what a backward pass needs is appended to `saved`."""
    members, batch, width = inputs.shape
    ensemble = network.ensemble
    hidden = inputs
    if ensemble is not None:
        hidden = inputs.unsqueeze(1).expand(-1, ensemble, -1, -1).reshape(members * ensemble, batch, width)
    keep = saved if saved is not None else []
    keep.append(hidden)
    parameters = iter(stacks)
    for layer in range(network.hidden_layers + 1):
        weight, bias = next(parameters), next(parameters)
        hidden = torch.bmm(hidden, weight)  # bias apart: on the CPU baddbmm would first copy it to every row
        keep.append(weight)
        if hidden.is_cpu and layer < network.hidden_layers and not network.layer_norm:
            keep.append(torch._add_relu_(hidden, bias))  # one pass over memory for both
            continue
        hidden.add_(bias)
        if layer == network.hidden_layers:
            break
        if network.layer_norm:
            scale, offset = next(parameters), next(parameters)
            product = hidden
            hidden, mean, rstd = torch.native_layer_norm(product, product.shape[-1:], None, None, _LAYER_NORM_EPS)
            hidden = torch.addcmul(offset, hidden, scale)
            keep += [product, mean, rstd, scale]
        keep.append(hidden.relu_())
    lead = (members,) if ensemble is None else (members, ensemble)
    return hidden.view(*lead, batch) if network.scalar else hidden.view(*lead, batch, -1)


class _StackedMLPFunction(torch.autograd.Function):
    """Forward and backward of a whole StackedMLP; differentiates the segment's columns and the inputs."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, inputs: Tensor, network: StackedMLP, stacks: Sequence[Tensor]) -> Tensor:
        saved = [columns]
        outputs = _forward(network, inputs, stacks, saved)
        ctx.network = network
        ctx.save_for_backward(*saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        network: StackedMLP = ctx.network
        columns, *saved = ctx.saved_tensors
        train_columns, train_inputs = ctx.needs_input_grad[:2]
        result = network.parameters.empty_like(columns) if train_columns else None
        places = network.parameters.tensors(result) if result is not None else []
        gradient = gradient.reshape(saved[0].shape[0], -1, network.output_size)
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
    """Write the sum over the batch of (stack, batch, out) into a view (members[, ensemble], out), as a product with ones."""
    direct = destination if destination.ndim == 2 else destination[0] if destination.shape[0] == 1 else None
    ones = _ones(values.shape[1], values.dtype, values.device).expand(values.shape[0], -1, -1)
    if direct is None:
        destination.copy_(torch.bmm(ones, values).view(destination.shape))
    else:
        torch.bmm(ones, values, out=direct.unsqueeze(1))


@lru_cache(maxsize=64)
def _ones(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, 1, count, dtype=dtype, device=device)
