"""Outputs of scalar networks together with their gradients at an input, both differentiable in the parameters.

A loss on the gradient of a network differentiates it twice. For ReLU layers without LayerNorm this costs one pass more than
a loss on the outputs, because between two switches of a unit such a network is linear. With its hidden layers h_l, the
gradients d_l of the output at their products, and the derivatives c and u of the loss for output and gradient,

    v_0 = c x + u,    v_l = v_(l-1) W_l + c b_l where h_l > 0, else 0,    dL/dW_l = v_(l-1)^T d_l,    dL/db_l = c^T d_l:

a pass through the linearised network, and the products for the weights that a loss on the outputs needs anyway. Other
networks are left to autograd, which differentiates their plain operations twice.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.models.mlp import eager as mlp_math
from rl_training.models.mlp import operators as mlp_ops
from rl_training.models.mlp.layout import MLPLayout

Pair = tuple[Tensor, Tensor]
"""The outputs (members, critics, rows, 1) and, (members, critics, rows, width), their gradients at the last inputs."""


def outputs_and_gradients(
    layout: MLPLayout,
    columns: Tensor,
    rounded: Tensor | None,
    first: Tensor,
    second: Tensor,
    masks: Sequence[Tensor] | None = None,
) -> Pair:
    """Return outputs and gradients of networks with one output; the parts of the inputs themselves get no gradient.

    `masks` are the factors of dropout, as in `plain_forward`.
    """
    parameters = mlp_math.parameters(layout, columns)
    if layout.activation != "relu" or layout.layer_norm or masks is not None:
        return _by_autograd(layout, parameters, first, second, masks)
    outputs, gradients = _LinearisedFunction.apply(layout, columns.detach(), rounded, first, second, *parameters)  # type: ignore[no-untyped-call]
    return outputs, gradients


def _by_autograd(
    layout: MLPLayout, parameters: Sequence[Tensor], first: Tensor, second: Tensor, masks: Sequence[Tensor] | None
) -> Pair:
    trained = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = mlp_math.joined_inputs((first, second), layout.ensemble).detach().requires_grad_()
        stacked = None if masks is None else [mask.flatten(0, 1) for mask in masks]
        outputs = mlp_math.plain_outputs(layout, parameters, inputs, stacked)
        (gradients,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=trained)
    found = [_unstacked(layout, outputs), _unstacked(layout, gradients[..., first.shape[-1] :])]
    outputs, gradients = found if trained else [value.detach() for value in found]
    return outputs, gradients


def _unstacked(layout: MLPLayout, values: Tensor) -> Tensor:
    return values.reshape(-1, layout.ensemble, *values.shape[1:])


class _LinearisedFunction(torch.autograd.Function):
    """The pair for ReLU layers without LayerNorm, given the parameters both as columns and one by one."""

    @staticmethod
    def forward(
        ctx: Any,
        layout: MLPLayout,
        columns: Tensor,
        rounded: Tensor | None,
        first: Tensor,
        second: Tensor,
        *parameters: Tensor,
    ) -> Pair:
        inputs = mlp_math.joined_inputs((first, second), layout.ensemble)
        plainly = mlp_ops.recorded_plainly(columns.device)
        precision = None if plainly else mlp_ops.fused_precision(layout, columns.device)
        if precision is None:
            outputs, hidden = _forward(parameters, inputs)
            above = _hidden_gradients(parameters, hidden)
            gradients = mlp_math.product(above[0], parameters[0][:, first.shape[-1] :].transpose(1, 2))
            outputs, gradients = _unstacked(layout, outputs), _unstacked(layout, gradients)
        else:
            encoded, width = layout.encode(), second.shape[-1]
            own = ([columns], [] if rounded is None else [rounded])
            outputs, saved = mlp_ops.mlp_forward(*own, [first], [second], [width], [1], encoded, precision)
            ones, wanted = torch.ones_like(outputs), [first.shape[-1], width]
            found, gradients = mlp_ops.mlp_hidden_gradients(*own, [ones], [saved], wanted, encoded, precision)
            hidden = [views[0] for views in layout.saved_views(saved, *inputs.shape[:2])]
            above = [views[0] for views in layout.gradient_views(found, *inputs.shape[:2])]
        ctx.save_for_backward(inputs, *parameters, *hidden, *above)
        ctx.layers, ctx.start = len(layout.hidden), first.shape[-1]
        return outputs, gradients

    @staticmethod
    def backward(ctx: Any, to_outputs: Tensor, to_gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, *saved = ctx.saved_tensors
        count, start = 2 * ctx.layers + 2, ctx.start
        parameters, hidden, above = saved[:count], saved[count : count + ctx.layers], saved[count + ctx.layers :]
        scale = to_outputs.flatten(0, 1)  # c of the module's equations, (stack, rows, 1)
        scaled = scale * inputs
        below = torch.cat((scaled[..., :start], scaled[..., start:] + to_gradients.flatten(0, 1)), dim=-1)  # v
        found: list[Tensor] = []
        for layer, (layer_hidden, layer_above) in enumerate(zip(hidden, above, strict=True)):
            weight, bias = parameters[2 * layer : 2 * layer + 2]
            found.append(mlp_math.product(below.transpose(1, 2), layer_above))
            found.append((scale * layer_above).sum(1, keepdim=True))  # one reduction for all layers, where a compiler fuses
            below = torch.where(layer_hidden > 0.0, mlp_math.product(below, weight) + scale * bias, 0.0)
        found += [below.sum(1).unsqueeze(-1), scale.sum(1, keepdim=True)]
        return None, None, None, None, None, *found


def _forward(parameters: Sequence[Tensor], inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The outputs and the hidden layers of ReLU networks, without writing in place, so that a compiler can fuse."""
    hidden = [inputs]
    for layer in range(0, len(parameters) - 2, 2):
        hidden.append((mlp_math.product(hidden[-1], parameters[layer]) + parameters[layer + 1]).relu())
    return mlp_math.product(hidden[-1], parameters[-2]) + parameters[-1], hidden[1:]


def _hidden_gradients(parameters: Sequence[Tensor], hidden: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the outputs at the products of the hidden layers, lowest first."""
    last = parameters[-2].transpose(1, 2)
    found = [torch.where(hidden[-1] > 0.0, last, 0.0)]
    for layer in reversed(range(len(hidden) - 1)):
        gradient = mlp_math.product(found[0], parameters[2 * layer + 2].transpose(1, 2))
        found.insert(0, torch.where(hidden[layer] > 0.0, gradient, 0.0))
    return found
