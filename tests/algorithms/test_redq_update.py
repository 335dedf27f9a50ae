"""REDQ by hand: subsets without duplicates, their minimum in the target, the mean for the policy."""

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import REDQ, SAC, REDQAlgorithm, redq_loss, sac_loss
from rl_training.algorithms.redq import random_subsets, subset_minimum
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel
from rl_training.rng import Draws
from tests.contract import check_learner
from tests.helpers import constant_sac_model, one_row, small_batch


def test_subsets_have_no_duplicates_and_differ_between_updates_and_members():
    draws = Draws.of_steps(torch.tensor([0, 1, 2]), 0, 50)
    subsets = [random_subsets(draws.at(step).uniforms("critic_subset", (10,)), 4) for step in range(50)]
    for subset in subsets:
        assert subset.shape == (3, 4)
        assert all(len(set(row)) == 4 and set(row) <= set(range(10)) for row in subset.tolist())
    assert len({tuple(subset[0].tolist()) for subset in subsets}) > 40
    assert any(set(subset[0].tolist()) != set(subset[1].tolist()) for subset in subsets)
    counts = torch.bincount(torch.cat(subsets).flatten(), minlength=10)
    assert counts.min() > 30  # 60 of 600 are expected for every critic
    assert torch.equal(subset_minimum(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[0, 2]])), torch.tensor([2.0]))


def test_the_target_is_the_minimum_of_the_subset_and_the_policy_climbs_the_mean():
    targets, critics = (4.0, 1.0, 6.0), (1.0, 2.0, 6.0)
    model = constant_sac_model(critics, targets)
    seen = set()
    for step in range(12):
        metrics = redq_loss(model, one_row(reward=0.5), step=step, gamma=0.9, alpha=0.0, subset_size=2)[1]
        chances = Draws.of_steps(model.seed_tensor, step).uniforms("critic_subset", (3,))
        chosen = chances.argsort(1)[0, :2].tolist()
        y = 0.5 + 0.9 * min(targets[index] for index in chosen)
        seen.add(y)
        assert metrics["critic_loss"].item() == pytest.approx(sum((q - y) ** 2 for q in critics), rel=1e-5)
        assert metrics["actor_loss"].item() == pytest.approx(-3.0)
    assert seen == {0.5 + 0.9 * 1.0, 0.5 + 0.9 * 4.0}


def test_with_all_critics_in_the_subset_the_critics_learn_as_in_sac():
    model = MLPSACModel(3, 2, hidden_sizes=(8, 8), num_critics=2)
    mine = model.gradients(redq_loss(model, small_batch(), subset_size=2)[0])
    plain = model.gradients(sac_loss(model, small_batch())[0])
    assert torch.equal(mine["critic"], plain["critic"])
    assert not torch.equal(mine["actor"], plain["actor"])  # the mean, not the minimum


def test_every_critic_regresses_to_one_target_and_follows_by_polyak():
    learner = REDQ(MLPSACModel(3, 2, hidden_sizes=(8,), num_critics=4), actor_interval=20)
    before = learner.model.targets.flat.clone()
    for step in range(20):
        assert ("actor" in learner.due_groups(step)) == (step == 19)
        learner.update(small_batch(seed=step))
        assert not torch.equal(before, learner.model.targets.flat)
        before = learner.model.targets.flat.clone()
    counts = learner.state_dict()
    assert (counts["adam/count/critic"], counts["adam/count/actor"], counts["adam/count/temperature"]) == (20, 1, 1)


@pytest.mark.parametrize("size", [0, 4])
def test_bad_subsets_are_refused(size):
    with pytest.raises(ConfigError, match=f"`subset_size` = {size} is not legal: must be"):
        REDQ(MLPSACModel(3, 1, hidden_sizes=(8,), num_critics=3), subset_size=size)


def test_contract():
    assert REDQAlgorithm is REDQ
    assert issubclass(REDQ, SAC)
    check_learner("redq")


def test_metric_names():
    assert set(algorithms.REDQ.metric_names) == {"critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_mean"}
