"""Transitions as packed rows: all fields of a transition side by side, so that a batch is one gather."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.batch import Batch

_SCALARS = ("rewards", "terminals", "timeouts", "discounts", "returns_to_go")  # fields with one number per transition
_BESIDE_BATCH = ("timeouts",)  # kept with the rows, not part of a batch
OPTIONAL = ("next_actions", "discounts", "returns_to_go")  # fields that only some runs need


@dataclass(frozen=True)
class RowLayout:
    """The fields of a packed row, in order, with their widths."""

    fields: tuple[tuple[str, int], ...]

    @cached_property
    def width(self) -> int:
        """Numbers in a row."""
        return sum(width for _, width in self.fields)

    def has(self, name: str) -> bool:
        """Return whether a field is part of a row."""
        return any(name == field for field, _ in self.fields)

    def pack(self, columns: Mapping[str, NDArray[Any]], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return columns (..., width) or (...,) for scalar fields as rows (..., width), in `out` if it is given."""
        parts = [columns[name][..., None] if name in _SCALARS else columns[name] for name, _ in self.fields]
        if out is not None:
            return np.concatenate(parts, axis=-1, out=out)
        return np.concatenate(parts, axis=-1, dtype=np.float32)

    def columns(self, rows: Tensor) -> dict[str, Tensor]:
        """Return views of the fields of rows (..., width) by name."""
        pieces = torch.split_with_sizes(rows, [width for _, width in self.fields], dim=-1)
        named = zip((name for name, _ in self.fields), pieces, strict=True)
        return {name: piece.squeeze(-1) if name in _SCALARS else piece for name, piece in named}

    def batch(self, rows: Tensor) -> Batch:
        """Return rows (members, batch, width) as a batch of views."""
        return Batch(**{name: value for name, value in self.columns(rows).items() if name not in _BESIDE_BATCH})


def row_layout(observation_dim: int, action_dim: int, needs: Collection[str] = (), *, timeouts: bool = False) -> RowLayout:
    """Return the layout of transitions with the optional fields among `needs`; those of a replay buffer have `timeouts`."""
    wide = dict.fromkeys(("observations", "next_observations"), observation_dim)
    wide |= dict.fromkeys(("actions", "next_actions"), action_dim)
    names = ["observations", "actions", "rewards", "next_observations", "terminals", *(["timeouts"] if timeouts else [])]
    names += [name for name in OPTIONAL if name in needs]
    return RowLayout(tuple((name, wide.get(name, 1)) for name in names))
