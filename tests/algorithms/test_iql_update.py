"""IQL by hand: losses, weights, order of the updates, ranges and metric names."""

import math

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import BC, IQL, IQLAlgorithm, iql_loss
from rl_training.algorithms.bellman import td_loss
from rl_training.algorithms.iql import advantage_weights, expectile_loss
from rl_training.errors import ConfigError
from rl_training.models import MLPBCModel, MLPIQLModel
from tests.contract import check_learner
from tests.helpers import one_row, small_batch


def constant_model(q1, q2, target1, target2, value, members=1):
    """A model whose networks are constants: every weight zero, the last biases given."""
    model = MLPIQLModel(2, 1, hidden_sizes=(4,), seeds=range(members))
    model.trained.flat.zero_()
    model.targets.flat.zero_()
    tensors = model.tensors()
    tensors["critic/1/bias"] = torch.tensor([[[q1], [q2]]]).expand(members, 2, 1).clone()
    tensors["target/critic/1/bias"] = torch.tensor([[[target1], [target2]]]).expand(members, 2, 1).clone()
    tensors["value/1/bias"] = torch.full((members, 1), value)
    model.load_tensors(tensors)
    return model


def test_expectile_loss_by_hand():
    residual = torch.tensor([[1.0, -2.0, 0.0]])
    assert expectile_loss(residual, 0.9).item() == pytest.approx((0.9 * 1 + 0.1 * 4) / 3)
    assert expectile_loss(residual, 0.5).item() == pytest.approx(0.5 * (1 + 4) / 3)  # half the squared error


def test_expectile_optimum():
    values = torch.linspace(0, 1, 1001)
    losses = [expectile_loss(torch.tensor([[0.0, 1.0]]) - value, 0.9).item() for value in values]
    assert values[int(torch.tensor(losses).argmin())] == pytest.approx(0.9, abs=2e-3)


def test_critic_loss_sums_the_critics():
    q = torch.tensor([[[1.0, 2.0], [3.0, 5.0]]])
    assert td_loss(q, torch.tensor([[0.0, 1.0]])).item() == pytest.approx((1 + 1) / 2 + (9 + 16) / 2)


def test_weights_are_clipped():
    weights = advantage_weights(torch.tensor([-1.0, 0.0, 1.0, 100.0]), 3.0, 100.0)
    assert weights.tolist() == pytest.approx([math.exp(-3), 1.0, math.exp(3), 100.0])


@pytest.mark.parametrize("terminal", [0.0, 1.0])
def test_losses_by_hand(terminal):
    """Targets 4 and 6, V = 3: the value loss takes the smaller target, the critic loss bootstraps with the online V."""
    model = constant_model(1.0, 2.0, 4.0, 6.0, 3.0)
    loss, metrics = iql_loss(model, one_row(1.0, terminal), expectile=0.7, beta=2.0, gamma=0.9)
    advantage = 4.0 - 3.0
    target = 1.0 + 0.9 * (1 - terminal) * 3.0
    weight = math.exp(2.0 * advantage)
    log_prob = -0.5 * 0.5**2 - 0.5 * math.log(2 * math.pi)  # mean tanh(0) = 0, log_std 0
    expected = {
        "value_loss": 0.7 * advantage**2,
        "critic_loss": (1.0 - target) ** 2 + (2.0 - target) ** 2,
        "actor_loss": -weight * log_prob,
        "q_mean": 1.5,
        "v_mean": 3.0,
        "advantage_mean": advantage,
        "weight_mean": weight,
    }
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected, rel=1e-5)
    assert loss.item() == pytest.approx(expected["value_loss"] + expected["critic_loss"] + expected["actor_loss"], rel=1e-5)


def test_negative_residual_takes_the_small_weight():
    _, metrics = iql_loss(constant_model(0.0, 0.0, 1.0, 6.0, 3.0), one_row(), expectile=0.7)
    assert metrics["value_loss"].item() == pytest.approx(0.3 * 4.0)


def test_gradients_stay_in_their_networks():
    """The critic never learns from the value or actor loss, and no loss moves the targets."""
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8))
    batch = small_batch()
    base = model.gradients(iql_loss(model, batch, beta=1.0, expectile=0.7)[0])
    other = model.gradients(iql_loss(model, batch, beta=2.0, expectile=0.9)[0])
    assert torch.equal(base["critic"], other["critic"])
    assert not torch.equal(base["value"], other["value"])
    assert not torch.equal(base["actor"], other["actor"])
    assert not model.targets.flat.requires_grad


