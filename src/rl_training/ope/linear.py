"""The Bellman equation with fixed features, which is linear: its solution, and whether repeated evaluation would reach it."""

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean square of the features; the smallest that is stable is used
STABLE = 0.9995  # the largest growth of an error from one evaluation to the next that counts as stable
_SQUARINGS = 8


@dataclass(frozen=True, eq=False)
class Equations:
    """Sums over rows of linear Bellman equations (gram - moved) w = earned, stacked over two axes."""

    gram: Tensor  # (..., features, features): features times features
    moved: Tensor  # (..., features, features): features times the discounted ones of what follows
    earned: Tensor  # (..., features): features times rewards

    def __add__(self, other: "Equations") -> "Equations":
        return Equations(self.gram + other.gram, self.moved + other.moved, self.earned + other.earned)


@dataclass(frozen=True, eq=False)
class Solution:
    """The weights of each equation."""

    weights: Tensor  # (..., features)
    matrix: Tensor  # (..., features, features): what was solved
    growth: Tensor  # (...): of an error under repeated evaluation, with the smallest ridge; from 1 on it diverges
    stable: Tensor  # (...): whether any ridge was enough

    def weighing(self, target: Tensor) -> Tensor:
        """Return the weights whose products with the features say how much each row counts in `target` @ weights."""
        return _solved(self.matrix.mT, target)


def solve(equations: Equations) -> Solution:
    """Return the solution with the smallest ridge under which repeated evaluation converges, else with the largest."""
    gram, moved = equations.gram, equations.moved
    unit = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    unit = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * unit
    growths = torch.stack([growth(gram + ridge * unit, moved) for ridge in RIDGES])
    good = growths < STABLE
    ridges = torch.tensor(RIDGES, dtype=gram.dtype, device=gram.device)
    first = torch.where(good.any(0), good.to(torch.int64).argmax(0), len(RIDGES) - 1)
    matrix = gram + ridges[first][..., None, None] * unit - moved
    return Solution(_solved(matrix, equations.earned), matrix, growths[0], good.any(0))


def growth(regular: Tensor, moved: Tensor) -> Tensor:
    """Return by how much an error grows, in the long run, from one evaluation to the next.

    It is the spectral radius of regular^-1 moved, by the norm of a high power of it.
    """
    power = _solved(regular, moved)
    logarithm = torch.zeros(power.shape[:-2], dtype=power.dtype, device=power.device)
    for _ in range(_SQUARINGS):
        size = torch.linalg.matrix_norm(power)
        logarithm = 2.0 * (logarithm + size.log())
        power = power / size[..., None, None]
        power = power @ power
    logarithm = logarithm + torch.linalg.matrix_norm(power).log()
    return torch.exp(logarithm / 2.0**_SQUARINGS)


def _solved(matrices: Tensor, right: Tensor) -> Tensor:
    """Solve matrix by matrix: some builds of the library fail on stacks of larger ones. A singular one gives no number."""
    lead = torch.Size(max(pair) for pair in zip(matrices.shape[:2], right.shape[:2], strict=True))
    stacks = (values.expand(*lead, *values.shape[2:]).flatten(0, 1) for values in (matrices, right))
    found = torch.stack([torch.linalg.solve_ex(*pair).result for pair in zip(*stacks, strict=True)])
    return found.view(*lead, *found.shape[1:])
