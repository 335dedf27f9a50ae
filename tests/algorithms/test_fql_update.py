"""FQL by hand: the flow and its Euler steps, distillation before clipping, critics after it, targets, acting."""

import pytest
import torch

from rl_training.algorithms import FQL, FQLAlgorithm, fql_loss
from rl_training.algorithms.fql import squared_distance, straight_path
from rl_training.bench.passes import Pass, Shapes, updates_of
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models import MLPFQLModel
from rl_training.rng import Draws
from tests.contract import check_learner
from tests.helpers import one_row, run_values, small_batch


def constant_model(action=0.0, velocity=0.0, critics=(0.0, 0.0), targets=(0.0, 0.0)):
    """Networks that are constants: every weight zero, the last biases given."""
    model = MLPFQLModel(2, 1, hidden_sizes=(4,))
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    tensors["actor/1/bias"].fill_(action)
    tensors["flow/1/bias"].fill_(velocity)
    tensors["critic/1/bias"] = torch.tensor(critics).reshape(1, 2, 1)
    tensors["target/critic/1/bias"] = torch.tensor(targets).reshape(1, 2, 1)
    model.load_tensors(tensors)
    return model


def drawn(model, name, kind="normals"):
    """The one number that a loss draws from a stream for `one_row` at step 0."""
    return getattr(Draws.of_steps(model.seed_tensor, 0), kind)(name, (1, 1)).item()


def metrics_of(model, batch, **knobs):
    return {name: value.item() for name, value in fql_loss(model, batch, **knobs)[1].items()}


def test_losses_by_hand():
    """y = 0.5 + 0.9 * (2 + 5) / 2 = 3.65; the mean over two critics; the flow takes z to z + 0.3."""
    model = constant_model(action=0.2, velocity=0.3, critics=(-4.0, 3.0), targets=(2.0, 5.0))
    loss, metrics = fql_loss(model, one_row(reward=0.5, action=0.5), gamma=0.9)
    critic = (7.65**2 + 0.65**2) / 2
    flow = (0.3 - (0.5 - drawn(model, "flow_noise"))) ** 2
    cloned = max(-1.0, min(1.0, drawn(model, "policy_noise") + 0.3))
    distance = (0.2 - cloned) ** 2
    assert metrics["critic_loss"].item() == pytest.approx(critic, rel=1e-5)
    assert metrics["flow_loss"].item() == pytest.approx(flow, rel=1e-4)
    assert metrics["distill_loss"].item() == pytest.approx(distance, rel=1e-4)
    assert metrics["actor_loss"].item() == pytest.approx(flow + 10.0 * distance + 0.5, rel=1e-4)
    assert metrics["q_mean"].item() == pytest.approx(-0.5)
    assert loss.item() == pytest.approx(critic + flow + 10.0 * distance + 0.5, rel=1e-4)
    assert metrics_of(model, one_row(reward=0.5, terminal=1.0))["critic_loss"] == pytest.approx((4.5**2 + 2.5**2) / 2)


def test_the_smaller_target_critic_on_request():
    model = constant_model(targets=(2.0, 5.0))
    row = one_row(reward=0.0)
    assert metrics_of(model, row, gamma=0.5)["critic_loss"] == pytest.approx(1.75**2)
    assert metrics_of(model, row, gamma=0.5, q_aggregation="min")["critic_loss"] == pytest.approx(1.0)


