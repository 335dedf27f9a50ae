"""Stacked multi-layer perceptrons over (members, ensemble): one batched matrix product per layer.

The mathematics is in `mlp_math`. Eagerly, a network is one autograd function whose backward pass writes the gradient of the
whole network directly into the segment that the optimizer reads. While a step is traced for a GPU, networks call the
operators of `mlp_ops`, which tracing can merge and the GPU runs as single kernels; for the CPU they are plain operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rl_training.config.shared_knobs import Activation, Initialization
from rl_training.models.initializers import layer_initializers, ones, zeros
from rl_training.models.mlp import eager as mlp_math
from rl_training.models.mlp import operators as mlp_ops
from rl_training.models.mlp.layout import MLPLayout, Norm
from rl_training.models.mlp.linearised import outputs_and_gradients
from rl_training.models.parameters import ParameterSpec, Segment, SegmentValues


@dataclass(frozen=True)
class StackedMLP:
    """A perceptron for every member, or for every member and critic of an ensemble.

    With `ensemble` = E the parameters are (members, E, in, out) and the output (members, E, batch, out); without it the
    ensemble axis is absent, and so is the last axis of a `scalar` network. `norm` is the place of LayerNorm in each hidden
    layer. `dropout` zeroes hidden units where a loss trains the network inside `StackedModel.dropping`.
    """

    name: str
    group: str
    input_size: int
    hidden_sizes: tuple[int, ...]
    output_size: int
    ensemble: int | None = None
    norm: Norm = "none"
    activation: Activation = "relu"
    dropout: float = 0.0
    initialization: Initialization = "orthogonal"
    last_layer_gain: float | None = None
    scalar: bool = False  # a single output, without an axis of its own

    @property
    def hidden_layers(self) -> int:
        """Number of layers with an activation."""
        return len(self.hidden_sizes)

    @cached_property
    def parameters(self) -> Segment:
        """The parameters in layer order: weight, bias, and with LayerNorm scale and offset."""
        lead = () if self.ensemble is None else (self.ensemble,)
        sizes = (self.input_size, *self.hidden_sizes, self.output_size)
        specs: list[ParameterSpec] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            last = layer == self.hidden_layers
            gain, bound = (self.last_layer_gain, 1e-3 if self.group == "actor" else 3e-3) if last else (None, None)
            outputs_count = self.initialization == "corl" and self.ensemble is not None  # its ensembles take them for inputs
            weight, bias = layer_initializers(self.initialization, fan_out if outputs_count else fan_in, fan_out, gain, bound)
            entries = [("weight", (fan_in, fan_out), weight), ("bias", (fan_out,), bias)]
            if self.norm != "none" and not last:
                entries += [("scale", (fan_out,), ones), ("offset", (fan_out,), zeros)]
            specs += [
                ParameterSpec(f"{self.name}/{layer}/{n}", (*lead, *shape), init, decays=n == "weight")
                for n, shape, init in entries
            ]
        return Segment(self.name, self.group, tuple(specs))

    @cached_property
    def layout(self) -> MLPLayout:
        """The shape and the locations of the parameters."""
        segment, alone = self.parameters, self.ensemble is None
        steps = [0 if alone else spec.strides[0] for spec in segment.specs]
        widths = (self.input_size, *self.hidden_sizes, self.output_size)
        locations = tuple(zip(segment.offsets, steps, strict=True))
        return MLPLayout(widths, self.ensemble or 1, self.norm, self.activation, locations, segment.size)

    @cached_property
    def first_layout(self) -> MLPLayout:
        """The layout of the first critic only."""
        return replace(self.layout, ensemble=1)

    @property
    def without_kernel(self) -> str | None:
        """Why the network is compiled operation by operation on a GPU, None if it has a kernel."""
        if self.dropout:
            return "dropout"
        if mlp_ops.has_kernels(self.layout):
            return None
        widths = f"{mlp_ops.SMALLEST_WIDTH} to {mlp_ops.LARGEST_WIDTH}"
        return f"hidden layers of {', '.join(map(str, self.hidden_sizes))} units (powers of two from {widths} have one)"

    def __call__(self, values: SegmentValues, *parts: Tensor) -> Tensor:
        """Return outputs (members[, ensemble], batch[, out]) for inputs (members, batch, in), given whole or in two parts.

        A first part with fewer rows than the second is repeated.
        """
        masks = self._masks(values, parts)
        if masks is None:
            outputs = self._outputs(self.layout, values, parts)
        else:
            outputs = mlp_math.plain_forward(self.layout, values.columns, parts, masks)
        if self.scalar:
            outputs = outputs.squeeze(-1)
        return outputs.squeeze(1) if self.ensemble is None else outputs

    def first(self, values: SegmentValues, *parts: Tensor) -> Tensor:
        """Return the outputs of the first critic only, (members, batch[, out]); its parameters get no gradient."""
        outputs = self._outputs(self.first_layout, SegmentValues(values.columns.detach(), values.rounded), parts).squeeze(1)
        return outputs.squeeze(-1) if self.scalar else outputs

    def with_gradients(self, values: SegmentValues, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Return a scalar network's outputs and their gradients at the second part, both differentiable in the parameters.

        They are (members, ensemble, batch) and (members, ensemble, batch, width of the part); the inputs get no gradient.
        """
        masks = self._masks(values, (first, second))
        outputs, gradients = outputs_and_gradients(self.layout, values.columns, values.rounded, first, second, masks)
        return outputs.squeeze(-1), gradients

    def _masks(self, values: SegmentValues, parts: Sequence[Tensor]) -> list[Tensor] | None:
        """The factors of dropout in each hidden layer, (members, critics, rows, width); None if nothing is dropped."""
        if not self.dropout or values.dropper is None or not torch.is_grad_enabled():
            return None
        rows = max(part.shape[1] for part in parts)
        shapes = [(self.layout.ensemble, rows, width) for width in self.hidden_sizes]
        return [values.dropper(self.name, shape, self.dropout) for shape in shapes]

    @staticmethod
    def _outputs(layout: MLPLayout, values: SegmentValues, parts: Sequence[Tensor]) -> Tensor:
        """Outputs (members, critics, batch, out)."""
        if mlp_ops.recorded_plainly(values.columns.device):
            return mlp_math.plain_forward(layout, values.columns, parts)
        trained = torch.is_grad_enabled() and (values.columns.requires_grad or any(part.requires_grad for part in parts))
        precision = mlp_ops.fused_precision(layout, values.columns.device)
        if precision is not None:
            given = (values.columns, values.rounded, parts[0], parts[-1], len(parts), layout, precision)
            if trained:
                return _FusedMLPFunction.apply(*given)  # type: ignore[no-any-return,no-untyped-call]
            return _fused_forward(*given, trained=False)[0]
        stacks = values.stacks or _stacks(layout, values)
        if trained:
            return _StackedMLPFunction.apply(values.columns, layout, stacks, *parts)  # type: ignore[no-any-return,no-untyped-call]
        inputs = mlp_math.joined_inputs(parts, layout.ensemble)
        outputs = [mlp_math.forward(layout, stacks, inputs[:, rows]) for rows in mlp_math.row_tiles(inputs)]
        return _joined(outputs).view(-1, layout.ensemble, inputs.shape[1], layout.widths[-1])


