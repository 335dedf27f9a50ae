"""The kernel that draws random numbers against `rng.py`: on a CUDA device, or with TRITON_INTERPRET=1 on the CPU."""

import os

import pytest
import torch

from rl_training import rng
from rl_training.models.mlp.operators import triton_available

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    not triton_available() or not (INTERPRETED or torch.cuda.is_available()), reason="needs a CUDA device"
)

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
SEEDS = [0, 7, 2**31 + 5, -(2**63)]
STEPS = [0, 1, 41, 2**33]
STREAMS = ["batches", "actions", "next_actions"]  # the keys of the first and the third are negative


def pair(kind, stream, shape):
    """The kernel's numbers and those of rng.py, both (members, steps, *shape)."""
    from rl_training import rng_kernel

    seeds, steps = torch.tensor(SEEDS), torch.tensor(STEPS)
    found = rng_kernel.drawn(seeds.to(DEVICE), (kind, stream, shape), steps.to(DEVICE))
    assert found.transpose(0, 1).is_contiguous()
    return found.cpu(), kind(seeds, stream, steps, shape)


@pytest.mark.parametrize("shape", [(1,), (5,), (10, 3), (600,)], ids=str)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", [rng.bits, rng.uniforms], ids=lambda kind: kind.__name__)
def test_bits_and_uniforms_are_exactly_those_of_torch(kind, stream, shape):
    found, expected = pair(kind, stream, shape)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(1,), (10, 3), (601,)], ids=str)
@pytest.mark.parametrize("stream", STREAMS)
def test_normals_are_those_of_torch(stream, shape):
    found, expected = pair(rng.normals, stream, shape)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= 1e-6
    assert (found == expected).float().mean() > 0.95  # the same formula in float64, rounded once


def test_the_operator_has_the_shapes_that_a_compiler_expects():
    from rl_training import rng_kernel

    seeds, steps = torch.tensor([3, 4], device=DEVICE), torch.arange(3, device=DEVICE)
    for kind in ("bits", "uniforms", "normals"):
        utils = ("test_schema", "test_faketensor")
        found = torch.library.opcheck(rng_kernel.draw, (seeds, steps, kind, -5, 7), test_utils=utils)
        assert found == dict.fromkeys(utils, "SUCCESS")


def test_a_compiler_takes_a_draw_as_one_operator():
    from rl_training import rng_kernel

    seeds, targets = torch.tensor([3, 4], device=DEVICE), []

    def rows(steps):
        return rng.bounded(rng_kernel.drawn(seeds, (rng.bits, "batches", (7,)), steps), 1000, 1)

    def keep(module, _inputs):
        targets.extend(str(node.target) for node in module.graph.nodes)
        return module

    steps = torch.arange(5, 9, device=DEVICE)
    found = torch.compile(rows, backend=keep, fullgraph=True, dynamic=False)(steps)
    assert torch.equal(found.cpu(), rng.integers([3, 4], "batches", steps.cpu(), (7,), high=1000))
    assert targets.count("rl_training.draw.default") == 1
