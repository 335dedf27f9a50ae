"""Parameters as one flat buffer (members, size): contiguous groups for the optimizer, logical names for files.

The buffer is a sequence of *segments*. A segment holds the parameters of one network (or a single parameter) and is what a
loss differentiates: its columns are a leaf that shares the buffer's memory, so a backward pass writes each gradient once
and nothing is joined or copied afterwards. Each parameter is padded to 16 elements to keep its rows aligned. The padding is
never saved: files hold names and plain shapes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from rl_training.rng import Draws

ALIGNMENT = 16

Initializer = Callable[[tuple[int, ...], int, str], Tensor]
"""Returns one member's initial parameter for (shape, seed, stream name), on the CPU."""


@dataclass(frozen=True)
class ParameterSpec:
    """One named parameter of a member, `segment/rest`, and its initializer."""

    name: str
    shape: tuple[int, ...]
    initialize: Initializer
    decays: bool = False  # whether weight decay applies to it

    @cached_property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Strides of the parameter in a member's row."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @cached_property
    def padded_size(self) -> int:
        """Number of elements in the buffer, a multiple of the alignment."""
        return self.numel + -self.numel % ALIGNMENT


@dataclass(frozen=True)
class Segment:
    """Adjacent parameters that are differentiated together and belong to one optimizer group."""

    name: str
    group: str
    specs: tuple[ParameterSpec, ...]

    @cached_property
    def size(self) -> int:
        """Number of elements in the buffer, padding included."""
        return sum(spec.padded_size for spec in self.specs)

    @cached_property
    def offsets(self) -> list[int]:
        """Column at which each parameter starts."""
        return [0, *accumulate(spec.padded_size for spec in self.specs[:-1])]

    def tensors(self, columns: Tensor) -> list[Tensor]:
        """Return each parameter as a view (members, *shape) of the segment's columns (members, size), in order."""
        members, (row, _), start = columns.shape[0], columns.stride(), columns.storage_offset()
        return [
            columns.as_strided((members, *spec.shape), (row, *spec.strides), start + offset)
            for spec, offset in zip(self.specs, self.offsets, strict=True)
        ]


@dataclass(frozen=True)
class SegmentValues:
    """The values of a segment as a loss uses them."""

    columns: Tensor  # (members, size): a leaf that carries the gradient, or a tensor without one
    rounded: Tensor | None = None  # (members, size): the columns in bfloat16, if kernels are to read them so
    stacks: list[Tensor] = field(default_factory=list)  # parameters as a network multiplies them, cached if they are views
    dropper: "Dropper | None" = None  # draws the masks of dropout, where a loss trains the segment


class Dropper:
    """Draws masks of dropout; each call of a network in a step gets its own."""

    def __init__(self, draws: Draws) -> None:
        self._draws, self._calls = draws, Counter[str]()

    def __call__(self, name: str, shape: tuple[int, ...], share: float) -> Tensor:
        """Return factors (members, *shape): 0 for this share of the units, 1 / (1 - share) for the others."""
        number = self._calls[name]
        self._calls[name] += 1
        kept = self._draws.uniforms(f"dropout/{name}/{number}", shape) >= share
        return kept.to(torch.float32) / (1.0 - share)


class ParameterBank:
    """A flat float32 buffer for all members, with its segments, groups and named views."""

    def __init__(self, segments: Sequence[Segment], members: int, device: torch.device) -> None:
        self.segments = tuple(segments)
        self.members = members
        self.groups: dict[str, slice] = {}
        self.offsets: dict[str, int] = {}  # column at which each segment starts
        end = 0
        for segment in self.segments:
            self.offsets[segment.name] = end
            known = self.groups.get(segment.group)
            if known is not None and known.stop != end:
                raise ValueError(f"the segments of group {segment.group!r} must be contiguous")
            self.groups[segment.group] = slice(known.start if known else end, end + segment.size)
            end += segment.size
        self.size = end
        self.flat = torch.zeros(members, self.size, device=device)

    def new_buffer(self) -> Tensor:
        """Return a zero buffer of the same layout, for moments."""
        return torch.zeros_like(self.flat)

    def values(self, flat: Tensor, rounded: Tensor | None = None, *, trainable: bool = False) -> dict[str, SegmentValues]:
        """Return the segments of a buffer of this layout and, if given, of the same rounded, sharing their memory."""
        pieces = self._pieces(flat.detach())
        own = [None] * len(pieces) if rounded is None else self._pieces(rounded)
        return {
            segment.name: SegmentValues(piece.detach().requires_grad_(trainable), copy)
            for segment, piece, copy in zip(self.segments, pieces, own, strict=True)
        }

    def _pieces(self, flat: Tensor) -> tuple[Tensor, ...]:
        return torch.split_with_sizes(flat, [segment.size for segment in self.segments], dim=1)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return every parameter of a buffer of this layout as a view (members, *shape) by logical name."""
        values = self.values(flat)
        return {
            spec.name: tensor
            for segment in self.segments
            for spec, tensor in zip(segment.specs, segment.tensors(values[segment.name].columns), strict=True)
        }

    def initialize(self, seeds: Iterable[int]) -> None:
        """Fill each member's row from its own seed, so that a solo run and a population start equal."""
        views = self.views(self.flat)
        for member, seed in enumerate(seeds):
            for segment in self.segments:
                for spec in segment.specs:
                    views[spec.name][member].copy_(spec.initialize(spec.shape, seed, f"init/{spec.name}"))

    def export(self, flat: Tensor, prefix: str = "") -> dict[str, Tensor]:
        """Return contiguous copies of the parameters of `flat` by logical name."""
        return {prefix + name: view.clone().contiguous() for name, view in self.views(flat).items()}

    def load(self, flat: Tensor, values: Mapping[str, Tensor], prefix: str = "") -> None:
        """Copy named values into the allocated buffer; the caller has checked names and shapes."""
        for name, view in self.views(flat).items():
            view.copy_(values[prefix + name])