def test_a_normalised_q_value_and_the_weight_of_the_distance():
    """-Q / |Q| is 1 for a negative Q, whatever its size; `alpha` is a member's own."""
    model = constant_model(critics=(-4.0, -2.0))
    found = metrics_of(model, one_row(), alpha=0.0, normalize_q=True)
    assert found["actor_loss"] == pytest.approx(found["flow_loss"] + 1.0, rel=1e-5)
    plain = metrics_of(model, one_row(), alpha=2.0)
    assert plain["actor_loss"] == pytest.approx(plain["flow_loss"] + 2.0 * plain["distill_loss"] + 3.0, rel=1e-5)
    members = FQL(MLPFQLModel(3, 2, hidden_sizes=(8,), seeds=(0, 0)), member_knobs=[{"alpha": 0.0}, {"alpha": 1.0}])
    batch = small_batch()
    both = members.update(type(batch)(*(v.expand(2, *v.shape[1:]) for v in fields(batch)))).metrics
    assert both["distill_loss"][0].item() == pytest.approx(both["distill_loss"][1].item())
    difference = both["actor_loss"][1] - both["actor_loss"][0]
    assert difference.item() == pytest.approx(both["distill_loss"][1].item(), rel=1e-4)


def fields(batch):
    return batch.observations, batch.actions, batch.rewards, batch.next_observations, batch.terminals


def test_the_path_from_noise_to_action():
    noise, actions = torch.tensor([[[1.0], [0.0]]]), torch.tensor([[[0.0], [0.8]]])
    points, velocity = straight_path(noise, actions, torch.tensor([[[0.25], [0.5]]]))
    assert points.flatten().tolist() == pytest.approx([0.75, 0.4])
    assert velocity.flatten().tolist() == pytest.approx([-1.0, 0.8])
    assert squared_distance(noise, actions).tolist() == pytest.approx([(1.0 + 0.64) / 2])


def linear_flow_model():
    """One relu per sign of the inputs, so that v(s, x, t) = t - x, of observations (members, batch, 2)."""
    model = MLPFQLModel(2, 1, hidden_sizes=(4,), activation="relu")
    tensors = {name: torch.zeros_like(value) for name, value in model.tensors().items()}
    for unit, (column, sign, out) in enumerate([(2, 1.0, -1.0), (2, -1.0, 1.0), (3, 1.0, 1.0), (3, -1.0, -1.0)]):
        tensors["flow/0/weight"][0, column, unit] = sign
        tensors["flow/1/weight"][0, unit, 0] = out
    model.load_tensors(tensors)
    return model


def test_euler_steps_start_at_time_zero_and_are_clipped_at_the_end():
    """From 0.8 in two steps: 0.8 + (0 - 0.8) / 2 = 0.4, 0.4 + (0.5 - 0.4) / 2 = 0.45; from 8: 4, then 2.25, clipped."""
    model = linear_flow_model()
    noise = torch.tensor([[[0.8], [8.0]]])
    found = model.flow_actions(model.frozen, torch.zeros(1, 2, 2), noise, 2)
    assert found.flatten().tolist() == pytest.approx([0.45, 1.0])


def test_the_distance_is_measured_before_the_clipping_and_the_critics_see_the_clipped_action():
    model = constant_model(action=3.0, velocity=50.0)
    assert metrics_of(model, one_row())["distill_loss"] == pytest.approx((3.0 - 1.0) ** 2)
    tensors = model.tensors()
    tensors["critic/0/weight"][:, :, -1] = 1.0  # Q(s, a) depends on a
    tensors["critic/1/weight"][:] = torch.tensor([1.0, -0.5, 0.25, 2.0]).reshape(1, 1, 4, 1)
    model.load_tensors(tensors)
    inside = model.q_values(model.frozen, torch.zeros(1, 1, 2), torch.ones(1, 1, 1)).mean().item()
    found = metrics_of(model, one_row(), alpha=0.0)
    assert found["actor_loss"] - found["flow_loss"] == pytest.approx(-inside, rel=1e-5)
    gradients = model.gradients(fql_loss(model, one_row(), alpha=0.0)[0])
    assert not gradients["actor"].any()  # nothing leads an action that is clipped


def test_each_network_is_led_by_its_own_loss():
    """The distance does not move the flow, and the policy's Q value does not move the critics."""
    model, batch = MLPFQLModel(3, 2, hidden_sizes=(8,)), small_batch()
    few, many = (model.gradients(fql_loss(model, batch, alpha=alpha)[0]) for alpha in (0.0, 100.0))
    assert torch.equal(few["flow"], many["flow"])
    assert torch.equal(few["critic"], many["critic"])
    assert not torch.equal(few["actor"], many["actor"])
    plain, normalised = (model.gradients(fql_loss(model, batch, normalize_q=on)[0]) for on in (False, True))
    assert torch.equal(plain["critic"], normalised["critic"])


