import math
from dataclasses import replace

import pytest
import torch

from rl_training.errors import ConfigError
from rl_training.models import MLPIQLModel, MLPSACModel, MLPTD3Model
from rl_training.models.initializers import orthogonal
from rl_training.models.mlp import operators
from rl_training.models.mlp.layout import MLPLayout
from rl_training.models.mlp.network import StackedMLP
from rl_training.models.parameters import Dropper, ParameterBank, SegmentValues
from rl_training.models.sac import TanhGaussian
from rl_training.rng import Draws

ACTIVATIONS = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "silu": lambda x: x / (1.0 + torch.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
}


def plain_forward(network, columns, inputs):
    """The network written with autograd's own operations."""
    specs = network.parameters.specs
    values = dict(zip([spec.name for spec in specs], network.parameters.tensors(columns), strict=True))
    hidden = inputs if network.ensemble is None else inputs.unsqueeze(1)
    for layer in range(len(network.hidden_sizes) + 1):
        name = f"{network.name}/{layer}"
        hidden = hidden @ values[f"{name}/weight"] + values[f"{name}/bias"].unsqueeze(-2)
        if layer < len(network.hidden_sizes):
            hidden = ACTIVATIONS[network.activation](hidden) if network.norm == "after" else hidden
            if network.norm != "none":
                hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:])
                hidden = hidden * values[f"{name}/scale"].unsqueeze(-2) + values[f"{name}/offset"].unsqueeze(-2)
            hidden = hidden if network.norm == "after" else ACTIVATIONS[network.activation](hidden)
    return hidden


