"""XQL by hand: the Gumbel regression, its optimum, its rescaling and its limits; and where it equals IQL."""

import math

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import IQL, XQL, XQLAlgorithm, gumbel_rescale_loss, iql_loss, xql_loss, xql_value_loss
from rl_training.algorithms.bellman import td_loss
from rl_training.errors import ConfigError
from rl_training.models import MLPIQLModel
from tests.contract import check_learner
from tests.helpers import small_batch


def test_the_loss_by_hand():
    """z = (0.5, -1), m = 0.5: e^-m mean(e^z - z - 1)."""
    residual = torch.tensor([[1.0, -2.0]])
    expected = math.exp(-0.5) * ((math.exp(0.5) - 1.5) + (math.exp(-1.0) - 0.0)) / 2.0
    assert gumbel_rescale_loss(residual, 2.0).item() == pytest.approx(expected, rel=1e-6)
    assert xql_value_loss(residual, loss_temperature=2.0).item() == pytest.approx(expected, rel=1e-6)


def test_the_rescaled_loss_is_e_to_the_minus_m_times_the_plain_one():
    draw = torch.Generator().manual_seed(0)
    residual = torch.randn(3, 40, generator=draw, dtype=torch.float64) * 3.0
    z = residual / 1.5
    plain = (z.exp() - z - 1.0).mean(-1)
    m = z.amax(-1).clamp(min=-1.0)
    assert torch.allclose(gumbel_rescale_loss(residual, 1.5), (-m).exp() * plain)
    low = residual - 100.0  # every z below -1: the scale stays at e
    z = low / 1.5
    assert torch.allclose(gumbel_rescale_loss(low, 1.5), math.e * (z.exp() - z - 1.0).mean(-1))


def test_the_optimum_is_the_soft_maximum():
    """On a discrete set V = T log mean exp(Q / T), with the clip off."""
    q = torch.tensor([[0.0, 1.0, 4.0, -2.0]], dtype=torch.float64)
    for temperature in (0.5, 1.0, 3.0):
        best = temperature * (q / temperature).exp().mean().log()

        def slope(value, temperature=temperature):
            v = value.reshape(1, 1).requires_grad_(True)
            return torch.autograd.grad(gumbel_rescale_loss(q - v, temperature).sum(), v)[0].item()

        assert slope(best.clone()) == pytest.approx(0.0, abs=1e-12)
        assert slope(best - 0.1) < -1e-3
        assert slope(best + 0.1) > 1e-3


@pytest.mark.parametrize("z", [1e4, -1e4])
@pytest.mark.parametrize("clip", [None, 7.0])
def test_far_out_loss_and_gradient_are_finite(z, clip):
    residual = torch.tensor([[z, 0.0, -3.0], [-z, -2.0, -5.0], [z, z, z]], requires_grad=True)
    loss = gumbel_rescale_loss(residual, 1.0, clip)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(residual.grad).all()


def test_the_clip_is_from_above_only_and_the_scale_is_a_member_s_own():
    residual = torch.tensor([[9.0, 1.0], [-9.0, 1.0]])
    clipped = gumbel_rescale_loss(residual, 1.0, 5.0)
    assert clipped[0].item() == pytest.approx(gumbel_rescale_loss(torch.tensor([[5.0, 1.0]])).item())
    assert clipped[1].item() == pytest.approx(gumbel_rescale_loss(torch.tensor([[-9.0, 1.0]])).item())


def test_vanilla_is_iql_bit_for_bit():
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8))
    mine, theirs = (
        xql_loss(model, small_batch(), vanilla_value_loss=True, expectile=0.8),
        iql_loss(model, small_batch(), expectile=0.8),
    )
    assert torch.equal(mine[0], theirs[0])
    first, second = (MLPIQLModel(3, 2, hidden_sizes=(8, 8)) for _ in range(2))
    xql, iql = XQL(first, vanilla_value_loss=True, expectile=0.8), IQL(second, expectile=0.8)
    for step in range(10):
        xql.update(small_batch(seed=step))
        iql.update(small_batch(seed=step))
    state = iql.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in xql.state_dict().items())


def test_only_the_value_network_feels_the_difference():
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8))
    mine = model.gradients(xql_loss(model, small_batch())[0])
    theirs = model.gradients(iql_loss(model, small_batch())[0])
    assert torch.equal(mine["critic"], theirs["critic"])
    assert torch.equal(mine["actor"], theirs["actor"])
    assert not torch.equal(mine["value"], theirs["value"])


def test_the_huber_critic_by_hand():
    """Half the square within 20, 20 (|x| - 10) beyond."""
    q, target = torch.tensor([[[3.0, 50.0]]]), torch.tensor([[0.0, 0.0]])
    assert td_loss(q, target, 20.0).item() == pytest.approx((4.5 + 20.0 * 40.0) / 2.0)
    model = MLPIQLModel(3, 2, hidden_sizes=(8,))
    squared, huber = (xql_loss(model, small_batch(), critic_loss=kind)[1]["critic_loss"] for kind in ("mse", "huber"))
    assert huber.item() == pytest.approx(squared.item() / 2.0, rel=1e-5)  # every error is below 20


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"loss_temperature": 0.0}, "`loss_temperature` = 0.0 is not legal: must be a number > 0.0"),
        ({"max_value_diff_exp": -1.0}, "`max_value_diff_exp` = -1.0 is not legal"),
        ({"max_advantage_weight": 0.0}, "`max_advantage_weight` = 0.0 is not legal"),
        ({"vanilla_value_loss": 1}, "`vanilla_value_loss` = 1 is not legal"),
        ({"critic_loss": "l1"}, "`critic_loss` = 'l1' is not legal"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        XQL(MLPIQLModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert XQLAlgorithm is XQL
    assert issubclass(XQL, IQL)
    check_learner("xql")


def test_metric_names():
    names = "value_loss critic_loss actor_loss q_mean v_mean advantage_mean weight_mean"
    assert set(algorithms.XQL.metric_names) == set(names.split())
