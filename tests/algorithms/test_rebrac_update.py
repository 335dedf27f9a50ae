"""ReBRAC by hand: both distances, unknown next actions, the smaller critic, the detached weight."""

from dataclasses import replace

import pytest
import torch

from rl_training.algorithms import ReBRAC, ReBRACAlgorithm, rebrac_loss
from rl_training.algorithms.rebrac import cloning_distance
from rl_training.bench.passes import Pass, Shapes, updates_of
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models import MLPTD3Model
from tests.contract import check_learner
from tests.helpers import one_row, run_values, small_batch


def constant_model(q=(0.0, 0.0), target=(0.0, 0.0), action=0.0, target_action=0.0):
    """Networks that are constants: every weight zero, the last biases given."""
    model = MLPTD3Model(2, 1, hidden_sizes=(4,))
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    tensors["critic/1/bias"] = torch.tensor(q).reshape(1, 2, 1)
    tensors["target/critic/1/bias"] = torch.tensor(target).reshape(1, 2, 1)
    tensors["actor/1/bias"].fill_(torch.tensor(action).atanh().item())
    tensors["target/actor/1/bias"].fill_(torch.tensor(target_action).atanh().item())
    model.load_tensors(tensors)
    return model


def row(next_action=0.5, **values):
    return replace(one_row(**values), next_actions=torch.tensor([[next_action]]))


def critic_loss(model, batch, **knobs):
    return rebrac_loss(model, batch, target_noise=0.0, **knobs)[1]["critic_loss"].item()


def test_losses_by_hand():
    """y = 0.5 + 0.9 * (2 - 0.1 * (0.2 + 0.3)^2) = 2.2775; the policy: 3 * (0.1 - 0.5)^2 + 4 / 4."""
    model = constant_model(q=(3.0, -4.0), target=(2.0, 5.0), action=0.1, target_action=0.2)
    batch = row(next_action=-0.3, reward=0.5, action=0.5)
    knobs = {"gamma": 0.9, "critic_bc_coef": 0.1, "actor_bc_coef": 3.0, "target_noise": 0.0}
    loss, metrics = rebrac_loss(model, batch, **knobs)
    critic, actor = 0.7225**2 + 6.2775**2, 3.0 * 0.16 + 1.0
    assert metrics["critic_loss"].item() == pytest.approx(critic, rel=1e-5)
    assert metrics["bc_loss"].item() == pytest.approx(0.16, rel=1e-5)
    assert metrics["actor_loss"].item() == pytest.approx(actor, rel=1e-5)
    assert metrics["q_mean"].item() == pytest.approx(-0.5)
    assert loss.item() == pytest.approx(critic + actor, rel=1e-5)
    unscaled = rebrac_loss(model, batch, normalize_q=False, **knobs)[1]["actor_loss"].item()
    assert unscaled == pytest.approx(3.0 * 0.16 + 4.0, rel=1e-5)


