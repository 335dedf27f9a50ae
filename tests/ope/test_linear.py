"""Linear Bellman equations: hand-computed solutions, and when repeated evaluation would diverge."""

import pytest
import torch

from rl_training.ope.linear import RIDGES, Equation, growth, solve


def equation(here, following, rewards, gamma):
    """The sums over rows of features (rows, features)."""
    here, following = (torch.tensor(rows, dtype=torch.float64) for rows in (here, following))
    earned = here.T @ torch.tensor(rewards, dtype=torch.float64)
    return Equation(here.T @ here, gamma * here.T @ following, earned)


def test_two_states_that_lead_to_each_other():
    """From A to B for 1, from B to A for 0: V(A) = 1 / (1 - g^2), V(B) = g / (1 - g^2)."""
    found = solve(equation([[1, 0], [0, 1]], [[0, 1], [1, 0]], [1.0, 0.0], 0.5))
    torch.testing.assert_close(found.weights, torch.tensor([4 / 3, 2 / 3], dtype=torch.float64), rtol=1e-3, atol=0.0)
    assert found.growth == pytest.approx(0.5, rel=1e-2)
    assert found.stable


def test_weights_of_rows_are_discounted_visits():
    """From A the rows of A and B count 1 + g^2 + ... and g + g^3 + ... times: 4/3 and 2/3 for g = 1/2."""
    found = solve(equation([[1, 0], [0, 1]], [[0, 1], [1, 0]], [1.0, 0.0], 0.5))
    visits = found.weighing(torch.tensor([1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(visits, torch.tensor([4 / 3, 2 / 3], dtype=torch.float64), rtol=1e-3, atol=0.0)


def test_features_that_double_at_every_step_diverge_without_a_ridge():
    """Tsitsiklis and Van Roy's example: the next feature is twice as large, so an error grows by 2 g."""
    found = solve(equation([[1.0]], [[2.0]], [0.0], 0.6))
    assert found.growth == pytest.approx(1.2, rel=1e-3)
    assert not found.stable
    mild = solve(equation([[1.0]], [[1.02]], [0.0], 0.99))
    assert mild.growth > 1.0
    assert mild.stable  # with a larger ridge: 1.0098 / 1.1 is below 1


def test_growth_is_the_spectral_radius():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    unit = torch.eye(5, dtype=torch.float64)
    exact = torch.linalg.eigvals(matrix).abs().max()
    assert growth(unit, matrix) == pytest.approx(float(exact), rel=2e-2)


def test_the_smallest_ridge_that_is_stable_is_used():
    stable = equation([[1, 0], [0, 1]], [[0, 1], [1, 0]], [1.0, 0.0], 0.5)
    torch.testing.assert_close(solve(stable).matrix, stable.gram * (1.0 + RIDGES[0]) - stable.moved)


def test_a_singular_equation_gives_no_number():
    found = solve(Equation(*(torch.zeros(2, 2, dtype=torch.float64),) * 2, torch.ones(2, dtype=torch.float64)))
    assert not found.stable
    assert not torch.isfinite(found.weights).all()
