"""EDAC by hand: the alignment of the critics' gradients, its weight, and its own gradient."""

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import EDAC, EDACAlgorithm, edac_loss, sac_n_loss
from rl_training.algorithms.edac import diversity_loss
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models import MLPSACModel
from tests.contract import check_learner
from tests.helpers import constant_sac_model, one_row, small_batch


def test_the_diversity_term_by_hand():
    """Row 1: cosines 0, 1, 0 between three critics, each pair twice, over N - 1 = 2: 1. Row 2: -1, 1, -1: -1."""
    first = [[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]
    second = [[2.0, 0.0], [-1.0, 0.0], [0.5, 0.0]]
    gradients = torch.tensor([first, second]).transpose(0, 1).unsqueeze(0)
    assert diversity_loss(gradients[:, :, :1]).tolist() == pytest.approx([1.0])
    assert diversity_loss(gradients[:, :, 1:]).tolist() == pytest.approx([-1.0])
    assert diversity_loss(gradients).tolist() == pytest.approx([0.0], abs=1e-6)


def test_a_gradient_of_zero_counts_nothing_and_stays_finite():
    gradients = torch.zeros(1, 3, 2, 2)
    gradients[0, 0, :, 0] = 1.0
    gradients.requires_grad_()
    loss = diversity_loss(gradients)
    assert loss.tolist() == [0.0]
    assert torch.isfinite(torch.autograd.grad(loss.sum(), gradients)[0]).all()


def two_critics(first, second):
    """Critics Q = w . a + 1 for actions in the positive quadrant: one hidden unit each, which is on."""
    model = MLPSACModel(1, 2, hidden_sizes=(1,), num_critics=2)
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    tensors["critic/0/weight"][0, :, 1:, 0] = torch.tensor([first, second])
    tensors["critic/0/bias"].fill_(1.0)
    tensors["critic/1/weight"].fill_(1.0)
    model.load_tensors(tensors)
    return model


def test_the_loss_and_its_slope_by_hand():
    """Gradients (1, 0) and (3, 4): cosine 0.6. It falls if the second turns away from the first, at rate (0.128, -0.096)."""
    model = two_critics([1.0, 0.0], [3.0, 4.0])
    batch = small_batch(observation_dim=1, batch=4)
    batch = type(batch)(**{**vars_of(batch), "actions": torch.full((1, 4, 2), 0.5)})
    plain = model.gradients(sac_n_loss(model, batch)[0])["critic"]
    loss, metrics = edac_loss(model, batch, eta=5.0)
    assert metrics["diversity_loss"].item() == pytest.approx(2 * 0.6, rel=1e-6)
    assert loss.item() == pytest.approx(sac_n_loss(model, batch)[0].item() + 5.0 * 1.2, rel=1e-5)
    assert metrics["critic_loss"].item() == pytest.approx(sac_n_loss(model, batch)[1]["critic_loss"].item() + 6.0, rel=1e-5)
    more = model.gradients(loss)["critic"] - plain
    weight = model._critic.parameters.tensors(more)[0]  # (members, critics, in, out)
    # d cos / d g2 = (e1 - cos e2) / |g2| = ((1, 0) - 0.6 (0.6, 0.8)) / 5, twice, times eta
    assert weight[0, 1, 1:, 0].tolist() == pytest.approx([10 * 0.64 / 5, -10 * 0.48 / 5], rel=1e-4)
    assert weight[0, 0, 1:, 0].tolist() == pytest.approx([0.0, 10 * 0.8], abs=1e-5)  # (e2 - cos e1) / |g1|
    assert weight[0, :, 0].abs().max() < 1e-5  # the observation has no part in it


def vars_of(batch):
    return {name: getattr(batch, name) for name in ("observations", "actions", "rewards", "next_observations", "terminals")}


def test_without_a_weight_it_is_sac_n():
    model = MLPSACModel(3, 2, hidden_sizes=(8, 8), num_critics=3)
    loss, _ = edac_loss(model, small_batch(), step=3, eta=0.0)
    other, _ = sac_n_loss(model, small_batch(), step=3)
    assert loss.item() == pytest.approx(other.item(), rel=1e-6)
    mine, theirs = model.gradients(loss), model.gradients(other)
    assert all(torch.allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-6) for name in theirs)
    weighted = model.gradients(edac_loss(model, small_batch(), step=3, eta=5.0)[0])
    assert not torch.allclose(weighted["critic"], theirs["critic"], rtol=1e-2)
    assert torch.equal(weighted["actor"], mine["actor"])


def test_with_one_action_dimension_the_term_trains_nothing():
    """Directions are signs then."""
    model = MLPSACModel(2, 1, hidden_sizes=(8,), num_critics=3)
    batch = small_batch(observation_dim=2, action_dim=1)
    mine = model.gradients(edac_loss(model, batch, eta=100.0)[0])["critic"]
    assert torch.allclose(mine, model.gradients(edac_loss(model, batch, eta=0.0)[0])["critic"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [{"activation": "gelu"}, {"critic_layer_norm": True}, {"critic_dropout": 0.2}], ids=str)
def test_any_network_is_diversified(shape):
    learner = EDAC(MLPSACModel(3, 2, hidden_sizes=(16, 16), num_critics=4, **shape), eta=50.0, critic_learning_rate=1e-2)
    first = learner.update(small_batch()).metrics["diversity_loss"].item()
    for _ in range(30):
        last = learner.update(small_batch()).metrics["diversity_loss"].item()
    assert last < first - 0.5


@pytest.mark.parametrize(("knobs", "words"), [({"eta": -1.0}, "`eta` = -1.0"), ({"etta": 1.0}, "Did you mean `eta`")])
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        EDAC(MLPSACModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_a_single_critic_is_refused():
    with pytest.raises(ConfigError, match="`num_critics` must be at least 2"):
        EDAC(constant_sac_model((1.0,), (1.0,)))
    with pytest.raises(ConfigError, match=r"`algo_kwargs.num_critics` = 1 is not legal"):
        make_config({"algo": "edac", "algo_kwargs": {"num_critics": 1}})
    assert edac_loss(constant_sac_model((1.0, 2.0), (1.0, 2.0)), one_row())[1]["diversity_loss"].item() == 0.0


def test_contract():
    assert EDACAlgorithm is EDAC
    check_learner("edac")


def test_metric_names():
    names = {"critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_mean", "diversity_loss"}
    assert set(algorithms.EDAC.metric_names) == names