def test_acting_with_noise_is_a_sample_within_the_bounds():
    model = MLPFQLModel(3, 2, hidden_sizes=(8,))
    rows, noise = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(0)), torch.full((1, 6, 2), 0.5)
    assert torch.equal(model.act(rows, noise), model.actions(model.frozen, rows, noise).clamp(-1, 1))
    assert model.act(rows, 100.0 * noise).abs().max() == 1.0


def test_a_deterministic_action_is_the_candidate_that_the_smallest_critic_prefers():
    rows = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    shape = {"hidden_sizes": (8,), "seeds": (0, 1)}
    middle = MLPFQLModel(3, 2, action_candidates=1, **shape)
    assert torch.equal(middle.act(rows), middle.actions(middle.frozen, rows, torch.zeros(2, 6, 2)).clamp(-1, 1))
    model = MLPFQLModel(3, 2, action_candidates=5, **shape)
    noise = model._candidates
    assert noise.shape == (5, 2)
    assert not noise[0].any()
    assert len({tuple(draw) for draw in noise.tolist()}) == 5
    for member in range(2):
        for number in range(6):
            state = rows[:, number : number + 1].expand(2, 5, 3)
            actions = model.actions(model.frozen, state, noise.expand(2, -1, -1)).clamp(-1, 1)
            best = model.q_values(model.frozen, state, actions)[member].min(0).values.argmax()
            assert torch.allclose(model.act(rows)[member, number], actions[member, best], atol=1e-6)


def test_published_shapes_are_the_defaults():
    model = MLPFQLModel(3, 2)
    shapes = {name: tuple(value.shape) for name, value in model.tensors().items()}
    assert (shapes["actor/0/weight"], shapes["actor/4/weight"]) == ((1, 5, 512), (1, 512, 2))
    assert (shapes["flow/0/weight"], shapes["flow/4/weight"]) == ((1, 6, 512), (1, 512, 2))
    assert shapes["critic/0/scale"] == (1, 2, 512)
    assert "actor/0/scale" not in shapes
    assert set(model.trained.groups) == {"critic", "actor"}


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"alpha": -1.0}, "`alpha` = -1.0 is not legal: must be a number >= 0.0"),
        ({"flow_steps": 0}, "`flow_steps` = 0"),
        ({"q_aggregation": "max"}, "`q_aggregation` = 'max'"),
        ({"normalize_q": 1}, "`normalize_q` = 1"),
    ],
)
def test_bad_knobs_are_refused_at_construction(knobs, words):
    with pytest.raises(ConfigError, match=words):
        FQL(MLPFQLModel(3, 1, hidden_sizes=(8,)), **knobs)


def test_contract():
    assert FQLAlgorithm is FQL
    check_learner("fql")


def test_metric_names():
    assert set(FQL.metric_names) == {"critic_loss", "actor_loss", "flow_loss", "distill_loss", "q_mean"}


def test_the_passes_of_a_step_count_the_integration():
    shapes = Shapes(3, 2, make_config(run_values("fql", algo_kwargs={"batch_size": 8, "flow_steps": 4})).algo_kwargs)
    policy, flow, critics = (5, 16, 16, 2), (6, 16, 16, 2), (5, 16, 16, 1)
    (update,) = updates_of("fql", shapes)
    assert update == (
        Pass(1, policy, 8),
        Pass(2, critics, 8),
        Pass(2, critics, 8, "weights"),
        Pass(1, flow, 8, "weights"),
        *[Pass(1, flow, 8)] * 4,
        Pass(1, policy, 8, "weights"),
        Pass(2, critics, 8, "inputs", 2),
    )
