"""Ridge regression on random features: a smooth, fast, closed-form fit, good enough as a reference for learned functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_FEATURES = 400
_PENALTIES = (1e-2, 1.0, 100.0)
_LENGTH_SCALES = (0.4, 1.2)  # half of the features vary slowly over the inputs, half fast
_STRETCHES = 25  # of rows, every fifth of which chooses the fit
_LIMIT = 5.0  # standard deviations at which inputs are bounded


class Regression:
    """Predicts targets (rows, outputs) from inputs (rows, columns): a linear fit, or one on random features.

    Which of them, and its penalty, is chosen by how well it predicts stretches of rows that it was not fitted on; single rows
    would not do, since neighbours in time are nearly the same.
    """

    def __init__(self, inputs: NDArray[Any], targets: NDArray[Any], penalties: Sequence[float] = _PENALTIES) -> None:
        self._penalties = penalties
        raw = np.asarray(inputs, dtype=np.float64)
        draw = np.random.Generator(np.random.Philox(0))
        self._mean, self._std = raw.mean(axis=0), raw.std(axis=0) + 1e-9
        width = raw.shape[1]
        scale = np.repeat(_LENGTH_SCALES, _FEATURES // len(_LENGTH_SCALES)) / np.sqrt(width)
        self._waves = draw.normal(size=(width, _FEATURES)) * scale
        self._phases = draw.uniform(0.0, 2.0 * np.pi, _FEATURES)
        self._weights = self._fitted(self._features(raw), np.asarray(targets, dtype=np.float64), 1 + width)

    def __call__(self, inputs: NDArray[Any]) -> Numbers:
        """Return the predictions (rows, outputs) for inputs (rows, columns)."""
        return np.asarray(self._features(np.asarray(inputs, dtype=np.float64)) @ self._weights)

    def _features(self, raw: Numbers) -> Numbers:
        values = np.clip((raw - self._mean) / self._std, -_LIMIT, _LIMIT)
        waves = np.cos(values @ self._waves + self._phases)
        return np.concatenate((np.ones((len(values), 1)), values, np.square(values), waves), axis=1)

    def _fitted(self, features: Numbers, targets: Numbers, linear: int) -> Numbers:
        """The best weights, fitted on all rows; those of a linear fit are 0 beyond the first `linear` features."""
        if len(self._penalties) == 1:
            return _solved(*_products(features, targets), self._penalties[0])
        test = np.arange(len(features)) * _STRETCHES // len(features) % 5 == 4
        held, wanted = features[test], targets[test]
        most, rest = _products(features[~test], targets[~test]), _products(held, wanted)
        choices = [(size, count) for count in (linear, features.shape[1]) for size in reversed(self._penalties)]
        errors = [np.abs(held @ _first_solved(*most, *choice) - wanted).sum() for choice in choices]
        return _first_solved(most[0] + rest[0], most[1] + rest[1], *choices[int(np.argmin(errors))])


def _first_solved(normal: Numbers, moments: Numbers, penalty: float, count: int) -> Numbers:
    """The weights of the first `count` features alone; the others are 0."""
    weights = np.zeros_like(moments)
    weights[:count] = _solved(normal[:count, :count], moments[:count], penalty)
    return weights


def _products(features: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
    return features.T @ features, features.T @ targets


def _solved(normal: Numbers, moments: Numbers, penalty: float) -> Numbers:
    return np.asarray(np.linalg.solve(normal + penalty * np.eye(len(normal)), moments))
