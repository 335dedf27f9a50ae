"""The rounded copy of a model's parameters: when it is made again, and when it is known to be current."""

import pytest
import torch

from rl_training.models import MLPIQLModel
from rl_training.models.mlp.rounded_weights import RoundedWeights


@pytest.fixture
def model():
    return MLPIQLModel(3, 2, hidden_sizes=(16, 16), seeds=(0, 1))


def is_current(rounded, model):
    sources = (model.trained.flat, model.targets.flat)
    return all(torch.equal(copy, source.bfloat16()) for copy, source in zip(rounded.buffers, sources, strict=True))


def test_only_bf16_has_a_copy(model):
    assert RoundedWeights(model, "tf32").buffers == ()
    assert RoundedWeights(model, "float32").buffers == ()
    assert not is_current(RoundedWeights(model, "bf16"), model)


CHANGES = [lambda m: m.trained.flat.mul_(2.0), lambda m: m.load_tensors(m.tensors()), lambda m: m.update_targets(0.5)]


@pytest.mark.parametrize("change", CHANGES)
def test_what_torch_writes_is_rounded_again(model, change):
    rounded = RoundedWeights(model, "bf16")
    rounded.refresh()
    assert is_current(rounded, model)
    model.trained.views(model.trained.flat)["critic/1/weight"].add_(1.0)
    change(model)
    rounded.refresh()
    assert is_current(rounded, model)


def test_nothing_is_rounded_again_after_kernel_steps(model):
    """A kernel writes both, which torch does not notice; a second copy of the same model has to be made again."""
    rounded, other = RoundedWeights(model, "bf16"), RoundedWeights(model, "bf16")
    rounded.refresh()
    other.refresh()
    rounded.buffers[0].fill_(7.0)  # stands for what a kernel wrote
    rounded.stepped()
    rounded.refresh()
    assert bool((rounded.buffers[0] == 7.0).all())
    other.buffers[0].zero_()
    other.refresh()
    assert is_current(other, model)
