"""Forward and backward of stacked perceptrons with torch's batched products; the stack axis is members times critics.

The backward pass is written by hand. Autograd would record a dozen small operations per layer and copy every weight gradient
twice; here it is two products per layer, and each gradient is written directly where the optimizer reads it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rl_training.models.mlp import activations
from rl_training.models.mlp.layout import MLPLayout

LAYER_NORM_EPS = 1e-5
ROWS_AT_ONCE = 512
_MAX_TURNS = 4

_bf16 = False


@contextmanager
def bf16_products(enabled: bool) -> Iterator[None]:
    """Round the factors of every product to bfloat16 inside the block (sums stay in float32); CUDA only."""
    global _bf16  # noqa: PLW0603 - a process-wide switch, like torch's own for TF32
    before, _bf16 = _bf16, enabled
    try:
        yield
    finally:
        _bf16 = before


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b for stacks of matrices, in the precision of the run."""
    if not _bf16:
        return torch.bmm(a, b)
    return torch.bmm(a.to(torch.bfloat16), b.to(torch.bfloat16), out_dtype=torch.float32)


def joined_inputs(parts: Sequence[Tensor], ensemble: int) -> Tensor:
    """Return the parts of the inputs, (members, rows, width) each, concatenated and repeated for every critic.

    A part with fewer rows is repeated: observations that are evaluated with several actions each.
    """
    rows = max(part.shape[1] for part in parts)
    whole = [part if part.shape[1] == rows else part.repeat(1, rows // part.shape[1], 1) for part in parts]
    inputs = torch.cat(whole, dim=-1) if len(whole) > 1 else whole[0]
    if ensemble == 1:
        return inputs
    return inputs.unsqueeze(1).expand(-1, ensemble, -1, -1).reshape(-1, *inputs.shape[1:])


def forward(
    layout: MLPLayout,
    stacks: Sequence[Tensor],
    inputs: Tensor,
    kept: list[list[Tensor]] | None = None,
) -> Tensor:
    """Return the outputs (stack, rows, out); append to `kept` what the backward pass needs of each hidden layer.

    That is the layer's result; with LayerNorm also the norm and 1 / std; and where the result does not give the derivative
    of the activation, what does.
    """
    hidden, count, last = inputs, layout.parameters_per_layer, len(layout.hidden)
    for layer in range(last):
        weight, bias = stacks[layer * count : layer * count + 2]
        # the bias is added separately, because on the CPU baddbmm would first copy it to every row
        hidden = product(hidden, weight)
        saved: list[Tensor] = []
        if layout.norm == "none":
            hidden, slope = activations.biased(layout.activation, hidden, bias)
        elif layout.norm == "before":
            normed, saved = _normalised(hidden.add_(bias), stacks[layer * count + 2 : layer * count + 4])
            hidden, slope = activations.apply(layout.activation, normed)
        else:
            active, slope = activations.biased(layout.activation, hidden, bias)
            hidden, saved = _normalised(active, stacks[layer * count + 2 : layer * count + 4])
        if kept is not None:
            kept.append([hidden, *saved, *([] if slope is hidden else [slope])])
    return product(hidden, stacks[last * count]).add_(stacks[last * count + 1])


def _normalised(values: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """LayerNorm with a scale and an offset, and what its backward pass needs: the norm and 1 / std."""
    scale, offset = parameters
    norm, _, rstd = torch.native_layer_norm(values, values.shape[-1:], None, None, LAYER_NORM_EPS)
    return torch.addcmul(offset, norm, scale), [norm, rstd]


def plain_forward(
    layout: MLPLayout, columns: Tensor, parts: Sequence[Tensor], masks: Sequence[Tensor] | None = None
) -> Tensor:
    """Return the outputs (members, critics, rows, out) through plain operations that autograd and a compiler understand.

    Nothing is written in place, so that a compiler can fuse the operations between two products, forward and backward. With
    several members, a few critics are run one after the other, because stacking them would copy their weights; many critics
    are stacked, because running them in sequence takes minutes to compile. `masks` (members, critics, rows, width) are the
    factors of dropout for each hidden layer.
    """
    members = columns.shape[0]
    turns = layout.ensemble if members > 1 and layout.ensemble <= _MAX_TURNS else 1
    inputs, count = joined_inputs(parts, layout.ensemble // turns), len(layout.slices)
    stacks = parameters(layout, columns, turns)
    outputs = []
    for turn in range(turns):
        own = None if masks is None else [(mask[:, turn] if turns > 1 else mask.flatten(0, 1)) for mask in masks]
        outputs.append(plain_outputs(layout, stacks[turn * count : (turn + 1) * count], inputs, own))
    return torch.stack(outputs, dim=1) if turns > 1 else outputs[0].view(members, -1, *outputs[0].shape[1:])


def plain_outputs(
    layout: MLPLayout, stacks: Sequence[Tensor], hidden: Tensor, masks: Sequence[Tensor] | None = None
) -> Tensor:
    """Return the outputs (stack, rows, out) for stacked inputs and parameters, through plain operations."""
    count, last = layout.parameters_per_layer, len(layout.hidden)
    for layer in range(last):
        weight, bias = stacks[layer * count : layer * count + 2]
        hidden = torch.bmm(hidden, weight) + bias
        if layout.norm == "after":
            hidden = activations.plain(layout.activation, hidden)
        if layout.layer_norm:
            scale, offset = stacks[layer * count + 2 : layer * count + 4]
            norm = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:], None, None, LAYER_NORM_EPS)
            hidden = norm * scale + offset
        if layout.norm != "after":
            hidden = activations.plain(layout.activation, hidden)
        if masks is not None:
            hidden = hidden * masks[layer]
    return torch.bmm(hidden, stacks[last * count]) + stacks[last * count + 1]


def parameters(layout: MLPLayout, columns: Tensor, turns: int = 1) -> tuple[Tensor, ...]:
    """Return each parameter as (stack, rows, out), with gradients for the columns; with `turns`, share after share."""
    found: tuple[Tensor, ...] = _Parameters.apply(columns, layout, turns)  # type: ignore[no-untyped-call]
    return found


class _Parameters(torch.autograd.Function):
    """The parameters (stack, rows, out) in columns (members, size), for all critics at once or in turns.

    The backward pass concatenates their gradients; autograd would sum a full-width gradient for each parameter.
    """

    @staticmethod
    def forward(ctx: Any, columns: Tensor, layout: MLPLayout, turns: int) -> tuple[Tensor, ...]:
        ctx.layout, ctx.turns = layout, turns
        found = []
        for turn in range(turns):
            for start, stop, shape in layout.slices:
                size = (stop - start) // turns
                found.append(columns[:, start + turn * size : start + (turn + 1) * size].reshape(-1, *shape))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        layout: MLPLayout = ctx.layout
        members = gradients[0].shape[0] * ctx.turns // layout.ensemble
        pieces, gaps = list[Tensor](), dict(layout.gaps)
        for number, (_, stop, _) in enumerate(layout.slices):
            pieces += [gradient.reshape(members, -1) for gradient in gradients[number :: len(layout.slices)]]
            if stop in gaps:
                pieces.append(gradients[0].new_zeros(members, gaps[stop] - stop))
        return torch.cat(pieces, dim=1), None, None


def row_tiles(inputs: Tensor) -> list[slice]:
    """Return slices of rows to run together: on the CPU a long batch is split into tiles that fit the cache."""
    rows = inputs.shape[1]
    if not inputs.is_cpu or rows <= 2 * ROWS_AT_ONCE:
        return [slice(0, rows)]
    return [slice(start, min(rows, start + ROWS_AT_ONCE)) for start in range(0, rows, ROWS_AT_ONCE)]


def hidden_gradients(
    layout: MLPLayout,
    kept: Sequence[Tensor],
    stacks: Sequence[Tensor],
    layer: int,
    above: Tensor,
) -> list[Tensor]:
    """Return the gradient at a hidden layer's product, given that of the layer above; with LayerNorm also after the norm."""
    weight = stacks[(layer + 1) * layout.parameters_per_layer]
    gradient = product(above, weight.transpose(1, 2))
    slope = kept[-1] if len(kept) in (2, 4) else kept[0]
    if not layout.layer_norm:
        return [activations.backward(layout.activation, gradient, slope)]
    scale, (norm, rstd) = stacks[layer * layout.parameters_per_layer + 2], kept[1:3]
    if layout.norm == "after":
        return [activations.backward(layout.activation, _norm_gradient(gradient, scale, norm, rstd), slope), gradient]
    gradient = activations.backward(layout.activation, gradient, slope)
    return [_norm_gradient(gradient, scale, norm, rstd), gradient]


def _norm_gradient(gradient: Tensor, scale: Tensor, norm: Tensor, rstd: Tensor) -> Tensor:
    """The gradient before a LayerNorm, given the one after its scale and offset."""
    scaled = gradient * scale
    centred = scaled - scaled.mean(-1, keepdim=True) - norm * (scaled * norm).mean(-1, keepdim=True)
    return centred.mul_(rstd)


def layer_gradients(
    outs: Sequence[Tensor], below: Tensor, gradients: Sequence[Tensor], kept: Sequence[Tensor], *, add: bool = False
) -> None:
    """Write the gradients of one layer's parameters to `outs`, or add them; `below` is the layer's input.

    `gradients` and `kept` belong to the layer, as returned by `hidden_gradients` and saved by `forward`.
    """
    _weight_gradient(outs[0], below, gradients[0], add=add)
    _sum_rows(outs[1], gradients[0], add=add)
    if len(outs) > 2:
        _sum_rows(outs[2], gradients[1] * kept[1], add=add)
        _sum_rows(outs[3], gradients[1], add=add)


def input_gradients(stacks: Sequence[Tensor], above: Tensor, ensemble: int, wanted: slice, shape: Sequence[int]) -> Tensor:
    """Return the gradient at the wanted input columns, in the shape of their part: summed over critics and repetitions."""
    gradient = product(above, stacks[0][:, wanted].transpose(1, 2))
    gradient = gradient if ensemble == 1 else gradient.view(-1, ensemble, *gradient.shape[1:]).sum(1)
    return gradient if gradient.shape == shape else gradient.view(shape[0], -1, *shape[1:]).sum(1)


def _weight_gradient(out: Tensor, activation: Tensor, gradient: Tensor, *, add: bool) -> None:
    """Write activation^T @ gradient, the gradient of a weight, to `out`, or add it."""
    if out.ndim == 4 or _bf16:
        _write(out, product(activation.transpose(1, 2), gradient).view(out.shape), add=add)
    elif out.shape[1] > out.shape[2]:  # transposed, because a product with few columns is slow and one with few rows is not
        _multiply(gradient.transpose(1, 2), activation, out.transpose(1, 2), add=add)
    else:
        _multiply(activation.transpose(1, 2), gradient, out, add=add)


def _sum_rows(out: Tensor, values: Tensor, *, add: bool) -> None:
    """Write the sum over the rows of (stack, rows, out), the gradient of a bias, to `out`, or add it: a product with ones."""
    ones = _ones(*values.shape[:2], values.dtype, values.device)
    if out.ndim == 4:
        _write(out, torch.bmm(ones, values).view(out.shape), add=add)
    else:
        _multiply(ones, values, out, add=add)


def _multiply(a: Tensor, b: Tensor, out: Tensor, *, add: bool) -> None:
    if add:
        out.baddbmm_(a, b)
    else:
        torch.bmm(a, b, out=out)


def _write(out: Tensor, values: Tensor, *, add: bool) -> None:
    if add:
        out.add_(values)
    else:
        out.copy_(values)


@lru_cache(maxsize=64)
def _ones(stack: int, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, 1, count, dtype=dtype, device=device).expand(stack, -1, -1)
