"""The shape of a perceptron, where its parameters are, and what its operators hand to one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import Literal, Self, get_args

from torch import Tensor

from rl_training.config.shared_knobs import Activation

Norm = Literal["none", "before", "after"]
"""Where LayerNorm stands in a hidden layer: nowhere, or before or after the activation."""

ROWS_PER_SUM = 16
"""Rows whose gradients of LayerNorm's scale and offset are added before they are stored; no tile has fewer."""

ROWS_PER_WORD = 16
"""Adjacent rows of a unit whose signs are the bits of one 16-bit word; no tile has fewer."""


@dataclass(frozen=True)
class MLPLayout:
    """The shape of a perceptron and where its parameters are in a member's columns."""

    widths: tuple[int, ...]  # inputs, hidden layers, outputs
    ensemble: int  # critics per member
    norm: Norm
    activation: Activation
    locations: tuple[tuple[int, int], ...]  # first column of each parameter, and the stride from one critic to the next
    size: int  # columns of a member

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.widths[1:-1]

    @property
    def layer_norm(self) -> bool:
        """Whether hidden layers are normalised."""
        return self.norm != "none"

    @property
    def parameters_per_layer(self) -> int:
        """Parameters of a hidden layer: weight and bias, with LayerNorm also scale and offset."""
        return 4 if self.layer_norm else 2

    def encode(self) -> list[int]:
        """Return the layout as plain integers, preceded by their count."""
        kinds = [get_args(Norm).index(self.norm), get_args(Activation).index(self.activation)]
        values = [self.ensemble, *kinds, self.size, len(self.widths), *self.widths]
        values += [number for location in self.locations for number in location]
        return [len(values), *values]

    @classmethod
    def decode(cls, values: Sequence[int]) -> list[Self]:
        """Return the layouts from the concatenated results of `encode`."""
        layouts, rest = [], list(values)
        while rest:
            own, rest = rest[1 : rest[0] + 1], rest[rest[0] + 1 :]
            ensemble, norm, activation, size, count = own[:5]
            widths, numbers = own[5 : 5 + count], own[5 + count :]
            pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
            kinds = (get_args(Norm)[norm], get_args(Activation)[activation])
            layouts.append(cls(tuple(widths), ensemble, *kinds, pairs, size))
        return layouts

    def stacks(self, columns: Tensor) -> list[Tensor]:
        """Return each parameter as (stack, rows, out): a view, unless there are several members and several critics."""
        members, row, start = columns.shape[0], columns.stride(0), columns.storage_offset()
        stacks = []
        for (column, step), shape in zip(self.locations, self._shapes, strict=True):
            size, stride = (members, self.ensemble, *shape), (row, step, shape[1], 1)
            stacks.append(columns.as_strided(size, stride, start + column).flatten(0, 1))
        return stacks

    def destinations(self, result: Tensor) -> list[Tensor]:
        """Return a view of new columns for the gradient of each parameter, (stack, rows, out).

        With several members and several critics, which no such view can cover, it is (members, critics, rows, out).
        """
        members, row = result.shape[0], result.stride(0)
        views = []
        for (column, step), shape in zip(self.locations, self._shapes, strict=True):
            lead: tuple[int, ...] = (members, self.ensemble)
            steps: tuple[int, ...] = (row, step)
            if self.ensemble == 1 or members == 1:
                lead, steps = (members * self.ensemble,), (row if self.ensemble == 1 else step,)
            views.append(result.as_strided((*lead, *shape), (*steps, shape[1], 1), column))
        return views

    def new_columns(self, members: int, like: Tensor) -> Tensor:
        """Return columns (members, size) with zero padding and uninitialised parameters."""
        result = like.new_empty(members, self.size)
        for start, stop in self.gaps:
            result[:, start:stop].zero_()
        return result

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """The padding between parameters, as (first column, end)."""
        starts = [*(column for column, _ in self.locations[1:]), self.size]
        return [(end, start) for (_, end, _), start in zip(self.slices, starts, strict=True) if end < start]

    @cached_property
    def slices(self) -> list[tuple[int, int, tuple[int, int]]]:
        """The first column and the end of each parameter over all critics, and its shape in one critic."""
        starts = [column for column, _ in self.locations]
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

    @cached_property
    def hidden_weight_columns(self) -> list[tuple[int, int]]:
        """The columns of the weights between hidden layers, with the padding, as (first, end)."""
        starts = [*(column for column, _ in self.locations), self.size]
        weights = [self.parameters_per_layer * layer for layer in range(1, len(self.hidden))]
        return [(starts[number], starts[number + 1]) for number in weights]

    @cached_property
    def other_columns(self) -> list[tuple[int, int]]:
        """All other columns."""
        begins, ends = zip((0, 0), *((end, begin) for begin, end in self.hidden_weight_columns), strict=True)
        return list(zip(begins, [*ends[1:], self.size], strict=True))

    @property
    def statistics(self) -> int:
        """Numbers per row that the LayerNorm of a layer saves: 1 / std and, where the norm itself is not saved, the mean."""
        return {"none": 0, "before": 1, "after": 2}[self.norm]

    @property
    def kept(self) -> int:
        """Arrays (rows, width) that a hidden layer saves: its result and, where that does not give its slopes, what does."""
        return 2 if self.layer_norm or self.activation in ("gelu", "silu") else 1

    @property
    def signs(self) -> bool:
        """Whether hidden layers also save the signs of their results, since these alone give their slopes."""
        return self.activation == "relu" and not self.layer_norm

    def saved_size(self, stacks: int, rows: int, item_size: int) -> int:
        """Return how many numbers of so many bytes a forward pass saves for the backward pass.

        Last are the signs of each layer as words of 16 bits (stack, groups of ROWS_PER_WORD rows, width), if it saves any.
        """
        numbers = stacks * rows * (self.kept * sum(self.hidden) + self.statistics * len(self.hidden))
        words = stacks * -(-rows // ROWS_PER_WORD) * sum(self.hidden) if self.signs else 0
        return numbers + -(-2 * words // item_size)

    def saved_views(self, saved: Tensor, stacks: int, rows: int) -> list[list[Tensor]]:
        """Return what each hidden layer saves: arrays (stack, rows, width), then statistics (stack, rows, 1).

        The arrays are its result and, if there is a second one, the norm where LayerNorm comes before the activation,
        otherwise the argument of the activation's slope. The statistics are 1 / std and the mean. They follow the arrays of
        all layers, which keeps those aligned. Signs, which only the kernels read, have no view.
        """
        arrays = [(stacks, rows, width) for width in self.hidden for _ in range(self.kept)]
        views = _views(saved, [*arrays, *[(stacks, rows, 1)] * (self.statistics * len(self.hidden))])
        return [
            views[layer * self.kept : (layer + 1) * self.kept]
            + views[len(arrays) + layer * self.statistics : len(arrays) + (layer + 1) * self.statistics]
            for layer in range(len(self.hidden))
        ]

    def gradient_size(self, stacks: int, rows: int) -> int:
        """Return how many numbers `gradient_views` covers."""
        sums = 2 * -(-rows // ROWS_PER_SUM) if self.layer_norm else 0
        return stacks * (rows + sums) * sum(self.hidden)

    def gradient_views(self, gradients: Tensor, stacks: int, rows: int) -> list[list[Tensor]]:
        """Return the gradient at each hidden layer's product, (stack, rows, width).

        With LayerNorm it is followed by the gradients of scale and offset as sums of ROWS_PER_SUM rows each, (stack, sums,
        width), which are stored behind the others.
        """
        arrays = [(stacks, rows, width) for width in self.hidden]
        sums = [(stacks, -(-rows // ROWS_PER_SUM), width) for width in self.hidden for _ in range(2 * self.layer_norm)]
        views = _views(gradients, [*arrays, *sums])
        own = 2 * self.layer_norm
        behind = [views[len(arrays) + layer * own : len(arrays) + (layer + 1) * own] for layer in range(len(arrays))]
        return [[view, *more] for view, more in zip(views[: len(arrays)], behind, strict=True)]


def _views(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Adjacent parts of a flat tensor."""
    ends = list(accumulate(prod(shape) for shape in shapes))
    return [flat[end - prod(shape) : end].view(shape) for end, shape in zip(ends, shapes, strict=True)]