def test_all_losses_use_the_parameters_from_before_the_step():
    """One update equals three Adam steps on gradients taken at the same point."""
    learner = IQL(MLPIQLModel(3, 2, hidden_sizes=(8, 8)))
    batch = small_batch()
    gradients = learner.model.gradients(learner.pure_loss(batch)[0])
    before = learner.model.trained.flat.clone()
    learner.update(batch)
    step = before - learner.model.trained.flat
    flat = torch.cat([gradients[name] for name in ("critic", "value", "actor", "log_std")], dim=1)
    expected = 3e-4 * flat / (flat.abs() + 1e-8)  # Adam's first step is the sign, scaled
    assert torch.allclose(step, expected, atol=1e-6)


def test_targets_move_by_polyak_after_the_step():
    learner = IQL(MLPIQLModel(3, 2, hidden_sizes=(8, 8)), tau=0.1)
    before = learner.model.targets.flat.clone()
    learner.update(small_batch())
    online = learner.model.trained.flat[:, learner.model.trained.groups["critic"]]
    assert torch.allclose(learner.model.targets.flat, before + 0.1 * (online - before), atol=1e-7)


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("expectile", 1.5, ">= 0.5 and < 1.0"),
        ("expectile", 1.0, ">= 0.5 and < 1.0"),
        ("expectile", 0.2, ">= 0.5 and < 1.0"),
        ("beta", -1.0, ">= 0.0"),
        ("max_advantage_weight", 0.0, "> 0.0"),
        ("gamma", 1.0, ">= 0.0 and < 1.0"),
        ("tau", 0.0, "> 0.0 and <= 1.0"),
        ("actor_learning_rate", 0.0, "> 0.0 and <= 1.0"),
        ("max_grad_norm", -1.0, "> 0.0"),
    ],
)
def test_bad_knobs_fail_at_construction(name, value, legal):
    with pytest.raises(ConfigError, match=f"`{name}` = {value} .*{legal}"):
        IQL(MLPIQLModel(3, 2, hidden_sizes=(4,)), **{name: value})
    with pytest.raises(ValueError, match=name):
        iql_loss(MLPIQLModel(3, 2, hidden_sizes=(4,)), small_batch(), **{name: value})


@pytest.mark.parametrize("value", [True, "0.7", float("nan"), float("inf"), None])
def test_knobs_of_the_wrong_type_are_refused(value):
    with pytest.raises(ConfigError, match="expectile"):
        IQL(MLPIQLModel(3, 2, hidden_sizes=(4,)), expectile=value)


def test_unknown_knob_is_suggested():
    with pytest.raises(ConfigError, match="unknown key `expectle`. Did you mean `expectile`"):
        IQL(MLPIQLModel(3, 2, hidden_sizes=(4,)), expectle=0.7)


def test_contract():
    assert IQLAlgorithm is IQL
    check_learner("iql")


def test_metric_names():
    names = "value_loss critic_loss actor_loss q_mean v_mean advantage_mean weight_mean"
    assert set(algorithms.IQL.metric_names) == set(names.split())


def test_a_deterministic_policy_is_drawn_to_the_data_by_weighted_squared_distance():
    model, batch = MLPIQLModel(3, 2, hidden_sizes=(8,), policy="deterministic"), small_batch()
    metrics = iql_loss(model, batch, beta=0.0)[1]
    distance = (model.mean_actions(model.frozen, batch.observations) - batch.actions).square().sum(-1)
    assert metrics["actor_loss"].item() == pytest.approx(distance.mean().item(), rel=1e-5)


def test_without_beta_the_policy_is_that_of_cloning():
    model, plain = MLPIQLModel(3, 2, hidden_sizes=(8,)), MLPBCModel(3, 2, hidden_sizes=(8,))
    before = plain.tensors()["actor/0/weight"].clone()
    own, cloned = IQL(model, beta=0.0), BC(plain)
    for _ in range(3):
        own.update(small_batch())
        cloned.update(small_batch())
    assert not torch.equal(plain.tensors()["actor/0/weight"], before)
    assert all(torch.equal(model.tensors()[name], value) for name, value in plain.tensors().items())
