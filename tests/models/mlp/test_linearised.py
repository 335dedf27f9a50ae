"""Gradients of critics at their actions, and their own gradients, against autograd on networks written out."""

import pytest
import torch

from rl_training.models import MLPSACModel
from tests.helpers import small_batch


def written_out(model, tensors, member, critic, inputs, activation, norm):
    """One critic as plain operations on its named parameters."""
    hidden = inputs
    for layer in (0, 1):
        hidden = hidden @ tensors[f"critic/{layer}/weight"][member, critic] + tensors[f"critic/{layer}/bias"][member, critic]
        if norm:
            hidden = torch.nn.functional.layer_norm(hidden, hidden.shape[-1:])
        hidden = activation(hidden)
    return (hidden @ tensors["critic/2/weight"][member, critic] + tensors["critic/2/bias"][member, critic]).squeeze(-1)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize(
    ("shape", "activation"),
    [({}, torch.relu), ({"activation": "tanh"}, torch.tanh), ({"critic_layer_norm": True}, torch.relu)],
    ids=["relu", "tanh", "layer norm"],
)
def test_values_gradients_and_their_gradients_are_autograd_s(shape, activation, members):
    model = MLPSACModel(3, 2, seeds=range(members), hidden_sizes=(16, 8), num_critics=3, **shape)
    batch = small_batch(members=members)
    q, slopes = model.q_values_and_gradients(model.online, batch.observations, batch.actions)
    assert torch.equal(q, model.q_values(model.frozen, batch.observations, batch.actions))
    mixed = torch.linspace(-1.0, 1.0, slopes.numel()).view_as(slopes)
    found = model.gradients((q.square().sum() + (slopes * mixed).square().sum()), ["critic"])["critic"]
    named = dict(
        zip([spec.name for spec in model._critic.parameters.specs], model._critic.parameters.tensors(found), strict=True)
    )

    tensors = {name: value.requires_grad_() for name, value in model.tensors().items() if name.startswith("critic/")}
    total = torch.zeros(())
    for member in range(members):
        for critic in range(3):
            actions = batch.actions[member].clone().requires_grad_()
            inputs = torch.cat((batch.observations[member], actions), dim=-1)
            own = written_out(model, tensors, member, critic, inputs, activation, "critic_layer_norm" in shape)
            (slope,) = torch.autograd.grad(own.sum(), actions, create_graph=True)
            assert torch.allclose(q[member, critic], own, atol=1e-5)
            assert torch.allclose(slopes[member, critic], slope, atol=1e-5)
            total = total + own.square().sum() + (slope * mixed[member, critic]).square().sum()
    expected = dict(zip(tensors, torch.autograd.grad(total, list(tensors.values()), allow_unused=True), strict=True))
    for name in ("critic/0/weight", "critic/0/bias", "critic/1/weight", "critic/1/bias", "critic/2/weight", "critic/2/bias"):
        assert torch.allclose(named[name], expected[name], rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("shape", [{}, {"activation": "silu"}], ids=["relu", "silu"])
def test_without_gradients_nothing_is_recorded(shape):
    model, batch = MLPSACModel(3, 2, hidden_sizes=(8,), **shape), small_batch()
    with torch.no_grad():
        q, slopes = model.q_values_and_gradients(model.online, batch.observations, batch.actions)
    assert not q.requires_grad
    assert not slopes.requires_grad
    trained = model.q_values_and_gradients(model.online, batch.observations, batch.actions)
    assert all(torch.allclose(value, other, atol=1e-6) for value, other in zip((q, slopes), trained, strict=True))
