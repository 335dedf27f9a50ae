"""The Bellman equation with fixed features, which is linear: its solution, and whether repeated evaluation would reach it."""

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean square of the features; the smallest that is stable is used
STABLE = 0.9995  # the largest growth of an error from one evaluation to the next that counts as stable
_SQUARINGS = 8


@dataclass(frozen=True, eq=False)
class Equation:
    """A linear Bellman equation (gram - moved) w = earned, as sums over rows."""

    gram: Tensor  # (features, features): features times features
    moved: Tensor  # (features, features): features times the discounted ones of what follows
    earned: Tensor  # (features,): features times rewards


@dataclass(frozen=True, eq=False)
class Solution:
    """The weights that solve an equation."""

    weights: Tensor  # (features,)
    matrix: Tensor  # (features, features): what was solved
    growth: float  # of an error under repeated evaluation, with the smallest ridge; from 1 on it diverges
    stable: bool  # whether any ridge was enough

    def weighing(self, target: Tensor) -> Tensor:
        """Return the weights whose products with the features say how much each row counts in `target` @ weights."""
        return _solved(self.matrix.mT, target)


def solve(equation: Equation) -> Solution:
    """Return the solution with the smallest ridge under which repeated evaluation converges, else with the largest."""
    gram, moved = equation.gram, equation.moved
    unit = gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    growths = list[float]()
    for ridge in RIDGES:
        regular = gram + ridge * unit
        growths.append(growth(regular, moved))
        if growths[-1] < STABLE:
            break
    return Solution(_solved(regular - moved, equation.earned), regular - moved, growths[0], growths[-1] < STABLE)


def growth(regular: Tensor, moved: Tensor) -> float:
    """Return by how much an error grows, in the long run, from one evaluation to the next.

    It is the spectral radius of regular^-1 moved, by the norm of a high power of it, for which single precision is enough.
    """
    power = _solved(regular, moved).float()
    logarithm = torch.zeros((), dtype=power.dtype, device=power.device)
    for _ in range(_SQUARINGS):
        size = torch.linalg.matrix_norm(power)
        logarithm = 2.0 * (logarithm + size.log())
        power = power / size
        power = power @ power
    logarithm = logarithm + torch.linalg.matrix_norm(power).log()
    return float(torch.exp(logarithm / 2.0**_SQUARINGS))


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve; a singular matrix gives no number instead of an error."""
    found: Tensor = torch.linalg.solve_ex(matrix, right).result
    return found