def _stacks(layout: MLPLayout, values: SegmentValues) -> list[Tensor]:
    """The parameters as a network multiplies them; cached on `values` where they are views."""
    stacks = layout.stacks(values.columns.detach())
    if layout.ensemble == 1 or values.columns.shape[0] == 1:
        values.stacks.extend(stacks)
    return stacks


class _StackedMLPFunction(torch.autograd.Function):
    """A whole network, forward and backward, with torch's products; gives gradients for the parameters and the inputs."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, layout: MLPLayout, stacks: Sequence[Tensor], *parts: Tensor) -> Tensor:
        inputs = mlp_math.joined_inputs(parts, layout.ensemble)
        tiles = [[[inputs[:, rows]]] for rows in mlp_math.row_tiles(inputs)]
        outputs = _joined([mlp_math.forward(layout, stacks, kept[0][0], kept) for kept in tiles])
        ctx.layout, ctx.members, ctx.shapes = layout, columns.shape[0], [part.shape for part in parts]
        ctx.stacks, ctx.tiles = stacks, tiles  # without autograd history, so save_for_backward is not needed
        return outputs.view(-1, layout.ensemble, inputs.shape[1], layout.widths[-1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        layout: MLPLayout = ctx.layout
        stacks, tiles, ctx.tiles = ctx.stacks, ctx.tiles, None
        result = layout.new_columns(ctx.members, tiles[0][0][0]) if ctx.needs_input_grad[0] else None
        outs = layout.destinations(result) if result is not None else []
        gradient = gradient.flatten(0, 1)
        wanted, lowest, first = ctx.needs_input_grad[3:], [], 0
        for number, kept in enumerate(tiles):
            rows = kept[0][0].shape[1]
            hidden = _backward(layout, stacks, kept, gradient[:, first : first + rows], outs, add=number > 0)
            if any(wanted):
                lowest.append(hidden)
            first += rows
        return (result, None, None, *_part_gradients(layout, stacks, lowest, ctx.shapes, wanted))


def _joined(tiles: Sequence[Tensor]) -> Tensor:
    return tiles[0] if len(tiles) == 1 else torch.cat(list(tiles), dim=1)


def _backward(
    layout: MLPLayout,
    stacks: Sequence[Tensor],
    kept: Sequence[Sequence[Tensor]],
    gradient: Tensor,
    outs: Sequence[Tensor],
    *,
    add: bool,
) -> Tensor:
    """The gradient at the lowest hidden layer; the gradients of the parameters are written to `outs` unless it is empty."""
    count, gradients = layout.parameters_per_layer, [gradient]
    for layer in reversed(range(len(kept))):
        if outs:
            saved = kept[layer + 1] if layer + 1 < len(kept) else []
            mlp_math.layer_gradients(outs[layer * count : (layer + 1) * count], kept[layer][0], gradients, saved, add=add)
        if layer > 0:
            gradients = mlp_math.hidden_gradients(layout, kept[layer], stacks, layer - 1, gradients[0])
    return gradients[0]


def _part_gradients(
    layout: MLPLayout,
    stacks: Sequence[Tensor],
    lowest: Sequence[Tensor],
    shapes: Sequence[torch.Size],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradient at each wanted part of the inputs, from tiles of the gradient at the lowest hidden layer."""
    found: list[Tensor | None] = []
    start = 0
    for shape, needed in zip(shapes, wanted, strict=True):
        columns = slice(start, start + shape[-1])
        found.append(mlp_math.input_gradients(stacks, _joined(lowest), layout.ensemble, columns, shape) if needed else None)
        start = columns.stop
    return found


