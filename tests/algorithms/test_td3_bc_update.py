"""TD3+BC by hand: cloning, the detached weight, delayed policy and targets."""

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import TD3BC, TD3BCAlgorithm, td3_bc_loss
from rl_training.algorithms.td3_bc import q_weight
from rl_training.errors import ConfigError
from rl_training.models import MLPTD3Model
from tests.contract import check_learner
from tests.helpers import constant_td3_model, one_row, small_batch


def test_losses_by_hand():
    """y = 0.5 + 0.9 * 2 = 2.3; lambda = 2.5 / |Q1| with Q1 = -4, so the policy's loss is 2.5 + (0 - 0.5)^2."""
    model = constant_td3_model((-4.0, 3.0), (2.0, 5.0))
    loss, metrics = td3_bc_loss(model, one_row(reward=0.5, action=0.5), gamma=0.9)
    assert metrics["critic_loss"].item() == pytest.approx(6.3**2 + 0.7**2, rel=1e-5)
    assert metrics["bc_loss"].item() == pytest.approx(0.25)
    assert metrics["actor_loss"].item() == pytest.approx(2.5 + 0.25)
    assert metrics["q_mean"].item() == pytest.approx(-0.5)
    assert loss.item() == pytest.approx(6.3**2 + 0.7**2 + 2.75, rel=1e-5)
    ended = td3_bc_loss(model, one_row(reward=0.5, terminal=1.0))[1]
    assert ended["critic_loss"].item() == pytest.approx(4.5**2 + 2.5**2, rel=1e-5)


def test_cloning_is_the_mean_over_batch_and_dimensions():
    model = MLPTD3Model(3, 2, hidden_sizes=(8,))
    batch = small_batch()
    expected = (model.actions(model.frozen, batch.observations) - batch.actions).square().mean()
    assert td3_bc_loss(model, batch)[1]["bc_loss"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_weight_is_detached_and_makes_the_scale_of_q_irrelevant():
    q = torch.tensor([[1.0, -3.0]], requires_grad=True)
    weight = q_weight(q, 2.5)
    assert weight.item() == pytest.approx(2.5 / 2.0)
    assert not weight.requires_grad
    assert torch.isfinite(q_weight(torch.zeros(1, 2), 2.5)).all()
    model = MLPTD3Model(3, 2, hidden_sizes=(8,))
    before = model.gradients(td3_bc_loss(model, small_batch())[0])["actor"]
    tensors = model.tensors()
    for name in ("critic/1/weight", "critic/1/bias"):
        tensors[name] = tensors[name] * 10.0
    model.load_tensors(tensors)
    after = model.gradients(td3_bc_loss(model, small_batch())[0])["actor"]
    assert torch.allclose(before, after, rtol=1e-4, atol=1e-7)


def test_the_weight_is_a_member_s_own():
    q = torch.tensor([[1.0, 1.0], [10.0, 30.0]])
    assert q_weight(q, 2.0).tolist() == pytest.approx([2.0, 0.1])


def test_only_the_first_critic_leads_the_policy():
    model = MLPTD3Model(3, 2, hidden_sizes=(8,))
    before = model.gradients(td3_bc_loss(model, small_batch())[0])["actor"]
    tensors = model.tensors()
    tensors["critic/0/weight"][:, 1] += 1.0
    model.load_tensors(tensors)
    assert torch.equal(model.gradients(td3_bc_loss(model, small_batch())[0])["actor"], before)
    tensors["critic/0/weight"][:, 0] += 1.0
    model.load_tensors(tensors)
    assert not torch.equal(model.gradients(td3_bc_loss(model, small_batch())[0])["actor"], before)


def test_policy_and_targets_wait_for_their_interval():
    learner = TD3BC(MLPTD3Model(3, 2, hidden_sizes=(8,)), actor_interval=3)
    for step in range(6):
        state, due = learner.state_dict(), step % 3 == 2
        metrics = learner.update(small_batch(seed=step)).metrics
        after = learner.state_dict()
        moved = {name for name in state if not torch.equal(state[name], after[name])}
        assert ("actor/0/weight" in moved) == due
        assert ("target/critic/0/weight" in moved) == due
        assert ("target/actor/0/weight" in moved) == due
        assert "critic/0/weight" in moved
        assert {"actor_loss", "bc_loss"} <= set(metrics)
    assert after["adam/count/actor"].tolist() == [2]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"alpha": -1.0}, "`alpha` = -1.0 is not legal: must be a number >= 0.0"),
        ({"actor_interval": 0}, "`actor_interval` = 0"),
        ({"target_noise": -0.1}, "`target_noise` = -0.1"),
        ({"target_noise_clip": "a"}, "`target_noise_clip` = 'a'"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        TD3BC(MLPTD3Model(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert TD3BCAlgorithm is TD3BC
    check_learner("td3_bc")


def test_metric_names():
    assert set(algorithms.TD3BC.metric_names) == {"critic_loss", "actor_loss", "bc_loss", "q_mean"}
