import math

import pytest
import torch

from rl_training.errors import ConfigError
from rl_training.models import MLPIQLModel
from rl_training.models.initializers import orthogonal
from rl_training.models.layers import StackedMLP
from rl_training.models.parameters import ParameterBank, SegmentValues


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
    values = SegmentValues(columns, network.parameters.tensors(columns.detach()))
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
    model.frozen["log_std"].tensors[0].copy_(torch.tensor([[0.5, -9.0]]))  # the second is clipped to -5
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
