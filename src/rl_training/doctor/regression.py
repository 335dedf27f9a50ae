"""A smooth model of rows, fitted in an instant: good enough to tell what belongs together."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_FEATURES = 300
Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]
Model = Callable[[Rows], Numbers]


class Regression:
    """Ridge regression on random features of standardised rows of some arrays, side by side."""

    def __init__(self, parts: Sequence[NDArray[np.generic]], rows: Rows, draw: np.random.Generator) -> None:
        self._parts = parts
        raw = self._raw(rows)
        self._mean, self._std = raw.mean(axis=0), raw.std(axis=0) + 1e-9
        width = raw.shape[1]
        self._weights = draw.normal(size=(width, _FEATURES)) * 0.75 / np.sqrt(width)
        self._phases = draw.uniform(0.0, 2.0 * np.pi, _FEATURES)

    def _raw(self, rows: Rows) -> Numbers:
        return np.concatenate([np.asarray(part[rows], dtype=np.float64) for part in self._parts], axis=1)

    def _features(self, rows: Rows) -> Numbers:
        values = np.clip((self._raw(rows) - self._mean) / self._std, -5.0, 5.0)
        waves = np.cos(values @ self._weights + self._phases)
        return np.concatenate((np.ones((len(values), 1)), values, np.square(values), waves), axis=1)

    def __call__(self, rows: Rows, targets: Numbers) -> Model:
        """Return the function that predicts targets like these, (rows,) or (rows, columns), from rows."""
        inputs = self._features(rows)
        normal = inputs.T @ inputs + 1e-3 * np.eye(inputs.shape[1])
        weights = np.linalg.solve(normal, inputs.T @ targets)
        return lambda wanted: np.asarray(self._features(wanted) @ weights)
