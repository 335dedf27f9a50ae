"""AWAC by hand: sampled next actions, advantages over one sampled action, clipped weights."""

import math

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import AWAC, AWACAlgorithm, awac_loss
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models import MLPAWACModel
from rl_training.rng import Draws
from tests.contract import check_learner
from tests.helpers import one_row, small_batch


def linear_model(biases=(0.0, 0.5), targets=(1.0, 2.0), slope=2.0, mean=0.1):
    """Critics Q = bias + slope a, targets likewise, and a policy N(mean, 1)."""
    model = MLPAWACModel(2, 1, hidden_sizes=(4,))
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    for prefix, values in (("", biases), ("target/", targets)):
        tensors[f"{prefix}critic/0/weight"][..., 2, :2] = torch.tensor([1.0, -1.0])  # the units a and -a
        tensors[f"{prefix}critic/1/weight"][..., :2, 0] = torch.tensor([slope, -slope])
        tensors[f"{prefix}critic/1/bias"] = torch.tensor(values).reshape(1, 2, 1)
    tensors["actor/1/bias"].fill_(mean)
    model.load_tensors(tensors)
    return model


def sample(model, stream, step):
    """The action of the linear model's policy in a stream."""
    noise = Draws.of_steps(model.seed_tensor, step).normals(stream, (1, 1)).item()
    return max(-1.0, min(1.0, 0.1 + noise))


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_losses_by_hand(step):
    """y = 0.5 + 0.9 (1 + 2 a'), A = 2 (a - a_pi), L_pi = min(exp(A / lambda), 3) (log 2 pi + (a - 0.1)^2) / 2."""
    model = linear_model()
    knobs = {"gamma": 0.9, "awac_lambda": 0.5, "max_advantage_weight": 3.0}
    loss, metrics = awac_loss(model, one_row(reward=0.5, action=0.3), step=step, **knobs)
    y = 0.5 + 0.9 * (1.0 + 2.0 * sample(model, "next_actions", step))
    critic = (0.6 - y) ** 2 + (1.1 - y) ** 2
    advantage = 2.0 * (0.3 - sample(model, "actions", step))
    weight = min(math.exp(advantage / 0.5), 3.0)
    actor = weight * 0.5 * (math.log(2 * math.pi) + 0.2**2)
    assert metrics["critic_loss"].item() == pytest.approx(critic, rel=1e-4)
    assert metrics["advantage_mean"].item() == pytest.approx(advantage, rel=1e-4, abs=1e-6)
    assert metrics["weight_mean"].item() == pytest.approx(weight, rel=1e-4)
    assert metrics["actor_loss"].item() == pytest.approx(actor, rel=1e-4)
    assert metrics["q_mean"].item() == pytest.approx(0.85, rel=1e-5)
    assert loss.item() == pytest.approx(critic + actor, rel=1e-4)


def test_a_true_end_has_no_next_value():
    metrics = awac_loss(linear_model(), one_row(reward=0.5, action=0.3, terminal=1.0))[1]
    assert metrics["critic_loss"].item() == pytest.approx(0.1**2 + 0.6**2, rel=1e-4)


def test_the_policy_s_loss_trains_the_policy_alone():
    """Its weights depend on the critics, and have no gradient."""
    model = MLPAWACModel(3, 2, hidden_sizes=(8,))
    plain = model.gradients(awac_loss(model, small_batch())[0])
    sharp = model.gradients(awac_loss(model, small_batch(), awac_lambda=0.01)[0])
    assert torch.equal(plain["critic"], sharp["critic"])
    assert not torch.equal(plain["actor"], sharp["actor"])
    assert sharp["log_std"].abs().max() > 0.0


def test_at_a_high_temperature_it_clones():
    model = MLPAWACModel(3, 2, hidden_sizes=(8,))
    _, metrics = awac_loss(model, small_batch(), awac_lambda=1e9)
    cloning = -model.log_prob(model.frozen, small_batch().observations, small_batch().actions).mean()
    assert metrics["weight_mean"].item() == pytest.approx(1.0)
    assert metrics["actor_loss"].item() == pytest.approx(cloning.item(), rel=1e-5)


def test_samples_are_clipped_and_a_linear_mean_only_when_it_acts():
    model = linear_model(mean=3.0)
    assert model.mean_actions(model.frozen, torch.zeros(1, 1, 2)).item() == 3.0
    assert model.act(torch.zeros(1, 1, 2)).item() == 1.0
    assert model.sampled(model.frozen, torch.zeros(1, 1, 1), torch.tensor([[[-4.0]]])).item() == -1.0
    assert model.sampled(model.frozen, torch.zeros(1, 1, 1), torch.tensor([[[0.25]]])).item() == 0.25


def test_defaults_are_corl_s():
    kwargs = make_config({"algo": "awac"}).algo_kwargs
    assert (kwargs.hidden_sizes, kwargs.policy_mean, kwargs.log_std_range) == ((256, 256, 256), "linear", (-20.0, 2.0))
    assert (kwargs.awac_lambda, kwargs.max_advantage_weight) == (pytest.approx(1 / 3), 100.0)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"awac_lambda": 0.0}, "`awac_lambda` = 0.0 is not legal"),
        ({"max_advantage_weight": 0.0}, "`max_advantage_weight` = 0.0"),
        ({"beta": 3.0}, "unknown key `beta`"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        AWAC(MLPAWACModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_a_deterministic_policy_is_refused():
    with pytest.raises(ConfigError, match="unknown key `policy`"):
        MLPAWACModel(3, 1, policy="deterministic")


def test_contract():
    assert AWACAlgorithm is AWAC
    check_learner("awac")


def test_metric_names():
    assert set(algorithms.AWAC.metric_names) == {"critic_loss", "actor_loss", "q_mean", "advantage_mean", "weight_mean"}
