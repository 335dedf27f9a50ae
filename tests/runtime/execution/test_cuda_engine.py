"""Compiled steps on a CUDA device: kernels against torch's products, graphs against their function, exact resume."""

import pytest
import torch

from rl_training import registry
from rl_training.bench.measure import bench_steps, synthetic
from rl_training.config.loading import make_config
from rl_training.data.processing import process_dataset
from rl_training.data.row_view import RowView
from rl_training.envs.recipes import make_dataset
from rl_training.models.mlp import operators as mlp_ops
from rl_training.models.mlp.network import StackedMLP
from rl_training.rng import bits, normals, uniforms
from rl_training.runtime.execution.compiled import _drawing
from rl_training.runtime.execution.mode import applied
from tests.helpers import Cut, CutAt, assert_same_run, tiny_run
from tests.models.mlp import operators_on_the_cpu  # noqa: F401 - registers them

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CUDA = torch.device("cuda")
TOLERANCE = {"float32": 1e-5, "tf32": 5e-2, "bf16": 1e-1}  # a rounded product may fall on the other side of a ReLU


def networks(hidden, members):
    """An ensemble on inputs in two parts, the first of them repeated, and a lone network on one part."""
    draw = torch.Generator().manual_seed(0)
    nets = [StackedMLP("q", "q", 8, hidden, 1, 3), StackedMLP("p", "p", 5, hidden, 6)]
    columns = [torch.randn(members, net.layout.size, generator=draw) * 0.1 for net in nets]
    wide = torch.randn(members, 100, 16, generator=draw)
    firsts = [wide[:, :50, 2:7], wide[:, :33, 7:12]]
    return [net.layout for net in nets], columns, firsts, [wide[..., 13:16], firsts[1]], [3, 0]


def passes(layouts, columns, firsts, seconds, widths, precision):
    """Every result of the three operators."""
    encoded = [number for layout in layouts for number in layout.encode()]
    forward = mlp_ops.mlp_forward(columns, firsts, seconds, widths, [1, 1], encoded, precision)
    outputs, saved = forward[::2], forward[1::2]
    gradients = [(output * 0.5 + 0.1).contiguous() for output in outputs]
    hidden = mlp_ops.mlp_hidden_gradients(columns, gradients, saved, [5, 3, 0, 0], encoded, precision)
    found = mlp_ops.mlp_gradients(firsts, seconds, widths, gradients, saved, hidden[::2], encoded, precision)
    return [*outputs, *saved, *hidden, *found]


@pytest.mark.parametrize("precision", list(TOLERANCE))
@pytest.mark.parametrize("members", [1, 40])
@pytest.mark.parametrize("hidden", [(64,), (256, 256), (32, 128, 64)], ids=str)
def test_the_kernels_give_what_torch_s_products_give(hidden, members, precision):
    layouts, columns, firsts, seconds, widths = networks(hidden, members)
    there = [[tensor.to(CUDA) for tensor in tensors] for tensors in (columns, firsts, seconds)]
    expected = passes(layouts, columns, firsts, seconds, widths, "float32")
    got = passes(layouts, *there, widths, precision)
    again = passes(layouts, *there, widths, precision)
    for ours, repeated, plain in zip(got, again, expected, strict=True):
        assert torch.equal(ours, repeated)
        if plain.numel():
            assert (ours.cpu().float() - plain).norm() <= TOLERANCE[precision] * plain.norm() * (
                10 if precision != "float32" else 1
            )


def test_padding_has_no_gradient():
    layouts, columns, firsts, seconds, widths = networks((64, 64), 2)
    there = [[tensor.to(CUDA) for tensor in tensors] for tensors in (columns, firsts, seconds)]
    for layout, gradient in zip(layouts, passes(layouts, *there, widths, "float32")[-2:], strict=True):
        assert layout.gaps
        assert all(not gradient[:, start:stop].any() for start, stop in layout.gaps)


