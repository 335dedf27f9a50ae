"""Forward and backward of stacked perceptrons with torch's batched products: a stack is a member, or a member and a critic.

Written out by hand. Autograd would record a dozen small operations per layer and copy every weight gradient twice; here a
backward pass is two products per layer, and each gradient is written in place where the optimizer reads it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Self

import torch
from torch import Tensor

LAYER_NORM_EPS = 1e-5
ROWS_AT_ONCE = 512
_MOST_TURNS = 4

_bf16 = False


@contextmanager
def bf16_products(enabled: bool) -> Iterator[None]:
    """Round the factors of every product to bfloat16 inside the block (sums stay in float32); CUDA only."""
    global _bf16  # noqa: PLW0603 - a property of the running engine, like torch's own TF32 switch
    before, _bf16 = _bf16, enabled
    try:
        yield
    finally:
        _bf16 = before


@dataclass(frozen=True)
class MLPLayout:
    """The shape of a perceptron and where its parameters lie in a member's columns."""

    widths: tuple[int, ...]  # inputs, hidden layers, outputs
    ensemble: int  # critics per member
    layer_norm: bool
    places: tuple[tuple[int, int], ...]  # column of each parameter, and the distance from one critic to the next
    size: int  # columns of a member

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.widths[1:-1]

    @property
    def parameters_per_layer(self) -> int:
        """Parameters of a hidden layer: weight and bias, and scale and offset of its LayerNorm."""
        return 4 if self.layer_norm else 2

    def encode(self) -> list[int]:
        """Return the layout as plain integers, the first of them their number."""
        values = [self.ensemble, int(self.layer_norm), self.size, len(self.widths), *self.widths]
        values += [number for place in self.places for number in place]
        return [len(values), *values]

    @classmethod
    def decode(cls, values: Sequence[int]) -> list[Self]:
        """Return the layouts that `encode` wrote one after the other."""
        layouts, rest = [], list(values)
        while rest:
            own, rest = rest[1 : rest[0] + 1], rest[rest[0] + 1 :]
            ensemble, layer_norm, size, count = own[:4]
            widths, places = own[4 : 4 + count], own[4 + count :]
            pairs = tuple(zip(places[::2], places[1::2], strict=True))
            layouts.append(cls(tuple(widths), ensemble, bool(layer_norm), pairs, size))
        return layouts

    def stacks(self, columns: Tensor) -> list[Tensor]:
        """Return each parameter as (stack, rows, out): a copy only when members and critics are both more than one."""
        members, row, start = columns.shape[0], columns.stride(0), columns.storage_offset()
        stacks = []
        for (column, step), shape in zip(self.places, self._shapes, strict=True):
            size, stride = (members, self.ensemble, *shape), (row, step, shape[1], 1)
            stacks.append(columns.as_strided(size, stride, start + column).flatten(0, 1))
        return stacks

    def destinations(self, result: Tensor) -> list[Tensor]:
        """Return where the gradient of each parameter goes in new columns: a view (stack, rows, out), where there is one.

        With several members and several critics it is (members, critics, rows, out).
        """
        members, row = result.shape[0], result.stride(0)
        views = []
        for (column, step), shape in zip(self.places, self._shapes, strict=True):
            lead: tuple[int, ...] = (members, self.ensemble)
            steps: tuple[int, ...] = (row, step)
            if self.ensemble == 1 or members == 1:
                lead, steps = (members * self.ensemble,), (row if self.ensemble == 1 else step,)
            views.append(result.as_strided((*lead, *shape), (*steps, shape[1], 1), column))
        return views

    def new_columns(self, members: int, like: Tensor) -> Tensor:
        """Return columns (members, size) whose padding is zero and whose parameters are still to be written."""
        result = like.new_empty(members, self.size)
        for start, stop in self.gaps:
            result[:, start:stop].zero_()
        return result

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """The columns between the parameters, that pad them."""
        starts = [*(column for column, _ in self.places[1:]), self.size]
        return [(end, start) for (_, end, _), start in zip(self.slices, starts, strict=True) if end < start]

    @cached_property
    def slices(self) -> list[tuple[int, int, tuple[int, int]]]:
        """The columns of each parameter, of all critics, from and to, and its shape in one of them."""
        starts = [column for column, _ in self.places]
        return [
            (start, start + self.ensemble * prod(shape), shape) for start, shape in zip(starts, self._shapes, strict=True)
        ]

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        shapes = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.widths)):
            vectors = self.parameters_per_layer - 1 if layer < len(self.hidden) else 1
            shapes += [(fan_in, fan_out), *[(1, fan_out)] * vectors]
        return shapes

    def saved_size(self, stacks: int, rows: int) -> int:
        """Return how many numbers a forward pass keeps for the backward pass."""
        kept = sum(self.hidden)
        return stacks * rows * (2 * kept + len(self.hidden) if self.layer_norm else kept)

    def saved_views(self, saved: Tensor, stacks: int, rows: int) -> list[list[Tensor]]:
        """Return what each hidden layer keeps, (stack, rows, width): its activation; with LayerNorm the norm and 1 / std."""
        widths = [width for layer in self.hidden for width in ((layer, layer, 1) if self.layer_norm else (layer,))]
        ends = list(accumulate(stacks * rows * width for width in widths))
        flat = [saved[end - stacks * rows * width : end] for end, width in zip(ends, widths, strict=True)]
        views = [piece.view(stacks, rows, width) for piece, width in zip(flat, widths, strict=True)]
        count = 3 if self.layer_norm else 1
        return [views[start : start + count] for start in range(0, len(views), count)]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b for stacks of matrices, in the precision of the run."""
    if not _bf16:
        return torch.bmm(a, b)
    return torch.bmm(a.to(torch.bfloat16), b.to(torch.bfloat16), out_dtype=torch.float32)


def joined_inputs(parts: Sequence[Tensor], ensemble: int) -> Tensor:
    """Return the parts of the inputs, (members, rows, width) each, side by side for every stack.

    A part with fewer rows is repeated: observations that are scored with several actions each.
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
    """Return the outputs (stack, rows, out); what each hidden layer has for a backward pass is appended to `kept`.

    That is its activation; with LayerNorm also the norm and 1 / std.
    """
    hidden, count, last = inputs, layout.parameters_per_layer, len(layout.hidden)
    for layer in range(last):
        weight, bias = stacks[layer * count : layer * count + 2]
        # bias apart: on the CPU baddbmm would first copy it to every row
        hidden = product(hidden, weight)
        saved = [hidden]
        if layout.layer_norm:
            norm, _, rstd = torch.native_layer_norm(hidden.add_(bias), hidden.shape[-1:], None, None, LAYER_NORM_EPS)
            scale, offset = stacks[layer * count + 2 : layer * count + 4]
            hidden = torch.addcmul(offset, norm, scale).relu_()
            saved = [hidden, norm, rstd]
        elif hidden.is_cpu:
            torch._add_relu_(hidden, bias)  # one pass over memory for both
        else:
            hidden.add_(bias).relu_()
        if kept is not None:
            kept.append(saved)
    return product(hidden, stacks[last * count]).add_(stacks[last * count + 1])


