import numpy as np
import pytest
import torch
from scipy import stats

from rl_training import rng


def signed(value):
    return torch.tensor(value - (1 << 64) if value >> 63 else value, dtype=torch.int64)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123's known-answer vectors for threefry2x64 with 20 rounds
        ((0, 0), (0, 0), (0xC2B6E3A8C2C69865, 0x6F81ED42F350084D)),
        ((2**64 - 1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (0xE02CB7C4D95D277A, 0xD06633D0893B8B68)),
        (
            (0x243F6A8885A308D3, 0x13198A2E03707344),
            (0xA4093822299F31D0, 0x082EFA98EC4E6C89),
            (0x263C7D30BB0F0AF1, 0x56BE8361D3311526),
        ),
    ],
)
def test_known_answers(counter, key, expected):
    words = rng.threefry2x64(tuple(map(signed, key)), tuple(map(signed, counter)))
    assert tuple(int(word) % 2**64 for word in words) == expected


def test_draws_are_functions_of_seed_stream_and_step():
    first = rng.integers([3, 4], "batches", torch.arange(7), (5,), high=1000)
    assert first.shape == (2, 7, 5)
    for step in range(7):
        assert torch.equal(first[:, step], rng.integers([3, 4], "batches", step, (5,), high=1000))
    assert torch.equal(first[1:], rng.integers([4], "batches", torch.arange(7), (5,), high=1000))
    assert torch.equal(first[:, 2:5], rng.integers([3, 4], "batches", torch.arange(2, 5), (5,), high=1000))


def test_longer_draw_begins_with_the_shorter():
    assert torch.equal(rng.bits([1], "s", 0, (4,)), rng.bits([1], "s", 0, (7,))[:, :4])


@pytest.mark.parametrize("high", [1, 2, 7, 1000, 2**31 + 11, 3 * 2**30, 2**62 + 1])
def test_integers_are_exactly_the_scaled_words(high):
    words = rng.bits([9], "s", 0, (500,))[0].tolist()
    values = rng.integers([9], "s", 0, (500,), high=high)[0].tolist()
    assert values == [(word % 2**64) * high >> 64 for word in words]


@pytest.mark.parametrize("high", [10, 100, 3 * 2**30])
def test_integers_are_uniform(high):
    values = rng.integers([0], "uniformity", torch.arange(1000), (1000,), high=high).numpy().reshape(-1)
    assert values.min() >= 0
    assert values.max() < high
    bins = values if high <= 100 else values * 96 // high
    assert stats.chisquare(np.bincount(bins)).pvalue > 1e-4


def test_uniforms_and_normals_have_their_distribution():
    uniform = rng.uniforms([0], "u", torch.arange(100), (1000,)).numpy().reshape(-1)
    normal = rng.normals([0], "n", torch.arange(100), (1000,)).numpy().reshape(-1)
    assert uniform.min() >= 0.0
    assert uniform.max() < 1.0
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    assert stats.kstest(normal, "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (([0], "a", 0), ([1], "a", 0)),
        (([0], "a", 0), ([0], "b", 0)),
        (([0], "a", 0), ([0], "a", 1)),
        (([0], "a", 5), ([5], "a", 0)),
    ],
)
def test_neighbouring_streams_are_independent(first, second):
    x = rng.uniforms(*first, (100_000,)).numpy()[0]
    y = rng.uniforms(*second, (100_000,)).numpy()[0]
    assert abs(stats.pearsonr(x, y).statistic) < 0.015
    table, _, _ = np.histogram2d(x, y, bins=8)
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_bound_may_grow_with_the_step():
    high = torch.tensor([1, 2, 50])
    values = rng.integers([0, 1], "replay", torch.arange(3), (200,), high=high)
    assert (values < high[None, :, None]).all()
    assert values[:, 2].max() > 30
    per_member = rng.integers([0, 1], "replay", 0, (200,), high=torch.tensor([3, 40]))
    assert per_member[0].max() < 3
    assert per_member[1].max() > 20


def test_draws_trace_into_one_graph():
    public = torch.compiler.assume_constant_result(lambda _name: 0)
    assert vars(rng.stream_key) == vars(public)  # the same mark, made without importing the compiler

    seeds = torch.tensor([3, 5])

    def draw(step):
        integers = rng.integers(seeds, "batches", step, (16,), high=999)
        return integers, rng.uniforms(seeds, "u", step, (3,)), rng.normals(seeds, "n", step, (3,))

    step = torch.arange(4)
    for got, wanted in zip(torch.compile(draw, backend="aot_eager", fullgraph=True)(step), draw(step), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_draws_the_same():
    cuda, steps = torch.device("cuda"), torch.arange(20)
    for function, options in ((rng.integers, {"high": 3 * 2**30}), (rng.uniforms, {})):
        here = function([0, 7], "s", steps, (33,), **options)
        assert torch.equal(here, function([0, 7], "s", steps.cuda(), (33,), device=cuda, **options).cpu())
    difference = rng.normals([0], "s", steps, (33,)) - rng.normals([0], "s", steps.cuda(), (33,), device=cuda).cpu()
    assert difference.abs().max() < 1e-6


def test_draws_do_not_depend_on_the_chunk():
    seeds = torch.tensor([3, 9])
    chunk = rng.Draws.of_steps(seeds, 40, 6)
    for offset in (0, 3, 5):
        alone = rng.Draws.of_steps(seeds, 40 + offset)
        assert torch.equal(chunk.at(offset).normals("n", (7, 2)), alone.normals("n", (7, 2)))
        assert torch.equal(chunk.at(offset).uniforms("u", (5,)), alone.uniforms("u", (5,)))
        assert torch.equal(alone.normals("n", (7, 2)), rng.normals(seeds, "n", 40 + offset, (7, 2)))


def test_draws_made_ahead_are_those_of_each_step(monkeypatch):
    seeds, drawn = torch.tensor([3, 8]), []

    def counted(seeds, stream, steps, shape):
        drawn.append((int(steps[0]), len(steps)))
        return rng.normals(seeds, stream, steps, shape)

    ahead = rng.DrawnAhead(seeds)
    for first, count in ((0, 1), (1, 1), (80, 20), (98, 4), (5, 3)):
        steps = torch.arange(first, first + count)
        assert torch.equal(ahead((counted, "noise", (3,)), steps), rng.normals(seeds, "noise", steps, (3,)))
    assert drawn == [(0, 100), (98, 100), (5, 100)]
    monkeypatch.setattr(rng.DrawnAhead, "NUMBERS", 12)
    ahead((counted, "other", (3,)), torch.arange(7, 8))
    assert drawn[-1] == (7, 2)  # two steps of three numbers for two members