@pytest.mark.parametrize("steps", [1, 20])
def test_compiled_draws_are_the_eager_ones(steps):
    seeds, numbers = torch.tensor([0, 5], device=CUDA), torch.arange(7, 7 + steps, device=CUDA)
    streams = ((bits, "a", (256,)), (uniforms, "b", (10,)), (normals, "c", (256, 3)), (normals, "d", (10, 256, 3)))
    compiled = torch.compile(_drawing(streams), fullgraph=True, dynamic=False)(seeds, numbers)
    for ours, (kind, name, shape) in zip(compiled, streams, strict=True):
        assert torch.equal(ours, kind(seeds, name, numbers, shape).transpose(0, 1))


def parameters(algo, mode, steps, data, nudge=0.0, **changes):
    """Parameters after some steps, run in chunks that fit no block; `nudge` moves the first ones by so much of themselves."""
    values = {"algo": algo, "env_id": "Pendulum-v1", "device": "cuda", "engine": mode, "seeds": [0, 7], **changes}
    taken, executor = bench_steps(make_config(values), data, CUDA)
    flat = taken.learner.model.trained.flat
    flat.mul_(1.0 + nudge * normals([0, 7], "nudge", 0, flat.shape[1:], device=CUDA))
    with applied(executor.execution):
        taken.run(0, 7)
        for first in range(7, steps, 331):
            taken.run(first, min(331, steps - first))
    assert executor.execution.mode == mode
    return flat


@pytest.mark.parametrize(
    ("algo", "precision"),
    [*((algo, "float32") for algo in registry.names()), ("iql", "tf32"), ("iql", "bf16"), ("cql", "tf32"), ("redq", "bf16")],
)
def test_a_graph_is_its_function_bit_for_bit(algo, precision):
    data = synthetic(20_000, 11, 3, registry.get_spec(algo).needs)
    plain, graph = (parameters(algo, mode, 1000, data, precision=precision) for mode in ("compile", "graph"))
    assert torch.isfinite(graph).all()
    assert torch.equal(plain, graph)


@pytest.mark.parametrize("algo", registry.names())
def test_compiled_and_eager_agree(algo):
    """To 1e-5 after 10 steps. After 1,000 a last digit has grown: no more than when eager starts one digit off."""
    config = make_config({"algo": "cal_ql", "env_id": "Pendulum-v1", "algo_kwargs": {"dataset": {"kind": "scripted"}}})
    view = RowView(make_dataset("Pendulum-v1", config.algo_kwargs.dataset[0]))
    data = process_dataset(view, config.algo_kwargs, view.dataset.spaces, needs=registry.get_spec(algo).needs)

    def apart(first, second):
        return ((first - second).norm() / first.norm()).item()

    early = apart(*(parameters(algo, mode, 10, data) for mode in ("eager", "compile")))
    eager = parameters(algo, "eager", 1000, data)
    late = apart(eager, parameters(algo, "compile", 1000, data))
    nudged = apart(eager, parameters(algo, "eager", 1000, data, nudge=1e-7))
    print(f"{algo}: {early:.1e} after 10 steps, {late:.1e} after 1,000; eager nudged by 1e-7 {nudged:.1e}")
    assert early <= 1e-5
    assert late <= max(1e-2, 2.0 * nudged)


@pytest.mark.parametrize("seeds", [None, [0, 7]], ids=["solo", "population"])
@pytest.mark.parametrize("algo", ["iql", "td3_bc", "cal_ql", "redq", "rlpd"])
def test_graphs_cut_and_resumed_equal_uninterrupted(algo, seeds, tmp_path):
    tiny_run(tmp_path / "whole", algo, seeds=seeds, device="cuda", engine="graph")
    for place in (("checkpoint", 30), ("log", 110)):
        with pytest.raises(Cut):
            tiny_run(tmp_path / place[0], algo, seeds=seeds, device="cuda", engine="graph", callbacks=[CutAt(*place)])
        tiny_run(tmp_path / place[0], algo, seeds=seeds, device="cuda", engine="graph", resume=True)
        assert_same_run(tmp_path / "whole", tmp_path / place[0])