def plain_forward(layout: MLPLayout, columns: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """Return the outputs (members, critics, rows, out) by operations that autograd and a compiler can take apart.

    Nothing is written in place, so that a compiler may fuse what stands between two products, both ways. The critics of
    several members are taken one after the other while they are few: side by side their weights have to be copied, but many
    in a row take minutes to compile.
    """
    members = columns.shape[0]
    turns = layout.ensemble if members > 1 and layout.ensemble <= _MOST_TURNS else 1
    inputs, count = joined_inputs(parts, layout.ensemble // turns), len(layout.slices)
    parameters: tuple[Tensor, ...] = _Parameters.apply(columns, layout, turns)  # type: ignore[no-untyped-call]
    outputs = [_plain_outputs(layout, parameters[turn * count : (turn + 1) * count], inputs) for turn in range(turns)]
    return torch.stack(outputs, dim=1) if turns > 1 else outputs[0].view(members, -1, *outputs[0].shape[1:])


def _plain_outputs(layout: MLPLayout, stacks: Sequence[Tensor], hidden: Tensor) -> Tensor:
    count, last = layout.parameters_per_layer, len(layout.hidden)
    for layer in range(last):
        weight, bias = stacks[layer * count : layer * count + 2]
        hidden = torch.bmm(hidden, weight) + bias
        if layout.layer_norm:
            scale, offset = stacks[layer * count + 2 : layer * count + 4]
            norm = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:], None, None, LAYER_NORM_EPS)
            hidden = norm * scale + offset
        hidden = hidden.relu()
    return torch.bmm(hidden, stacks[last * count]) + stacks[last * count + 1]


