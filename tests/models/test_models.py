import math

import pytest
import torch

from rl_training.errors import ConfigError
from rl_training.models import MLPIQLModel, MLPSACModel, MLPTD3Model
from rl_training.models.initializers import orthogonal
from rl_training.models.mlp.network import StackedMLP
from rl_training.models.parameters import ParameterBank, SegmentValues
from rl_training.models.sac import TanhGaussian


def plain_forward(network, columns, inputs):
    """The network written with autograd's own operations."""
    specs = network.parameters.specs
    values = dict(zip([spec.name for spec in specs], network.parameters.tensors(columns), strict=True))
    hidden = inputs if network.ensemble is None else inputs.unsqueeze(1)
    for layer in range(len(network.hidden_sizes) + 1):
        name = f"{network.name}/{layer}"
        hidden = hidden @ values[f"{name}/weight"] + values[f"{name}/bias"].unsqueeze(-2)
        if layer < len(network.hidden_sizes):
            if network.layer_norm:
                hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:])
                hidden = hidden * values[f"{name}/scale"].unsqueeze(-2) + values[f"{name}/offset"].unsqueeze(-2)
            hidden = hidden.relu()
    return hidden


@pytest.mark.parametrize("ensemble", [None, 2])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("members", [1, 3])
def test_hand_written_gradients_equal_autograd(ensemble, layer_norm, members):
    network = StackedMLP("net", "net", 5, (8, 9), 2, ensemble, layer_norm, "uniform")
    bank = ParameterBank([network.parameters], members, torch.device("cpu"))
    bank.initialize(range(members))
    columns = (bank.flat + 0.01).double().requires_grad_()
    values = SegmentValues(columns)
    inputs = torch.linspace(-2, 2, members * 7 * 5, dtype=torch.float64).reshape(members, 7, 5).requires_grad_()
    ours, plain = network(values, inputs), plain_forward(network, columns, inputs)
    assert torch.allclose(ours, plain, atol=1e-12)
    weights = torch.linspace(-1, 1, plain.numel(), dtype=torch.float64).reshape(plain.shape)
    got = torch.autograd.grad((ours * weights).sum(), [columns, inputs])
    expected = torch.autograd.grad((plain * weights).sum(), [columns, inputs])
    for left, right in zip(got, expected, strict=True):
        assert torch.allclose(left, right, atol=1e-12)


def test_frozen_parameters_take_no_gradient_but_pass_it_on():
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8))
    actions = torch.zeros(1, 4, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.q_values(model.frozen, torch.ones(1, 4, 3), actions).sum(), [actions])
    assert gradient.abs().sum() > 0
    assert not model.frozen["critic"].columns.requires_grad


def test_members_start_like_solo_models_and_groups_are_contiguous():
    population = MLPIQLModel(3, 2, hidden_sizes=(8, 8), seeds=(5, 6))
    for index, seed in enumerate((5, 6)):
        solo = MLPIQLModel(3, 2, hidden_sizes=(8, 8), seeds=(seed,))
        assert torch.equal(population.trained.flat[index], solo.trained.flat[0])
        assert torch.equal(population.targets.flat[index], solo.targets.flat[0])
    assert [*population.trained.groups] == ["critic", "value", "actor"]
    assert population.trained.groups["actor"].stop == population.trained.size
    weights = population.tensors()
    assert weights["critic/0/weight"].shape == (2, 2, 5, 8)
    assert not torch.equal(weights["critic/0/weight"][0, 0], weights["critic/0/weight"][0, 1])


def test_orthogonal_initialization():
    for shape in ((2, 6, 4), (2, 4, 6)):
        matrices = orthogonal(math.sqrt(2.0))(shape, 0, "x")
        tall = matrices if shape[1] >= shape[2] else matrices.transpose(1, 2)
        assert torch.allclose(tall.transpose(1, 2) @ tall, 2.0 * torch.eye(4).expand(2, 4, 4), atol=1e-5)


@pytest.mark.parametrize("kind", ["xavier", "uniform"])
def test_uniform_initializations_stay_in_their_bound(kind):
    weights = MLPIQLModel(3, 2, hidden_sizes=(32, 32), initialization=kind).tensors()["value/1/weight"]
    bound = {"xavier": math.sqrt(6 / 64), "uniform": 1 / math.sqrt(32)}[kind]
    assert 0.9 * bound < weights.abs().max() <= bound


def test_iql_model_gives_twin_q_value_and_bounded_actions():
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8), seeds=(0, 1))
    observations = torch.linspace(-3, 3, 2 * 5 * 3).reshape(2, 5, 3)
    assert model.q_values(model.online, observations, torch.zeros(2, 5, 2)).shape == (2, 2, 5)
    assert model.values(model.online, observations).shape == (2, 5)
    for noise in (None, torch.full((2, 5, 2), 9.0)):
        actions = model.act(observations, noise)
        assert actions.shape == (2, 5, 2)
        assert actions.abs().max() <= 1.0


