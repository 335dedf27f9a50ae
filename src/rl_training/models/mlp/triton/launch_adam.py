"""Launches of Adam: on gradients, or on what they are computed from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
from torch import Tensor

from rl_training.models.mlp.operators import Backward
from rl_training.models.mlp.tiles import update_tiles
from rl_training.models.mlp.triton.adam import adam_kernel
from rl_training.models.mlp.triton.launch import first_programs, parameter_jobs, readable, start_kernel
from rl_training.models.mlp.triton.mlp_parameter_gradients import parameter_updates_kernel

Segment = tuple[int, int, int]
"""Its first column, its group, and the first column of its target or less than 0."""


class AdamState(NamedTuple):
    """What a step of Adam reads and changes, for all segments."""

    parameters: Tensor  # (members, columns), as both moments
    first: Tensor
    second: Tensor
    targets: Tensor  # (members, columns of targets)
    factors: Tensor  # (members, groups, 3), of `adam_factors`
    tau: Tensor  # (members,)
    decays: Tensor | None  # (columns,): whether each decays, if any does
    betas: tuple[float, float]
    rounded: Sequence[Tensor] = ()  # parameters and targets in bfloat16, if any

    def arguments(self) -> tuple[Any, ...]:
        """Return buffers, factors, tau and decays, as both kernels take them."""
        buffers = (self.parameters, self.first, self.second, self.targets, *(self.rounded or (self.parameters, self.targets)))
        return buffers, self.factors, self.tau, self.factors if self.decays is None else self.decays

    def constants(self) -> dict[str, Any]:
        """Return what of this is known when a kernel is compiled."""
        return {
            "ROW": self.parameters.stride(0),
            "TARGET_ROW": self.targets.stride(0),
            "GROUPS": self.factors.shape[-2],
            "RULE": (self.decays is not None, bool(self.rounded), *self.betas),
        }


def adam(state: AdamState, gradients: Sequence[Tensor], segments: Sequence[Segment], block: int = 1024) -> None:
    """Launch Adam on segments with their gradients (members, size), and polyak averaging of their targets."""
    sizes = [gradient.shape[1] for gradient in gradients]
    programs = [triton.cdiv(size, block) for size in sizes]
    given = zip(first_programs(programs), sizes, segments, strict=True)
    buffers, *rest = state.arguments()
    start_kernel(
        adam_kernel,
        (sum(programs), state.parameters.shape[0]),
        *(buffers, tuple(gradients), *rest),
        META=tuple((start, column, size, group, target) for start, size, (column, group, target) in given),
        SEGMENTS=len(segments),
        BLOCK=block,
        **state.constants(),
    )


def parameter_updates(state: AdamState, given: Backward, segments: Sequence[Segment]) -> None:
    """Launch Adam on the segments of networks, of which each gradient is applied where it is computed."""
    options = update_tiles()
    everything = {"WEIGHTS": True, "REST": True} | options
    programs, tensors, constants = parameter_jobs(readable(given), everything, [1] * len(given.layouts))
    start_kernel(
        parameter_updates_kernel,
        (programs,),
        *(*tensors, *state.arguments()),
        SEGMENTS=tuple(segments),
        **state.constants(),
        **constants,
        **options,
    )