class _Parameters(torch.autograd.Function):
    """The parameters (stack, rows, out) in columns (members, size), of all critics or in turns; their gradients in a row.

    By itself autograd would add up gradients of whole columns, one for each parameter.
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
    """Return the rows that go through a network together: on the CPU, of a long batch, as many as its cache holds."""
    rows = inputs.shape[1]
    if not inputs.is_cpu or rows <= 2 * ROWS_AT_ONCE:
        return [slice(0, rows)]
    return [slice(start, min(rows, start + ROWS_AT_ONCE)) for start in range(0, rows, ROWS_AT_ONCE)]


def slope_below(
    layout: MLPLayout,
    kept: Sequence[Tensor],
    stacks: Sequence[Tensor],
    layer: int,
    above: Tensor,
) -> list[Tensor]:
    """Return the slopes at a hidden layer from those above it: before its bias; with LayerNorm also behind the norm."""
    weight = stacks[(layer + 1) * layout.parameters_per_layer]
    slope = product(above, weight.transpose(1, 2))
    torch.ops.aten.threshold_backward.grad_input(slope, kept[0], 0.0, grad_input=slope)
    if not layout.layer_norm:
        return [slope]
    _, norm, rstd = kept
    scaled = slope * stacks[layer * layout.parameters_per_layer + 2]
    centred = scaled - scaled.mean(-1, keepdim=True) - norm * (scaled * norm).mean(-1, keepdim=True)
    return [centred.mul_(rstd), slope]


def layer_gradients(
    places: Sequence[Tensor], below: Tensor, slopes: Sequence[Tensor], kept: Sequence[Tensor], *, add: bool = False
) -> None:
    """Write the gradients of one layer's parameters, or add to them; `below` is what it multiplied.

    `slopes` and `kept` are those of the layer, as `slope_below` and `forward` give them.
    """
    _weight_gradient(places[0], below, slopes[0], add=add)
    _sum_rows(places[1], slopes[0], add=add)
    if len(places) > 2:
        _sum_rows(places[2], slopes[1] * kept[1], add=add)
        _sum_rows(places[3], slopes[1], add=add)


def input_slopes(stacks: Sequence[Tensor], slope: Tensor, ensemble: int, wanted: slice, shape: Sequence[int]) -> Tensor:
    """Return the slopes at some columns of the inputs, a part of this shape, summed over critics and repetitions."""
    gradient = product(slope, stacks[0][:, wanted].transpose(1, 2))
    gradient = gradient if ensemble == 1 else gradient.view(-1, ensemble, *gradient.shape[1:]).sum(1)
    return gradient if gradient.shape == shape else gradient.view(shape[0], -1, *shape[1:]).sum(1)


def _weight_gradient(place: Tensor, activation: Tensor, slope: Tensor, *, add: bool) -> None:
    """Write activation^T @ slope where a weight's gradient goes, or add it."""
    if place.ndim == 4 or _bf16:
        _put(place, product(activation.transpose(1, 2), slope).view(place.shape), add=add)
    elif place.shape[1] > place.shape[2]:  # a product with few columns is slow, with few rows it is not
        _multiply(slope.transpose(1, 2), activation, place.transpose(1, 2), add=add)
    else:
        _multiply(activation.transpose(1, 2), slope, place, add=add)


def _sum_rows(place: Tensor, values: Tensor, *, add: bool) -> None:
    """Write the sum over the rows of (stack, rows, out) where a bias's gradient goes, as a product with ones, or add it."""
    ones = _ones(*values.shape[:2], values.dtype, values.device)
    if place.ndim == 4:
        _put(place, torch.bmm(ones, values).view(place.shape), add=add)
    else:
        _multiply(ones, values, place, add=add)


def _multiply(a: Tensor, b: Tensor, place: Tensor, *, add: bool) -> None:
    if add:
        place.baddbmm_(a, b)
    else:
        torch.bmm(a, b, out=place)


def _put(place: Tensor, values: Tensor, *, add: bool) -> None:
    if add:
        place.add_(values)
    else:
        place.copy_(values)


@lru_cache(maxsize=64)
def _ones(stack: int, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, 1, count, dtype=dtype, device=device).expand(stack, -1, -1)
