"""SAC-N by hand: the minimum of all critics leads target and policy; defaults of its paper."""

import math

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import SACN, SACNAlgorithm, sac_n_loss
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel
from rl_training.rng import Draws
from tests.contract import check_learner
from tests.helpers import constant_sac_model, one_row, small_batch


def test_losses_by_hand():
    """Critics 3, 1, 2 and targets 5, 4, 2: y = 0.5 + 0.9 (2 - 0.2 log pi'), the policy's loss is 0.2 log pi - 1."""
    model = constant_sac_model((3.0, 1.0, 2.0), (5.0, 4.0, 2.0))
    loss, metrics = sac_n_loss(model, one_row(reward=0.5), gamma=0.9, alpha=0.2)

    def log_prob(stream, shape):
        noise = Draws.of_steps(model.seed_tensor, 0).normals(stream, shape).item()
        return -0.5 * noise**2 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(noise) ** 2)

    y = 0.5 + 0.9 * (2.0 - 0.2 * log_prob("next_actions", (1, 1, 1)))
    critic, actor = sum((q - y) ** 2 for q in (3.0, 1.0, 2.0)), 0.2 * log_prob("actions", (1, 1)) - 1.0
    assert metrics["critic_loss"].item() == pytest.approx(critic, rel=1e-5)
    assert metrics["actor_loss"].item() == pytest.approx(actor, rel=1e-5)
    assert metrics["q_mean"].item() == pytest.approx(2.0)
    assert loss.item() == pytest.approx(critic + actor, rel=1e-5)


def test_the_policy_follows_the_smallest_of_all_critics():
    """Only a change of the smallest critic moves the policy's gradient."""
    model = MLPSACModel(3, 2, hidden_sizes=(8,), num_critics=4)
    tensors = model.tensors()
    tensors["critic/1/bias"] = torch.tensor([[[9.0], [-9.0], [8.0], [7.0]]])
    model.load_tensors(tensors)
    before = model.gradients(sac_n_loss(model, small_batch())[0])["actor"]
    for critic, moves in ((0, False), (1, True), (3, False)):
        changed = {**tensors, "critic/0/weight": tensors["critic/0/weight"].clone()}
        changed["critic/0/weight"][:, critic] += 0.1
        model.load_tensors(changed)
        after = model.gradients(sac_n_loss(model, small_batch())[0])["actor"]
        assert torch.equal(before, after) != moves


def test_defaults_are_the_paper_s():
    kwargs = make_config({"algo": "sac_n"}).algo_kwargs
    assert (kwargs.num_critics, kwargs.hidden_sizes, kwargs.initialization) == (10, (256, 256, 256), "edac")
    assert (kwargs.log_std_range, kwargs.alpha, kwargs.actor_learning_rate) == ((-5.0, 2.0), "auto", 3e-4)
    assert make_config({"algo": "sac_n", "algo_kwargs": {"num_critics": 500}}).algo_kwargs.num_critics == 500


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"eta": 1.0}, "unknown key `eta`"), ({"alpha": -1.0}, "`alpha` = -1.0"), ({"gamma": 1.0}, "`gamma` = 1.0")],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        SACN(MLPSACModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert SACNAlgorithm is SACN
    check_learner("sac_n")


def test_metric_names():
    assert set(algorithms.SACN.metric_names) == {"critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_mean"}