def test_distances_are_sums_over_dimensions():
    actions, logged = torch.tensor([[[0.5, -0.5], [1.0, 0.0]]]), torch.tensor([[[0.0, 0.5], [1.0, -1.0]]])
    assert cloning_distance(actions, logged).tolist() == [[1.25, 1.0]]
    model, batch = MLPTD3Model(3, 2, hidden_sizes=(8,)), small_batch()
    expected = (model.actions(model.frozen, batch.observations) - batch.actions).square().sum(-1).mean()
    assert rebrac_loss(model, batch)[1]["bc_loss"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_distance_is_that_of_the_smoothed_action():
    """With all noise clipped to 0.5 and the target policy at 0.2, a' is 0.7 or -0.3; either is as far from 0.2."""
    model = constant_model(target_action=0.2)
    found = rebrac_loss(model, row(next_action=0.2, reward=0.0), gamma=0.5, critic_bc_coef=1.0, target_noise=1e6)[1]
    assert found["critic_loss"].item() == pytest.approx(2 * (0.5 * 0.25) ** 2, rel=1e-4)


def test_an_unknown_next_action_has_no_distance_and_an_end_no_future():
    model = constant_model(target=(2.0, 2.0))
    assert critic_loss(model, row(next_action=torch.nan, reward=0.0), gamma=0.5, critic_bc_coef=9.0) == pytest.approx(2.0)
    assert critic_loss(model, row(next_action=1.0, reward=0.0), gamma=0.5, critic_bc_coef=2.0) == pytest.approx(0.0)
    assert critic_loss(model, row(next_action=1.0, reward=1.0, terminal=1.0), critic_bc_coef=9.0) == pytest.approx(2.0)
    learner = ReBRAC(MLPTD3Model(3, 2, hidden_sizes=(8,)))
    for step in range(4):
        batch = small_batch(seed=step)
        assert batch.next_actions.isnan().any()
        learner.update(batch)
    assert torch.isfinite(learner.model.trained.flat).all()


def test_batches_without_next_actions_are_refused():
    with pytest.raises(ConfigError, match="ReBRAC needs `next_actions` in the batch: train with train_rebrac"):
        rebrac_loss(constant_model(), one_row())


def test_the_smaller_critic_leads_the_policy():
    """Q1 falls in the action and Q2 rises, but Q2 is far smaller: the policy rises."""
    model = constant_model(q=(100.0, -100.0))
    tensors = model.tensors()
    tensors["critic/0/weight"][..., -1, 0] = 1.0
    tensors["critic/0/bias"][..., 0] = 1.0
    tensors["critic/1/weight"][0, :, 0, 0] = torch.tensor([-1.0, 1.0])
    model.load_tensors(tensors)
    gradient = model.gradients(rebrac_loss(model, row(), actor_bc_coef=0.0, normalize_q=False)[0])["actor"]
    views = model.trained.views(torch.zeros_like(model.trained.flat).index_copy(1, columns_of(model, "actor"), gradient))
    assert views["actor/1/bias"].item() == pytest.approx(-1.0)


def columns_of(model, group):
    columns = model.trained.groups[group]
    return torch.arange(columns.start, columns.stop)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"actor_bc_coef": -1.0}, "`actor_bc_coef` = -1.0 is not legal: must be a number >= 0.0"),
        ({"critic_bc_coef": -0.1}, "`critic_bc_coef` = -0.1"),
        ({"normalize_q": "yes"}, "`normalize_q` = 'yes'"),
        ({"alpha": 2.5}, "`alpha`"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        ReBRAC(MLPTD3Model(3, 1, hidden_sizes=(8,)), **knobs)


def test_published_settings_are_the_defaults():
    kwargs = make_config({"algo": "rebrac", "env_id": "Pendulum-v1"}).algo_kwargs
    assert (kwargs.actor_widths, kwargs.critic_widths, kwargs.batch_size) == ((256,) * 3, (256,) * 3, 1024)
    assert (kwargs.critic_layer_norm, kwargs.actor_layer_norm, kwargs.layer_norm_position) == (True, False, "after")
    assert (kwargs.actor_learning_rate, kwargs.critic_learning_rate, kwargs.initialization) == (1e-3, 1e-3, "edac")


def test_contract():
    assert ReBRACAlgorithm is ReBRAC
    check_learner("rebrac")


def test_metric_names():
    assert set(ReBRAC.metric_names) == {"critic_loss", "actor_loss", "bc_loss", "q_mean"}


def test_the_policy_passes_through_every_critic():
    shapes = Shapes(3, 2, make_config(run_values("rebrac", algo_kwargs={"batch_size": 8})).algo_kwargs)
    policy, critics = (3, 16, 16, 2), (5, 16, 16, 1)
    always = (Pass(1, policy, 8), Pass(2, critics, 8), Pass(2, critics, 8, "weights"))
    due = (Pass(1, policy, 8, "weights"), Pass(2, critics, 8, "inputs", 2))
    assert updates_of("rebrac", shapes) == [always, (*always, *due)]