def test_a_single_action_keeps_its_axis():
    model = MLPIQLModel(3, 1, hidden_sizes=(8, 8))
    assert model.act(torch.zeros(1, 5, 3)).shape == (1, 5, 1)
    assert model.log_prob(model.online, torch.zeros(1, 5, 3), torch.zeros(1, 5, 1)).shape == (1, 5)


def test_log_prob_is_that_of_a_plain_gaussian_with_tanh_mean():
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8))
    model.frozen["log_std"].columns[:, :2].copy_(torch.tensor([[0.5, -9.0]]))  # the second is clipped to -5
    observations, actions = torch.ones(1, 1, 3), torch.tensor([[[0.3, -0.2]]])
    mean = model.mean_actions(model.frozen, observations)
    normal = torch.distributions.Normal(mean, torch.tensor([0.5, -5.0]).exp())
    expected = normal.log_prob(actions).sum(-1)
    assert torch.allclose(model.log_prob(model.frozen, observations, actions), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("num_critics", 0), ("hidden_sizes", ()), ("hidden_sizes", (0,)), ("initialization", "x")]
)
def test_bad_shapes_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        MLPIQLModel(3, 2, **{name: value})


def test_the_tanh_gaussian_s_density_is_exact():
    draw = torch.Generator().manual_seed(0)
    mean, noise = (torch.randn(2, 50, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    log_std = torch.randn(2, 50, 3, generator=draw, dtype=torch.float64) * 0.5
    actions, log_prob = TanhGaussian(mean, log_std).sample(noise)
    normal = torch.distributions.Normal(mean, log_std.exp())
    known = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform()).log_prob(actions)
    assert torch.allclose(log_prob, known.sum(-1), atol=1e-8)
    assert torch.equal(TanhGaussian(mean, log_std).mode(), mean.tanh())


def test_the_tanh_gaussian_s_gradient_is_exact():
    draw = torch.Generator().manual_seed(1)
    mean, log_std, noise = (torch.randn(2, 5, 3, generator=draw, dtype=torch.float64) * 0.5 for _ in range(3))
    mean.requires_grad_(True)
    log_std.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda m, s: TanhGaussian(m, s).sample(noise), (mean, log_std))
    several = torch.stack([noise, -noise, 2 * noise], dim=1)
    assert torch.autograd.gradcheck(lambda m, s: TanhGaussian(m, s).sample(several), (mean, log_std))


def test_the_tanh_gaussian_stays_finite_far_out():
    mean = torch.tensor([[[-60.0], [60.0], [0.0]]], requires_grad=True)
    log_std = torch.tensor([[[2.0], [2.0], [-20.0]]], requires_grad=True)
    actions, log_prob = TanhGaussian(mean, log_std).sample(torch.tensor([[[-4.0], [4.0], [1.0]]]))
    assert actions.abs().max() <= 1.0
    (actions.sum() + log_prob.sum()).backward()
    for value in (log_prob, mean.grad, log_std.grad):
        assert torch.isfinite(value).all()


@pytest.mark.parametrize(("critics", "layer_norm"), [(1, False), (2, True), (5, True)])
def test_sac_model_with_any_number_of_critics(critics, layer_norm):
    model = MLPSACModel(3, 2, hidden_sizes=[8, 8], num_critics=critics, critic_layer_norm=layer_norm, seeds=(0, 1))
    observations, actions = torch.linspace(-2, 2, 24).view(2, 4, 3), torch.linspace(-1, 1, 96).view(2, 6, 4, 2)
    many = model.q_values(model.online, observations, actions)
    assert many.shape == (2, critics, 6, 4)
    for sample in range(6):
        one = model.q_values(model.online, observations, actions[:, sample])
        assert torch.allclose(many[:, :, sample], one, atol=1e-6)
    assert ("critic/0/scale" in model.tensors()) == layer_norm
    assert "actor/0/scale" not in model.tensors()
    policy = model.policy(model.online, observations * 1e4)
    assert policy.log_std.min() >= -20.0
    assert policy.log_std.max() <= 2.0
    assert model.act(observations).abs().max() < 1.0


def test_the_first_critic_alone_is_the_first_of_the_ensemble():
    model = MLPTD3Model(3, 2, hidden_sizes=(8, 8), seeds=(0, 1))
    observations, actions = torch.linspace(-2, 2, 24).view(2, 4, 3), torch.linspace(-1, 1, 16).view(2, 4, 2)
    whole = model.q_values(model.frozen, observations, actions)
    assert torch.allclose(model.frozen_first_q(observations, actions), whole[:, 0], atol=1e-6)
    model.trained.flat.mul_(0.5)  # a view, not a copy: it follows the parameters
    after = model.q_values(model.frozen, observations, actions)
    assert torch.allclose(model.frozen_first_q(observations, actions), after[:, 0], atol=1e-6)


@pytest.mark.parametrize("model", [MLPIQLModel, MLPSACModel, MLPTD3Model])
def test_wrong_sizes_and_unknown_shapes_are_refused(model):
    with pytest.raises(ConfigError, match=r"unknown key `hidden`. Did you mean `hidden_sizes`"):
        model(3, 1, hidden=[8])
    with pytest.raises(ConfigError, match="observation_dim 0"):
        model(0, 1)
