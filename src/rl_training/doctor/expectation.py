"""What a log makes us expect: values explained by rows of its arrays, in a fit that takes an instant."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.regression import Regression

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]
Model = Callable[[Rows], Numbers]
_PENALTY = 1e-3


def explained_by(parts: Sequence[NDArray[Any]], rows: Rows, targets: Numbers) -> Model:
    """Return the function that predicts targets like these, (rows,) or (rows, columns), from rows of arrays side by side."""
    model = Regression(_side_by_side(parts, rows), targets, (_PENALTY,))
    return lambda wanted: model(_side_by_side(parts, wanted))


def linearly_explained_by(parts: Sequence[NDArray[Any]], rows: Rows, targets: Numbers) -> Model:
    """Return the linear function that predicts targets like these best, far outside its rows too."""
    inputs = _side_by_side(parts, rows)
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9
    offset = targets.mean(axis=0)
    weights = np.linalg.lstsq((inputs - mean) / scale, targets - offset, rcond=1e-6)[0]
    return lambda wanted: np.asarray((_side_by_side(parts, wanted) - mean) / scale @ weights + offset)


def _side_by_side(parts: Sequence[NDArray[Any]], rows: Rows) -> Numbers:
    return np.concatenate([np.asarray(part[rows], dtype=np.float64) for part in parts], axis=1)
