"""TD3 by hand: smoothed targets, the smaller of two critics, a policy on the first, delayed policy and targets."""

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import TD3, TD3Algorithm, td3_loss
from rl_training.algorithms.td3 import smoothed_actions
from rl_training.errors import ConfigError
from rl_training.models import MLPTD3Model
from rl_training.rng import Draws
from tests.contract import check_learner
from tests.helpers import constant_td3_model, one_row, small_batch


def test_losses_by_hand():
    """y = 0.5 + 0.9 * 2 = 2.3 with the smaller target; the policy's loss is -Q1 = 4."""
    model = constant_td3_model((-4.0, 3.0), (2.0, 5.0))
    loss, metrics = td3_loss(model, one_row(reward=0.5), gamma=0.9)
    assert metrics["critic_loss"].item() == pytest.approx(6.3**2 + 0.7**2, rel=1e-5)
    assert metrics["actor_loss"].item() == pytest.approx(4.0)
    assert metrics["q_mean"].item() == pytest.approx(-0.5)
    assert loss.item() == pytest.approx(6.3**2 + 0.7**2 + 4.0, rel=1e-5)
    ended = td3_loss(model, one_row(reward=0.5, terminal=1.0))[1]
    assert ended["critic_loss"].item() == pytest.approx(4.5**2 + 2.5**2, rel=1e-5)


def test_smoothing_clips_the_noise_and_then_the_action():
    actions = torch.tensor([0.0, 0.0, 0.9, -0.9])
    noise = torch.tensor([1.0, 9.0, 2.0, -9.0])
    assert smoothed_actions(actions, noise, 0.2, 0.5).tolist() == pytest.approx([0.2, 0.5, 1.0, -1.0])


def test_the_target_is_taken_at_the_smoothed_action_of_the_target_policy():
    """Target critics that return the action itself: y = gamma (tanh(0.5) + clipped noise)."""
    model = constant_td3_model((0.0, 0.0), (0.0, 0.0))
    tensors = model.tensors()
    tensors["target/actor/1/bias"].fill_(0.5)
    tensors["target/critic/0/weight"][..., 2, :] = torch.tensor([1.0, -1.0, 0.0, 0.0])
    tensors["target/critic/1/weight"][..., :2, 0] = torch.tensor([1.0, -1.0])
    model.load_tensors(tensors)
    noise = Draws.of_steps(model.seed_tensor, 3).normals("target_noise", (1, 1))
    y = 0.9 * smoothed_actions(torch.tensor(0.5).tanh(), noise, 0.2, 0.5).item()
    metrics = td3_loss(model, one_row(reward=0.0), step=3, gamma=0.9)[1]
    assert metrics["critic_loss"].item() == pytest.approx(2.0 * y**2, rel=1e-5)


def test_only_the_first_critic_leads_the_policy_and_is_not_trained_by_it():
    model = MLPTD3Model(3, 2, hidden_sizes=(8,))
    batch, learner = small_batch(), TD3(model)
    mine = model.gradients(td3_loss(model, batch)[0])
    actor, _ = learner.actor_loss(batch)
    alone = model.gradients(actor.sum())
    assert torch.equal(mine["actor"], alone["actor"])
    assert alone["critic"].abs().max() == 0.0
    tensors = model.tensors()
    tensors["critic/0/weight"][:, 1] += 1.0
    model.load_tensors(tensors)
    assert torch.equal(model.gradients(td3_loss(model, batch)[0])["actor"], mine["actor"])


def test_policy_and_targets_wait_for_their_interval():
    learner = TD3(MLPTD3Model(3, 2, hidden_sizes=(8,)), actor_interval=3)
    assert [set(learner.due_groups(step)) for step in (0, 1, 2)] == [{"critic"}, {"critic"}, {"critic", "actor"}]
    assert [learner.targets_due(step) for step in range(6)] == [False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"alpha": 1.0}, "unknown key `alpha`"),
        ({"actor_interval": 0}, "`actor_interval` = 0"),
        ({"target_noise": -0.1}, "`target_noise` = -0.1"),
        ({"target_noise_clip": "a"}, "`target_noise_clip` = 'a'"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        TD3(MLPTD3Model(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert TD3Algorithm is TD3
    check_learner("td3")


def test_metric_names():
    assert set(algorithms.TD3.metric_names) == {"critic_loss", "actor_loss", "q_mean"}
