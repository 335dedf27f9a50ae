"""The Bellman equation with fixed features, which is linear: its solution, and whether repeated evaluation would reach it."""

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean square of the features; the smallest that is stable is used
STABLE = 0.9995  # the largest growth of an error from one evaluation to the next that counts as stable
_SQUARINGS = 8


@dataclass(frozen=True, eq=False)
class Equations:
    """Sums over rows of a stack of linear Bellman equations: (gram - moved) w = earned."""

    gram: Tensor  # (..., features, features): f f'
    moved: Tensor  # (..., features, features): f times gamma times the features where the row leads
    earned: Tensor  # (..., features): f times the reward

    def __add__(self, other: "Equations") -> "Equations":
        return Equations(self.gram + other.gram, self.moved + other.moved, self.earned + other.earned)


@dataclass(frozen=True, eq=False)
class Solution:
    """The weights of each equation of a stack."""

    weights: Tensor  # (..., features)
    matrix: Tensor  # (..., features, features): what was solved
    growth: Tensor  # (...): of an error under repeated evaluation, with the smallest ridge
    stable: Tensor  # (...): whether any ridge was enough

    def weighing(self, target: Tensor) -> Tensor:
        """Return the weights whose products with the features say how much each row counts in `target` @ weights."""
        return _each(torch.linalg.solve, self.matrix.mT, target)


def solve(equations: Equations) -> Solution:
    """Return the solution with the smallest ridge under which repeated evaluation converges, else with the largest."""
    gram, moved = equations.gram, equations.moved
    unit = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * torch.eye(
        gram.shape[-1], dtype=gram.dtype, device=gram.device
    )
    chosen = gram + RIDGES[-1] * unit
    first = stable = None
    for ridge in reversed(RIDGES):
        regular = gram + ridge * unit
        first = growth(regular, moved)
        good = first < STABLE
        stable = good if stable is None else stable | good
        chosen = torch.where(good[..., None, None], regular, chosen)
    matrix = chosen - moved
    return Solution(_each(torch.linalg.solve, matrix, equations.earned), matrix, first, stable)


def growth(regular: Tensor, moved: Tensor) -> Tensor:
    """Return by how much an error grows, in the long run, from one evaluation to the next."""
    power = _each(torch.linalg.solve, regular, moved)
    logarithm = torch.zeros(power.shape[:-2], dtype=power.dtype, device=power.device)
    for _ in range(_SQUARINGS):
        size = torch.linalg.matrix_norm(power)
        logarithm = 2.0 * (logarithm + size.log())
        power = power / size[..., None, None]
        power = power @ power
    logarithm = logarithm + torch.linalg.matrix_norm(power).log()
    return (logarithm / 2**_SQUARINGS).exp()


def _each(function, *stacks: Tensor) -> Tensor:
    """Apply a function matrix by matrix: some builds of the library fail on stacks of larger ones."""
    lead = torch.broadcast_shapes(*(stack.shape[:2] for stack in stacks))
    flat = [stack.expand(*lead, *stack.shape[2:]).flatten(0, 1) for stack in stacks]
    found = torch.stack([function(*parts) for parts in zip(*flat, strict=True)])
    return found.reshape(*lead, *found.shape[1:])
