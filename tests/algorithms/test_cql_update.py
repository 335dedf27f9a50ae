"""CQL by hand: the importance-sampled log-sum-exp, the penalty, the multiplier, the options of the target."""

import math

import pytest
import torch

from rl_training import algorithms
from rl_training.algorithms import CQL, SAC, CQLAlgorithm, cql_loss, sac_loss
from rl_training.algorithms.cql import importance_log_sum_exp
from rl_training.algorithms.learner import Step
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.experiment.registry import get_spec
from rl_training.models import MLPSACModel
from rl_training.rng import Draws
from rl_training.runtime.execution import compiled
from tests.contract import check_learner
from tests.helpers import constant_sac_model, one_row, run_values, small_batch


def test_log_sum_exp_of_a_constant_under_a_uniform_policy():
    """For Q = c and samples of density 2^-A it is c + A log 2 + log(count): a sum, not a mean."""
    actions, samples = 3, 30
    q = torch.full((1, 2, samples, 4), 1.5)
    density = torch.full((1, samples, 4), -actions * math.log(2.0))
    expected = 1.5 + actions * math.log(2.0) + math.log(30)
    result = importance_log_sum_exp(q, density)
    assert result.shape == (1, 2, 4)
    assert result.flatten().tolist() == pytest.approx([expected] * 8, rel=1e-6)


def test_temperature_of_the_log_sum_exp():
    q, density = torch.tensor([[[[1.0], [3.0]]]]), torch.zeros(1, 2, 1)
    assert importance_log_sum_exp(q, density, 2.0).item() == pytest.approx(2 * math.log(math.exp(0.5) + math.exp(1.5)))


def penalty_by_hand(model, batch, samples, step=0):
    """log-sum-exp - Q(s, a) per critic and row, with the samples scored one source after another at s."""
    draws = Draws.of_steps(model.seed_tensor, step)
    shape = (samples, *batch.actions.shape[1:])
    values = []
    uniform = draws.uniforms("cql/uniform", shape) * 2.0 - 1.0
    here, here_density = model.policy(model.frozen, batch.observations).sample(draws.normals("cql/here", shape))
    there, there_density = model.policy(model.frozen, batch.next_observations).sample(draws.normals("cql/there", shape))
    assert uniform.min() < -0.5 < 0.5 < uniform.max()
    flat = torch.full_like(here_density, -model.action_dim * math.log(2.0))
    for actions, density in ((uniform, flat), (here, here_density), (there, there_density)):
        for sample in range(samples):
            q = model.q_values(model.frozen, batch.observations, actions[:, sample])
            values.append(q - density[:, sample].unsqueeze(1))
    everywhere = torch.stack(values).logsumexp(0)
    return everywhere - model.q_values(model.frozen, batch.observations, batch.actions)


