"""The closed-form regression against functions of known form."""

import numpy as np
import pytest

from rl_training.data.regression import Regression
from tests.helpers import generator


def test_smooth_functions_are_fitted_closely():
    draw = generator(0)
    inputs = draw.uniform(-2.0, 2.0, (4000, 3)) * [1.0, 100.0, 1e-3] + [0.0, 5000.0, 1.0]
    unit = (inputs - [0.0, 5000.0, 1.0]) / [1.0, 100.0, 1e-3]
    targets = np.stack((np.sin(2.0 * unit[:, 0]) + unit[:, 1], np.tanh(unit[:, 2] * unit[:, 0])), axis=1)
    fit = Regression(inputs[:3000], targets[:3000])
    errors = np.abs(fit(inputs[3000:]) - targets[3000:]).mean(axis=0)
    assert (errors < 0.15 * targets.std(axis=0)).all()


def test_noise_is_not_memorised():
    draw = generator(1)
    inputs, targets = draw.normal(size=(300, 10)), draw.normal(size=(300, 1))
    fit = Regression(inputs[:200], targets[:200])
    assert np.square(fit(inputs[200:]) - targets[200:]).mean() < 1.4 * targets[200:].var()


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_a_handful_of_rows_and_constant_columns_give_finite_numbers(rows):
    inputs = np.ones((rows, 2))
    assert np.isfinite(Regression(inputs, np.arange(rows)[:, None])(inputs)).all()


def test_rows_that_follow_one_another_choose_a_fit_that_holds_elsewhere():
    """Slow random walks: neighbours are alike, so only stretches of rows show that a linear law is all there is."""
    draw = generator(2)
    walks = np.cumsum(draw.normal(size=(6, 1500, 4)), axis=1)
    targets = walks @ draw.normal(size=(4, 2)) + draw.normal(size=(6, 1500, 2))
    fit = Regression(walks[:, :1350].reshape(-1, 4), targets[:, :1350].reshape(-1, 2))
    error = np.abs(fit(walks[:, 1350:].reshape(-1, 4)) - targets[:, 1350:].reshape(-1, 2)).mean()
    assert error < 1.1  # the noise alone has a mean of 0.8
