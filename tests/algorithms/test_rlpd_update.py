"""RLPD by hand: REDQ's losses on mixed batches, a fixed temperature by default, and what its metrics say."""

from dataclasses import replace

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import REDQ, RLPD, RLPDAlgorithm, redq_loss, rlpd_loss
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel
from rl_training.runtime.phases.online import PriorShare
from tests.contract import check_learner
from tests.helpers import constant_sac_model, one_row, small_batch


def test_losses_by_hand():
    """Two critics and a subset of two: y = r + gamma (min target - alpha log pi'), policy on the mean of 1 and 3."""
    model = constant_sac_model((1.0, 3.0), (2.0, 5.0))
    metrics = rlpd_loss(model, one_row(reward=0.5), gamma=0.9, alpha=0.0)[1]
    y = 0.5 + 0.9 * 2.0
    assert metrics["critic_loss"].item() == pytest.approx((1.0 - y) ** 2 + (3.0 - y) ** 2, rel=1e-5)
    assert metrics["actor_loss"].item() == pytest.approx(-2.0)


def test_it_is_redq_with_a_fixed_temperature():
    model = MLPSACModel(3, 2, hidden_sizes=(8, 8), num_critics=4, critic_layer_norm=True)
    mine = rlpd_loss(model, small_batch(), step=3)
    theirs = redq_loss(model, small_batch(), step=3, alpha=0.1)
    assert torch.equal(mine[0], theirs[0])
    learner = RLPD(model)
    assert learner.update(small_batch()).metrics["alpha"].item() == pytest.approx(0.1)
    assert learner.state_dict()["temperature/log_alpha"].item() == 0.0
    automatic = RLPD(MLPSACModel(3, 2, hidden_sizes=(8,)), alpha="auto")
    automatic.update(small_batch())
    assert automatic.state_dict()["temperature/log_alpha"].item() != 0.0


def test_the_metrics_count_prior_and_online_rows():
    learner, batch = RLPD(MLPSACModel(3, 2, hidden_sizes=(8,))), small_batch(batch=8)
    metrics = learner.update(batch).metrics
    assert (metrics["prior_samples"].item(), metrics["online_samples"].item()) == (0.0, 8.0)
    mixed = replace(batch, prior=torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    metrics = learner.update(mixed).metrics
    assert (metrics["prior_samples"].item(), metrics["online_samples"].item()) == (3.0, 5.0)


def test_the_policy_moves_once_per_ratio():
    learner = RLPD(MLPSACModel(3, 2, hidden_sizes=(8,), num_critics=10), actor_interval=20, alpha="auto")
    targets = learner.model.targets.flat.clone()
    for step in range(40):
        before = learner.state_dict()["actor/0/weight"]
        learner.update(small_batch(seed=step))
        assert torch.equal(before, learner.state_dict()["actor/0/weight"]) == (step % 20 != 19)
        assert not torch.equal(targets, learner.model.targets.flat)
        targets = learner.model.targets.flat.clone()
    counts = learner.state_dict()
    assert (counts["adam/count/critic"], counts["adam/count/actor"], counts["adam/count/temperature"]) == (40, 2, 2)


@pytest.mark.parametrize("size", [20, 256])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.5, 0.7, 1.0])
def test_the_share_is_the_rounded_one(ratio, size):
    assert PriorShare(ratio, ratio, 0).rows(123, size) == round(ratio * size)


def test_the_share_moves_to_its_end():
    share = PriorShare(0.8, 0.2, 100)
    assert [share.rows(step, 10) for step in (0, 50, 100, 1000)] == [8, 5, 2, 2]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"subset_size": 3}, "must be at most num_critics = 2"), ({"alpha": -1.0}, "`alpha` = -1.0"), ({"tau": 2.0}, "`tau`")],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        RLPD(MLPSACModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert RLPDAlgorithm is RLPD
    assert issubclass(RLPD, REDQ)
    check_learner("rlpd")


def test_metric_names():
    names = "critic_loss actor_loss alpha alpha_loss entropy q_mean prior_samples online_samples"
    assert set(algorithms.RLPD.metric_names) == set(names.split())