@pytest.mark.parametrize("ensemble", [None, 2])
@pytest.mark.parametrize("norm", ["none", "before", "after"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("plainly", [False, True])
def test_hand_written_gradients_equal_autograd(ensemble, norm, activation, members, plainly, monkeypatch):
    monkeypatch.setattr(operators, "recorded_plainly", lambda _device: plainly)
    network = StackedMLP("net", "net", 5, (8, 9), 2, ensemble, norm, activation, initialization="uniform")
    assert MLPLayout.decode(network.layout.encode()) == [network.layout]
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


def test_dropout_scales_the_kept_units_and_is_off_outside_a_loss():
    """With all hidden units at 1 and last weights of 1, the output is the number of kept units times 1 / (1 - p)."""
    network = StackedMLP("net", "net", 2, (1000,), 1, 2, dropout=0.25, scalar=True)
    bank = ParameterBank([network.parameters], 1, torch.device("cpu"))
    views = bank.views(bank.flat)
    views["net/0/bias"].fill_(1.0)
    views["net/1/weight"].fill_(1.0)
    trained = bank.values(bank.flat, trainable=True)["net"]
    inputs, draws = torch.zeros(1, 3, 2), Draws.of_steps(torch.tensor([0]), 5)
    dropped = network(replace(trained, dropper=Dropper(draws)), inputs)
    kept = dropped * 0.75
    assert torch.allclose(kept, kept.round(), atol=1e-2)
    assert kept.unique().numel() > 1
    assert (kept / 1000.0 - 0.75).abs().max() < 0.08
    again = network(replace(trained, dropper=Dropper(draws)), inputs)
    assert torch.equal(dropped, again)
    assert network(trained, inputs).unique().tolist() == [1000.0]
    with torch.no_grad():
        assert network(replace(trained, dropper=Dropper(draws)), inputs).unique().tolist() == [1000.0]


def test_two_calls_in_a_step_drop_different_units():
    dropper = Dropper(Draws.of_steps(torch.tensor([0, 1]), 0))
    first, second = dropper("net", (1, 4, 50), 0.5), dropper("net", (1, 4, 50), 0.5)
    assert first.unique().tolist() == [0.0, 2.0]
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_policy_and_critics_may_have_their_own_shapes():
    model = MLPIQLModel(3, 2, hidden_sizes=(8, 8), actor_hidden_sizes=(4,), critic_hidden_sizes=(16, 16, 16))
    shapes = {name: tuple(value.shape) for name, value in model.tensors().items()}
    assert shapes["actor/1/weight"] == (1, 4, 2)
    assert shapes["critic/2/weight"] == (1, 2, 16, 16)
    assert shapes["value/3/weight"] == (1, 16, 1)


def test_edac_initialization_has_small_last_layers():
    tensors = MLPSACModel(3, 2, hidden_sizes=(64, 64), initialization="edac").tensors()
    assert tensors["critic/1/bias"].unique().tolist() == [pytest.approx(0.1)]
    assert 2e-3 < tensors["critic/2/weight"].abs().max() <= 3e-3
    assert 5e-4 < tensors["actor/2/weight"].abs().max() <= 1e-3
    assert 0 < tensors["actor/2/bias"].abs().max() <= 1e-3
    with pytest.raises(ConfigError, match="`last_layer_gain` has no effect with `initialization: edac`"):
        MLPSACModel(3, 2, initialization="edac", last_layer_gain=0.1)


def test_corl_initialization_differs_in_the_first_layer_of_an_ensemble():
    """Its weights are (inputs, outputs), and are bounded by the root of what torch takes for the inputs of such a shape."""
    edac, corl = (MLPSACModel(3, 2, hidden_sizes=(64, 64), initialization=kind).tensors() for kind in ("edac", "corl"))
    assert [name for name in edac if not torch.equal(edac[name], corl[name])] == [
        "critic/0/weight",
        "target/critic/0/weight",
    ]
    assert 0.9 / math.sqrt(5) < edac["critic/0/weight"].abs().max() <= 1 / math.sqrt(5)
    assert torch.allclose(corl["critic/0/weight"], edac["critic/0/weight"] * math.sqrt(5 / 64))


def test_the_gain_of_the_last_layer_leaves_the_others_alone():
    usual = MLPSACModel(3, 2, hidden_sizes=(8, 8), initialization="orthogonal").tensors()
    small = MLPSACModel(3, 2, hidden_sizes=(8, 8), initialization="orthogonal", last_layer_gain=1e-2).tensors()
    for name in usual:
        factor = 1e-2 / math.sqrt(2.0) if name.endswith("/2/weight") else 1.0
        assert torch.allclose(small[name], usual[name] * factor, rtol=1e-5), name


def test_a_linear_mean_is_clipped_when_it_acts():
    model = MLPIQLModel(3, 1, hidden_sizes=(8,), policy_mean="linear")
    tensors = model.tensors()
    tensors["actor/1/bias"] = torch.tensor([[3.0]])
    tensors["actor/1/weight"].zero_()
    model.load_tensors(tensors)
    assert model.mean_actions(model.frozen, torch.zeros(1, 2, 3)).unique().tolist() == [3.0]
    assert model.act(torch.zeros(1, 2, 3)).unique().tolist() == [1.0]


def test_a_deterministic_policy_has_no_standard_deviation_and_ignores_noise():
    model = MLPIQLModel(3, 2, hidden_sizes=(8,), policy="deterministic")
    assert "actor/log_std" not in model.tensors()
    rows = torch.ones(1, 4, 3)
    assert torch.equal(model.act(rows), model.act(rows, torch.ones(1, 4, 2)))


def test_the_offset_shifts_the_log_std_before_it_is_clipped():
    plain, shifted = (MLPSACModel(3, 2, hidden_sizes=(8,), log_std_offset=offset) for offset in (0.0, -1.0))
    rows = torch.ones(1, 4, 3)
    expected = plain.policy(plain.frozen, rows).log_std - 1.0
    assert torch.allclose(shifted.policy(shifted.frozen, rows).log_std, expected)
    narrow = MLPSACModel(3, 2, hidden_sizes=(8,), log_std_offset=-9.0, log_std_range=(-5.0, 2.0))
    assert narrow.policy(narrow.frozen, rows).log_std.unique().tolist() == [-5.0]
    with pytest.raises(ConfigError, match=r"`log_std_range` = \(2.0, -5.0\) is not legal: must be \[lowest, highest\]"):
        MLPSACModel(3, 2, log_std_range=(2.0, -5.0))


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
