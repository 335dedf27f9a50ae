import pytest
import torch

from rl_training.models.adam import GroupedAdam, GroupOptions
from rl_training.models.initializers import zeros
from rl_training.models.mlp.network import StackedMLP
from rl_training.models.parameters import ParameterBank, ParameterSpec, Segment


def make(members=2, **options):
    segments = [Segment(name, name, (ParameterSpec(f"{name}/weight", (3, 2), zeros, decays=True),)) for name in ("a", "b")]
    bank = ParameterBank(segments, members, torch.device("cpu"))
    bank.flat.copy_(torch.linspace(-1, 1, bank.flat.numel()).reshape(bank.flat.shape))
    return bank, GroupedAdam(bank, {"a": GroupOptions(0.1, **options), "b": GroupOptions(0.01, **options)})


def slopes(bank, step):
    size = bank.segments[0].size
    base = torch.linspace(-1, 2, bank.members * size).reshape(bank.members, size)
    padding = torch.arange(size) < 6  # a gradient never reaches the padding
    return {"a": base * (step + 1) * padding, "b": (base.flip(1) - step) * padding}


def stepped(adam, gradients, way, rates):
    """One step of every group, fused as on the CPU or elementwise as on a GPU."""
    if way == "fused":
        adam.step(gradients, tuple(rates), rates)
        return
    for name, factor in rates.items():
        rate = adam.options[name].learning_rate * factor
        adam.counts[name].add_(1.0)
        adam.decay(name, rate)
        parts = [gradients[segment.name] for segment in adam.bank.segments if segment.group == name]
        adam.elementwise_step(name, torch.cat(parts, dim=1), rate)


@pytest.mark.parametrize("way", ["fused", "elementwise"])
def test_equals_torch_adam(way):
    bank, adam = make()
    reference = {name: bank.flat[:, bank.groups[name]].clone().requires_grad_() for name in ("a", "b")}
    torches = {"a": torch.optim.Adam([reference["a"]], lr=0.1), "b": torch.optim.Adam([reference["b"]], lr=0.01)}
    for step in range(20):
        gradients = slopes(bank, step)
        stepped(adam, gradients, way, {"a": 1.0, "b": 0.5})
        for name, optimizer in torches.items():
            optimizer.param_groups[0]["lr"] = 0.1 if name == "a" else 0.005
            reference[name].grad = gradients[name]
            optimizer.step()
    for name, value in reference.items():
        assert torch.allclose(bank.flat[:, bank.groups[name]], value, rtol=1e-5, atol=1e-6)


DECAYS = {"alone": 0.3, "swept": torch.tensor([[0.3], [0.0]], dtype=torch.float64)}


def drawn(bank, generator):
    """A buffer of random numbers with zero padding."""
    flat = bank.new_buffer()
    for view in bank.views(flat).values():
        view.copy_(torch.randn(view.shape, generator=generator))
    return flat


@pytest.mark.parametrize("way", ["fused", "elementwise"])
@pytest.mark.parametrize("decay", DECAYS)
def test_weights_decay_as_in_adamw_and_nothing_else_does(decay, way):
    network = StackedMLP("critic", "critic", 3, (4, 4), 1, 2, norm="before")
    log_std = Segment("log_std", "critic", (ParameterSpec("log_std/bias", (2,), zeros),))
    bank = ParameterBank([network.parameters, log_std], 2, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    bank.flat.copy_(drawn(bank, generator))
    adam = GroupedAdam(bank, {"critic": GroupOptions(0.1, weight_decay=DECAYS[decay])})
    decays = torch.as_tensor(DECAYS[decay]).expand(2, 1)[:, 0].tolist()
    reference = []
    for name, view in bank.views(bank.flat).items():
        for member, own in enumerate(decays):
            value = view[member].clone().requires_grad_()
            rest = {"lr": 0.05, "weight_decay": own if name.endswith("weight") else 0.0}
            reference.append((name, member, value, torch.optim.AdamW([value], **rest)))
    for _ in range(10):
        slope, size = drawn(bank, generator), network.parameters.size
        stepped(adam, {"critic": slope[:, :size], "log_std": slope[:, size:]}, way, {"critic": 0.5})
        for name, member, value, optimizer in reference:
            value.grad = bank.views(slope)[name][member]
            optimizer.step()
    for name, member, value, _ in reference:
        assert torch.allclose(bank.views(bank.flat)[name][member], value, rtol=1e-5, atol=1e-6), name


def test_changed_options_apply_from_the_next_step_on():
    bank, adam = make()
    assert adam.weight_decays.tolist() == [[0.0, 0.0]] * 2
    before = bank.flat.clone()
    adam.change_options({**adam.options, "a": GroupOptions(0.1, weight_decay=2.0)})
    assert adam.weight_decays.tolist() == [[2.0, 0.0]] * 2
    still = {name: torch.zeros(2, bank.segments[0].size) for name in ("a", "b")}
    adam.step(still, ("a", "b"), {"a": 0.5, "b": 1.0})
    size = 6  # without padding
    for name, share in (("a", 0.9), ("b", 1.0)):  # 1 - 0.5 * 0.1 * 2
        start = bank.offsets[name]
        assert torch.allclose(bank.flat[:, start : start + size], share * before[:, start : start + size])


def test_group_that_is_not_due_is_untouched():
    bank, adam = make()
    adam.step(slopes(bank, 0), ("a", "b"), {"a": 1.0, "b": 1.0})
    before = [buffer[:, bank.groups["b"]].clone() for buffer in (bank.flat, adam.first, adam.second)]
    adam.step(slopes(bank, 1), ("a",), {"a": 1.0})
    after = [buffer[:, bank.groups["b"]] for buffer in (bank.flat, adam.first, adam.second)]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert adam.counts["a"].tolist() == [[2.0], [2.0]]
    assert adam.counts["b"].tolist() == [[1.0], [1.0]]


def test_clipping_is_per_member_and_group():
    bank, adam = make(max_grad_norm=1.0)
    gradients = {name: torch.ones(2, bank.segments[0].size) * torch.tensor([[10.0], [0.01]]) for name in ("a", "b")}
    adam.step(adam.clipped(gradients, ("a", "b")), ("a", "b"), {"a": 1.0, "b": 1.0})
    norms = adam.first[:, bank.groups["a"]].norm(dim=1) / 0.1
    assert norms[0] == pytest.approx(1.0, rel=1e-4)
    assert norms[1] == pytest.approx(0.01 * bank.segments[0].size ** 0.5, rel=1e-4)


def test_state_round_trip():
    bank, adam = make()
    adam.step(slopes(bank, 0), ("a", "b"), {"a": 1.0, "b": 1.0})
    saved = adam.tensors()
    other_bank, other = make()
    other.load_tensors(saved)
    assert torch.equal(adam.first, other.first)
    assert torch.equal(adam.second, other.second)
    assert saved["adam/count/a"].tolist() == [1, 1]
    assert other.counts["a"].tolist() == [[1.0], [1.0]]
    assert other_bank.flat is not bank.flat