def test_the_penalty_by_hand():
    model, batch = MLPSACModel(3, 2, hidden_sizes=(8, 8)), small_batch(batch=40)
    difference = penalty_by_hand(model, batch, 5)
    metrics = cql_loss(model, batch, cql_alpha=3.0, num_cql_samples=5)[1]
    assert metrics["conservative_loss"].item() == pytest.approx(3.0 * difference.mean(-1).sum().item(), rel=1e-5)
    plain = sac_loss(model, batch, backup_entropy=False)[1]
    expected = plain["critic_loss"] + metrics["conservative_loss"]
    assert metrics["critic_loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    clipped = cql_loss(model, batch, cql_alpha=3.0, num_cql_samples=5, cql_clip_diff_min=4.0, cql_clip_diff_max=4.2)[1]
    by_hand = 3.0 * difference.clamp(4.0, 4.2).mean(-1).sum()
    assert clipped["conservative_loss"].item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_the_penalty_pushes_down_off_the_data_and_up_on_it():
    model = MLPSACModel(3, 2, hidden_sizes=(32, 32))
    learner = CQL(model, cql_alpha=10.0, critic_learning_rate=1e-2)
    first = learner.update(small_batch(batch=64)).metrics["conservative_loss"]
    for _ in range(60):
        last = learner.update(small_batch(batch=64)).metrics["conservative_loss"]
    assert last < first - 5.0


def test_without_weight_it_is_sac():
    model = MLPSACModel(3, 2, hidden_sizes=(8, 8))
    mine = model.gradients(cql_loss(model, small_batch(), cql_alpha=0.0, backup_entropy=True)[0])
    plain = model.gradients(sac_loss(model, small_batch())[0])
    for name in plain:
        assert torch.allclose(mine[name], plain[name], atol=1e-6), name


def test_entropy_stays_out_of_the_target_by_default():
    model = constant_sac_model((1.0, 3.0), (2.0, 5.0))
    metrics = cql_loss(model, one_row(reward=0.5), gamma=0.9, alpha=7.0)[1]
    y = 0.5 + 0.9 * 2.0
    td = metrics["critic_loss"] - metrics["conservative_loss"]
    assert td.item() == pytest.approx((1.0 - y) ** 2 + (3.0 - y) ** 2, rel=1e-4)


def test_max_target_backup_takes_the_best_of_the_drawn_actions():
    model, batch = MLPSACModel(3, 2, hidden_sizes=(16,)), small_batch(batch=16)
    learner = CQL(model, max_target_backup=True, num_cql_samples=6)
    draws = Draws.of_steps(model.seed_tensor, 0)
    policy = model.policy(model.frozen, batch.next_observations)
    with torch.no_grad():
        values = learner.next_values(batch, policy, torch.ones(1, 1), Step(draws, ()))
        actions, _ = policy.sample(draws.normals("next_actions", (6, 16, 2)))
        every = [model.q_values(model.target, batch.next_observations, actions[:, k]).amin(1) for k in range(6)]
    assert torch.allclose(values, torch.stack(every).amax(0))
    assert not torch.allclose(values, every[0])


def test_the_authors_multiplier_starts_at_one_and_weighs_the_difference_alone():
    """alpha' = 1 at first; penalty = sum (w d_j - gap), its slope -mean (w d_j - gap)."""
    model, batch = MLPSACModel(3, 2, hidden_sizes=(8, 8)), small_batch(batch=40)
    excess = 2.0 * penalty_by_hand(model, batch, 4).mean(-1)[0] - 1.5
    knobs = {"cql_alpha": 2.0, "num_cql_samples": 4, "lagrange_gap": 1.5, "lagrange_form": "authors", "alpha": 0.1}
    loss, metrics = cql_loss(model, batch, **knobs)
    assert metrics["conservative_loss"].item() == pytest.approx(excess.sum().item(), rel=1e-4)
    assert model.gradients(loss)["multiplier"][0, 0].item() == pytest.approx(-excess.mean().item(), rel=1e-4)


def test_the_multiplier_has_its_own_rate():
    """Adam's first step is the learning rate, whatever the gradient."""
    for knobs, expected in (({}, 1e-2), ({"multiplier_learning_rate": 0.05}, 0.05)):
        learner = CQL(MLPSACModel(3, 2, hidden_sizes=(8,)), lagrange_gap=-5.0, temperature_learning_rate=1e-2, **knobs)
        learner.update(small_batch())
        assert learner.state_dict()["temperature/log_multiplier"].item() == pytest.approx(1.0 + expected, rel=1e-4)


def test_the_authors_best_action_is_each_critic_s_own():
    model, batch = MLPSACModel(3, 2, hidden_sizes=(16,)), small_batch(batch=64)
    draws = Draws.of_steps(model.seed_tensor, 0)
    policy = model.policy(model.frozen, batch.next_observations)
    values = {}
    with torch.no_grad():
        for form in ("max_of_min", "min_of_max"):
            learner = CQL(model, max_target_backup=True, num_cql_samples=6, max_backup_form=form)
            values[form] = learner.next_values(batch, policy, torch.ones(1, 1), Step(draws, ()))
        actions, _ = policy.sample(draws.normals("next_actions", (6, 64, 2)))
        q = model.q_values(model.target, batch.next_observations, actions)
    assert torch.equal(values["min_of_max"], q.amax(2).amin(1))
    assert torch.equal(values["max_of_min"], q.amin(1).amax(1))
    assert not torch.equal(values["max_of_min"], values["min_of_max"])
    with pytest.raises(ConfigError, match="`backup_entropy` needs one best action"):
        CQL(model, max_target_backup=True, max_backup_form="min_of_max", backup_entropy=True)


def test_version_two_scores_the_data_too_and_weighs_nothing():
    model, batch = constant_sac_model((1.0, 3.0), (2.0, 5.0)), one_row(reward=0.5)
    metrics = cql_loss(model, batch, min_q_version=2, num_cql_samples=4, cql_alpha=2.0)[1]
    assert metrics["conservative_loss"].item() == pytest.approx(2.0 * 2 * math.log(13), rel=1e-5)  # log(13 e^q) - q twice


def test_the_policy_clones_the_data_for_its_first_steps():
    model, batch = MLPSACModel(3, 2, hidden_sizes=(8, 8)), small_batch(batch=40)
    cloning, usual = (cql_loss(model, batch, step=step, bc_steps=3, alpha=0.5)[1] for step in (2, 3))
    draws = Draws.of_steps(model.seed_tensor, 2)
    policy = model.policy(model.frozen, batch.observations)
    log_prob = policy.sample(draws.normals("actions", policy.mean.shape[1:]))[1]
    expected = (0.5 * log_prob - policy.log_prob(batch.actions)).mean()
    assert cloning["actor_loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    plain = cql_loss(model, batch, step=3, alpha=0.5)[1]
    assert usual["actor_loss"].item() == plain["actor_loss"].item()


def test_cloning_first_is_the_same_compiled(tmp_path, monkeypatch):
    """As traced; what the compiler makes of a traced step is tested once, for all algorithms."""
    monkeypatch.setattr(compiled, "compile_traced", lambda traced: traced.graph)
    states = []
    for engine in ("eager", "compile"):
        kwargs = {"bc_steps": 15, "num_cql_samples": 2}
        config = make_config(run_values("cql", engine=engine, algo_kwargs=kwargs))
        states.append(get_spec("cql").train()(config, tmp_path / engine).learner.state_dict())
    for name, value in states[0].items():
        assert torch.allclose(value, states[1][name], rtol=1e-3, atol=1e-4), name


def test_log_prob_of_given_actions_is_that_of_the_sample():
    policy = MLPSACModel(3, 2, hidden_sizes=(8,))
    distribution = policy.policy(policy.frozen, torch.ones(1, 6, 3))
    actions, log_prob = distribution.sample(Draws.of_steps(policy.seed_tensor, 0).normals("x", (6, 2)))
    assert torch.allclose(distribution.log_prob(actions), log_prob, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(distribution.log_prob(torch.ones(1, 6, 2))).all()


def test_the_multiplier_by_hand_and_on_both_critics():
    """alpha' = e at first; penalty = e alpha_cql sum (d_j - gap), its own slope -e alpha_cql mean (d_j - gap)."""
    model, batch = MLPSACModel(3, 2, hidden_sizes=(8, 8)), small_batch(batch=40)
    difference = penalty_by_hand(model, batch, 4).mean(-1)[0]
    assert abs(difference[0] - difference[1]) > 1e-3  # so that one critic alone would show
    loss, metrics = cql_loss(model, batch, cql_alpha=2.0, num_cql_samples=4, lagrange_gap=1.5, alpha=0.1)
    excess = 2.0 * (difference - 1.5)
    assert metrics["conservative_loss"].item() == pytest.approx(math.e * excess.sum().item(), rel=1e-4)
    slopes = model.gradients(loss)
    assert slopes["multiplier"][0, 0].item() == pytest.approx(-math.e * excess.mean().item(), rel=1e-4)
    assert slopes["temperature"][0, 0].item() == 0.0
    learner = CQL(model, lagrange_gap=1.5, alpha=0.1)
    assert set(learner.due_groups(0)) == {"critic", "actor", "multiplier"}
    learner.update(batch)
    assert learner.state_dict()["temperature/log_multiplier"].item() != 1.0
    assert learner.state_dict()["temperature/log_alpha"].item() == 0.0


def test_no_gradient_reaches_the_policy_through_the_penalty():
    model = MLPSACModel(3, 2, hidden_sizes=(8, 8))
    heavy = model.gradients(cql_loss(model, small_batch(), cql_alpha=100.0)[0])["actor"]
    assert torch.equal(heavy, model.gradients(cql_loss(model, small_batch(), cql_alpha=0.0)[0])["actor"])


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"cql_alpha": -1.0}, "`cql_alpha` = -1.0 is not legal: must be a number >= 0.0"),
        ({"num_cql_samples": 0}, "`num_cql_samples` = 0 is not legal: must be an integer >= 1"),
        ({"num_cql_samples": 2.5}, "`num_cql_samples` = 2.5"),
        ({"cql_temperature": 0.0}, "`cql_temperature` = 0.0"),
        ({"cql_clip_diff_min": 2.0, "cql_clip_diff_max": 1.0}, "must be below cql_clip_diff_max = 1.0"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        CQL(MLPSACModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert CQLAlgorithm is CQL
    assert issubclass(CQL, SAC)
    check_learner("cql")


def test_metric_names():
    names = "critic_loss actor_loss alpha alpha_loss entropy q_mean conservative_loss"
    assert set(algorithms.CQL.metric_names) == set(names.split())