def _fused_forward(
    columns: Tensor,
    rounded: Tensor | None,
    first: Tensor,
    second: Tensor,
    parts: int,
    layout: MLPLayout,
    precision: str,
    *,
    trained: bool,
) -> list[Tensor]:
    width = second.shape[-1] if parts == 2 else 0
    weights = [] if rounded is None else [rounded]
    results: list[Tensor] = mlp_ops.mlp_forward(
        [columns.detach()], weights, [first], [second], [width], [int(trained)], layout.encode(), precision
    )
    return results


class _FusedMLPFunction(torch.autograd.Function):
    """A whole network through the operators of `mlp_ops`; gives gradients for the last part of the inputs only."""

    @staticmethod
    def forward(
        ctx: Any,
        columns: Tensor,
        rounded: Tensor | None,
        first: Tensor,
        second: Tensor,
        parts: int,
        layout: MLPLayout,
        precision: str,
    ) -> Tensor:
        outputs, saved = _fused_forward(columns, rounded, first, second, parts, layout, precision, trained=True)
        ctx.parts, ctx.layout, ctx.precision = parts, layout, precision
        ctx.save_for_backward(columns, rounded, first, second, saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        columns, rounded, first, second, saved = ctx.saved_tensors
        layout: MLPLayout = ctx.layout
        train_columns, _, train_first, train_second = ctx.needs_input_grad[:4]
        if ctx.parts == 1:
            train_first, train_second = False, train_first  # a single part is passed as both
        if train_first:
            raise NotImplementedError("only the last part of a network's inputs can be differentiated while compiling")
        start = first.shape[-1] if ctx.parts == 2 else 0
        wanted = [start, second.shape[-1]] if train_second else [0, 0]
        encoded, precision = layout.encode(), ctx.precision
        weights = [] if rounded is None else [rounded]
        hidden, inputs = mlp_ops.mlp_hidden_gradients([columns], weights, [gradient], [saved], wanted, encoded, precision)
        result = None
        if train_columns:
            widths = [second.shape[-1] if ctx.parts == 2 else 0]
            (result,) = mlp_ops.mlp_gradients([first], [second], widths, [gradient], [saved], [hidden], encoded, precision)
        to_inputs = inputs.sum(1) if train_second else None
        if ctx.parts == 1:
            return result, None, to_inputs, None, None, None, None
        return result, None, None, to_inputs, None, None, None
