"""Cal-QL by hand: where the floor binds, where it must not, and what it does to gradients."""

from dataclasses import replace

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import CQL, CalQL, CalQLAlgorithm, cal_ql_loss, cql_loss
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel
from tests.contract import check_learner
from tests.helpers import small_batch


def with_returns(value, batch=24):
    rows = small_batch(batch=batch)
    return replace(rows, returns_to_go=torch.full_like(rows.rewards, value))


def model_of_width(width=8):
    return MLPSACModel(3, 2, hidden_sizes=(width, width))


def test_without_a_floor_it_is_cql():
    model, batch = model_of_width(), with_returns(float("-inf"))
    mine, metrics = cal_ql_loss(model, batch)
    plain, plain_metrics = cql_loss(model, batch)
    assert torch.equal(mine, plain)
    assert metrics["calibrated_fraction"].item() == 0.0
    assert {name: metrics[name].item() for name in plain_metrics} == {n: v.item() for n, v in plain_metrics.items()}
    for name, gradient in model.gradients(cal_ql_loss(model, batch)[0]).items():
        assert torch.equal(gradient, model.gradients(cql_loss(model, batch)[0])[name])


def test_the_floor_is_on_policy_values_alone_and_elementwise():
    learner, batch = CalQL(model_of_width()), small_batch(batch=2)
    batch = replace(batch, returns_to_go=torch.tensor([[0.0, 2.0]]))
    q = torch.tensor([[[[-1.0, 1.0], [1.0, 3.0]]]])  # (members, critics, samples, rows)
    floored, metrics = learner.policy_values(q, batch)
    assert floored.tolist() == [[[[0.0, 2.0], [1.0, 3.0]]]]
    assert metrics["calibrated_fraction"].mean().item() == 0.5


def sampled_gradients(returns):
    """Slopes of the penalty for the values of data, uniform and policy actions, in that order."""
    model = model_of_width()
    learner = CalQL(model, num_cql_samples=3, cql_alpha=1.0)
    slopes = {}
    original = model.q_values

    def spy(parameters, observations, actions):
        q = original(parameters, observations, actions)
        if parameters is model.online and actions.ndim == 4:
            q.retain_grad()
            slopes["q"] = q
        return q

    model.q_values = spy
    batch = replace(with_returns(returns), terminals=torch.ones(1, 24), rewards=torch.zeros(1, 24))
    loss, metrics = learner.pure_loss(batch)
    loss.backward()
    data, uniform, policy = slopes["q"].grad.split((1, 3, 6), dim=2)
    return data, uniform, policy, metrics["calibrated_fraction"].item(), slopes["q"].detach()


def test_just_above_the_policy_values_no_gradient_flows_through_them():
    highest = sampled_gradients(-1e9)[4][:, :, 4:].max().item()
    data, uniform, policy, fraction, _ = sampled_gradients(highest + 1.0)
    assert fraction == 1.0
    assert policy.abs().max() == 0.0
    assert uniform.abs().min() > 0.0
    assert data.abs().min() > 0.0


def test_a_huge_return_leaves_a_gradient_on_the_data_alone():
    data, uniform, policy, fraction, _ = sampled_gradients(1e6)
    assert fraction == 1.0
    assert policy.abs().max() == uniform.abs().max() == 0.0
    assert data.abs().min() > 0.0


def test_a_low_return_floors_nothing():
    _, _, policy, fraction, _ = sampled_gradients(-1e9)
    assert fraction == 0.0
    assert policy.abs().min() > 0.0


def test_a_batch_without_returns_is_refused():
    batch = replace(small_batch(), returns_to_go=None)
    with pytest.raises(ConfigError, match="Cal-QL needs `returns_to_go` in the batch"):
        cal_ql_loss(model_of_width(), batch)
    with pytest.raises(ConfigError, match="compute_returns_to_go"):
        CalQL(model_of_width()).update(batch)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"tail": "last"}, "`tail` = 'last' is not legal"),
        ({"failure_reward": "x"}, "`failure_reward` = 'x'"),
        ({"cql_alpha": -1.0}, "`cql_alpha` = -1.0"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        CalQL(model_of_width(), **knobs)


def test_contract():
    assert CalQLAlgorithm is CalQL
    assert issubclass(CalQL, CQL)
    check_learner("cal_ql")


def test_metric_names():
    names = "critic_loss actor_loss alpha alpha_loss entropy q_mean conservative_loss calibrated_fraction"
    assert set(algorithms.CalQL.metric_names) == set(names.split())
