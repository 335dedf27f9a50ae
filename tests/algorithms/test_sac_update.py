"""SAC by hand: target, policy and temperature losses, the two kinds of temperature, ranges and metric names."""

import math

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import SAC, SACAlgorithm, sac_loss
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel
from rl_training.rng import Draws
from tests.contract import check_learner
from tests.helpers import constant_sac_model, one_row, small_batch


def log_prob_at(noise):
    """log pi(tanh(noise)) of the constant model, whose policy is tanh of a standard normal."""
    return -0.5 * noise**2 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(noise) ** 2)


def draw(model, stream, shape, step=0):
    return Draws.of_steps(model.seed_tensor, step).normals(stream, shape).item()


def test_losses_by_hand():
    """Critics 1 and 3, targets 2 and 5: y = r + gamma (2 - alpha log pi'), L_Q = sum (q - y)^2, L_pi = alpha log pi - 1."""
    model = constant_sac_model((1.0, 3.0), (2.0, 5.0))
    loss, metrics = sac_loss(model, one_row(reward=0.5), gamma=0.9, alpha=0.2)
    next_log_prob = log_prob_at(draw(model, "next_actions", (1, 1, 1)))
    log_prob = log_prob_at(draw(model, "actions", (1, 1)))
    y = 0.5 + 0.9 * (2.0 - 0.2 * next_log_prob)
    critic, actor = (1.0 - y) ** 2 + (3.0 - y) ** 2, 0.2 * log_prob - 1.0
    assert metrics["critic_loss"].item() == pytest.approx(critic, rel=1e-5)
    assert metrics["actor_loss"].item() == pytest.approx(actor, rel=1e-5)
    assert metrics["entropy"].item() == pytest.approx(-log_prob, rel=1e-5)
    assert metrics["alpha"].item() == pytest.approx(0.2)
    assert metrics["alpha_loss"].item() == 0.0
    assert metrics["q_mean"].item() == pytest.approx(2.0)
    assert loss.item() == pytest.approx(critic + actor, rel=1e-5)


def test_a_true_end_has_no_next_value_and_entropy_can_be_left_out():
    model = constant_sac_model((1.0, 3.0), (2.0, 5.0))
    ended = sac_loss(model, one_row(reward=0.5, terminal=1.0), alpha=0.2)[1]
    assert ended["critic_loss"].item() == pytest.approx(0.5**2 + 2.5**2)
    hard = sac_loss(model, one_row(reward=0.5), alpha=0.2, gamma=0.9, backup_entropy=False)[1]
    y = 0.5 + 0.9 * 2.0
    assert hard["critic_loss"].item() == pytest.approx((1.0 - y) ** 2 + (3.0 - y) ** 2, rel=1e-5)


def test_automatic_temperature_by_hand():
    """The loss is -log(alpha) (log pi + H) with log(alpha) = 0 at first: its value is 0 and its slope -(log pi + H)."""
    model = constant_sac_model((1.0, 3.0), (2.0, 5.0))
    loss, metrics = sac_loss(model, one_row(), target_entropy=-0.7)
    assert metrics["alpha"].item() == 1.0
    assert metrics["alpha_loss"].item() == 0.0
    slope = model.gradients(loss)["temperature"]
    log_prob = log_prob_at(draw(model, "actions", (1, 1)))
    assert slope[0, 0].item() == pytest.approx(-(log_prob - 0.7), rel=1e-5)
    assert slope[0, 1:].abs().max() == 0.0  # the multiplier is CQL's
    default = sac_loss(model, one_row())[0]
    assert model.gradients(default)["temperature"][0, 0].item() == pytest.approx(-(log_prob - 1.0), rel=1e-5)


def test_a_fixed_temperature_is_never_trained():
    learner = SAC(MLPSACModel(3, 2, hidden_sizes=(8,)), alpha=0.3)
    assert set(learner.due_groups(0)) == {"critic", "actor"}
    before = learner.state_dict()
    assert learner.update(small_batch()).metrics["alpha"].item() == pytest.approx(0.3)
    after = learner.state_dict()
    assert torch.equal(before["temperature/log_alpha"], after["temperature/log_alpha"])
    assert after["adam/count/temperature"].tolist() == [0]


def test_the_policy_loss_does_not_reach_the_critics():
    model = MLPSACModel(3, 2, hidden_sizes=(8, 8))
    quiet = model.gradients(sac_loss(model, small_batch(), alpha=0.0)[0])
    loud = model.gradients(sac_loss(model, small_batch(), alpha=5.0, backup_entropy=False)[0])
    assert torch.allclose(
        quiet["critic"], model.gradients(sac_loss(model, small_batch(), alpha=0.0, backup_entropy=False)[0])["critic"]
    )
    assert torch.equal(loud["critic"], quiet["critic"])
    assert not torch.equal(loud["actor"], quiet["actor"])


def test_the_policy_follows_the_smaller_critic():
    """With constant critics the policy's gradient is that of the entropy term alone."""
    model = constant_sac_model((1.0, 3.0), (0.0, 0.0))
    gradient = model.gradients(sac_loss(model, one_row(), alpha=0.0)[0])["actor"]
    assert gradient.abs().max() == 0.0


def test_the_loss_is_pure_and_depends_on_the_step_alone():
    model = MLPSACModel(3, 2, hidden_sizes=(8,))
    before = model.tensors()
    first = sac_loss(model, small_batch(), step=7)[0]
    assert torch.equal(first, sac_loss(model, small_batch(), step=7)[0])
    assert not torch.equal(first, sac_loss(model, small_batch(), step=8)[0])
    assert all(torch.equal(value, before[name]) for name, value in model.tensors().items())


def test_the_policy_waits_for_its_interval():
    learner = SAC(MLPSACModel(3, 2, hidden_sizes=(8,)), actor_interval=3)
    assert [("actor" in learner.due_groups(step)) for step in range(6)] == [False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"alpha": -0.1}, r"`alpha` = -0.1 is not legal: must be a number >= 0 or `auto`"),
        ({"alpha": "automatic"}, "`alpha` = 'automatic' is not legal"),
        ({"alpha": True}, "`alpha` = True is not legal"),
        ({"actor_interval": 0}, "`actor_interval` = 0 is not legal: must be an integer >= 1"),
        ({"tau": 0.0}, "`tau` = 0.0 is not legal"),
        ({"temperature_learning_rate": 2.0}, "`temperature_learning_rate` = 2.0"),
        ({"target_entropie": 1.0}, "Did you mean `target_entropy`"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words) as caught:
        SAC(MLPSACModel(3, 1, hidden_sizes=(8,)), **knobs)
    assert isinstance(caught.value, ValueError)


def test_contract():
    assert SACAlgorithm is SAC
    check_learner("sac")


def test_metric_names():
    assert set(algorithms.SAC.metric_names) == {"critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_mean"}


def test_the_temperature_starts_where_it_is_told_and_aims_at_a_multiple_of_the_dimensions():
    learner = SAC(MLPSACModel(3, 2, hidden_sizes=(8,), initial_alpha=0.2), target_entropy_multiplier=0.5)
    assert learner.alpha().item() == pytest.approx(0.2)
    assert learner.target_entropy == -1.0
    assert SAC(MLPSACModel(3, 2, hidden_sizes=(8,)), target_entropy=-7.0).target_entropy == -7.0
    with pytest.raises(ConfigError, match="`initial_alpha` = 0.0 is not legal: must be a number > 0.0"):
        MLPSACModel(3, 2, initial_alpha=0.0)
