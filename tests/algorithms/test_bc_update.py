"""Behaviour cloning by hand: both losses, what it does not have, ranges and metric names."""

from math import log, pi

import pytest
import torch

from rl_training.algorithms import BC, bc_loss
from rl_training.bench.passes import Pass, Shapes, updates_of
from rl_training.config.loading import make_config
from rl_training.data import Batch
from rl_training.errors import ConfigError
from rl_training.models import MLPBCModel
from tests.contract import check_learner
from tests.helpers import one_row, run_values, small_batch


def constant_model(mean, log_std=0.0, policy="gaussian"):
    """A policy that is a constant: every weight zero, the last bias the inverse tanh of the mean."""
    model = MLPBCModel(2, 1, hidden_sizes=(4,), policy=policy)
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    tensors["actor/1/bias"].fill_(torch.tensor(mean).atanh().item())
    if policy == "gaussian":
        tensors["actor/log_std"].fill_(log_std)
    model.load_tensors(tensors)
    return model


def test_the_likelihood_of_a_gaussian_by_hand():
    loss, metrics = bc_loss(constant_model(0.2, log_std=log(0.5)), one_row(action=0.5))
    expected = 0.5 * (0.3 / 0.5) ** 2 + log(0.5) + 0.5 * log(2.0 * pi)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert metrics["actor_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert metrics["bc_loss"].item() == pytest.approx(0.09, rel=1e-5)


def test_the_squared_error_of_a_deterministic_policy_by_hand():
    loss, metrics = bc_loss(constant_model(0.2, policy="deterministic"), one_row(action=0.5))
    assert loss.item() == pytest.approx(0.09, rel=1e-5)
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx({"actor_loss": 0.09, "bc_loss": 0.09})


def test_rewards_and_successors_play_no_part():
    model, batch = MLPBCModel(3, 2, hidden_sizes=(8,)), small_batch()
    loss, _ = bc_loss(model, batch)
    lost = [torch.full_like(field, torch.nan) for field in (batch.rewards, batch.next_observations, batch.terminals)]
    other, _ = bc_loss(model, Batch(batch.observations, batch.actions, *lost))
    assert loss.item() == other.item()


@pytest.mark.parametrize("policy", ["gaussian", "deterministic"])
def test_it_has_a_policy_and_nothing_else(policy):
    learner = BC(MLPBCModel(3, 2, hidden_sizes=(8,), policy=policy))
    learner.update(small_batch())
    names = {name.split("/")[0] for name in learner.state_dict()}
    assert names == {"actor", "adam"}
    assert set(learner.model.trained.groups) == {"actor"}
    assert ("actor/log_std" in learner.state_dict()) == (policy == "gaussian")
    assert not learner.targets_due(0)
    for foreign in ("gamma", "tau", "critic_learning_rate", "num_critics", "reward"):
        with pytest.raises(ConfigError, match=f"unknown key `algo_kwargs.{foreign}`"):
            make_config(run_values("bc", algo_kwargs={foreign: 1}))


def test_a_deterministic_policy_has_no_samples_of_its_own():
    learner = BC(MLPBCModel(3, 2, hidden_sizes=(8,), policy="deterministic"))
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(learner.act(rows), learner.act(rows, deterministic=False))


def test_it_cannot_be_finetuned():
    with pytest.raises(ConfigError, match="`finetune` needs critics to learn from rewards, and bc has none"):
        make_config(run_values("bc", finetune={"env_steps": 10}))


def test_contract():
    check_learner("bc")


def test_metric_names():
    assert set(BC.metric_names) == {"actor_loss", "bc_loss"}


def test_a_step_passes_through_the_policy_and_nothing_else():
    shapes = Shapes(3, 2, make_config(run_values("bc", algo_kwargs={"batch_size": 8})).algo_kwargs)
    assert updates_of("bc", shapes) == [(Pass(1, (3, 16, 16, 2), 8, "weights"),)]
