"""Compiled steps on a CUDA device: against eager ones, graphs against their function, exact resume."""

import pytest
import torch

from rl_training import registry
from rl_training.bench.measure import bench_steps, synthetic
from rl_training.config.loading import make_config
from rl_training.data.processing import process_dataset
from rl_training.data.row_view import RowView
from rl_training.envs.recipes import make_dataset
from rl_training.rng import normals
from rl_training.runtime.execution.mode import applied
from tests.helpers import Cut, CutAt, assert_same_run, tiny_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CUDA = torch.device("cuda")


def prepared(algo, mode, data, **changes):
    """Gradient steps that were not taken yet, and what executes them."""
    values = {"algo": algo, "env_id": "Pendulum-v1", "device": "cuda", "engine": mode, "seeds": [0, 7], **changes}
    return bench_steps(make_config(values), data, CUDA)


def trained(algo, mode, steps, data, nudge=0.0, **changes):
    """The model after some steps, run in chunks that fit no block; `nudge` moves the first ones by so much of themselves."""
    taken, executor = prepared(algo, mode, data, **changes)
    model = taken.learner.model
    model.trained.flat.mul_(1.0 + nudge * normals(model.seeds, "nudge", 0, model.trained.flat.shape[1:], device=CUDA))
    with applied(executor.execution):
        taken.run(0, 7)
        for first in range(7, steps, 331):
            taken.run(first, min(331, steps - first))
    assert executor.execution.mode == mode
    return model


def parameters(*given, **changes):
    return trained(*given, **changes).trained.flat


@pytest.mark.parametrize(
    ("algo", "precision"),
    [*((algo, "float32") for algo in registry.names()), ("iql", "tf32"), ("iql", "bf16"), ("cql", "tf32"), ("redq", "bf16")],
)
def test_a_graph_is_its_function_bit_for_bit(algo, precision):
    data = synthetic(20_000, 11, 3, registry.get_spec(algo).needs)
    plain, graph = (parameters(algo, mode, 1000, data, precision=precision) for mode in ("compile", "graph"))
    assert torch.isfinite(graph).all()
    assert torch.equal(plain, graph)


def rows_for(algo):
    """Rows of Pendulum. EDAC gets noise with three actions: with one, the gradient of its directions is rounding alone."""
    needs = registry.get_spec(algo).needs
    if algo == "edac":
        return synthetic(20_000, 11, 3, needs)
    config = make_config({"algo": "cal_ql", "env_id": "Pendulum-v1", "algo_kwargs": {"dataset": {"kind": "scripted"}}})
    view = RowView(make_dataset("Pendulum-v1", config.algo_kwargs.dataset[0]))
    return process_dataset(view, config.algo_kwargs, view.dataset.spaces, needs=needs)


@pytest.mark.parametrize("algo", registry.names())
def test_compiled_and_eager_agree(algo):
    """To 1e-5 after 10 steps. After 1,000 a last digit has grown: no more than when eager starts one digit off."""
    data = rows_for(algo)

    def apart(first, second):
        return ((first - second).norm() / first.norm()).item()

    early = apart(*(parameters(algo, mode, 10, data) for mode in ("eager", "compile")))
    eager = parameters(algo, "eager", 1000, data)
    late = apart(eager, parameters(algo, "compile", 1000, data))
    nudged = apart(eager, parameters(algo, "eager", 1000, data, nudge=1e-7))
    print(f"{algo}: {early:.1e} after 10 steps, {late:.1e} after 1,000; eager nudged by 1e-7 {nudged:.1e}")
    assert early <= 1e-5
    assert late <= max(1e-2, 2.0 * nudged)


MANY = list(range(8))  # members enough for gradients that are applied where they are computed


def test_a_graph_of_many_members_is_its_function_bit_for_bit():
    given = (1000, synthetic(20_000, 11, 3, registry.get_spec("iql").needs))
    plain, graph = (parameters("iql", mode, *given, precision="tf32", seeds=MANY) for mode in ("compile", "graph"))
    assert torch.isfinite(graph).all()
    assert torch.equal(plain, graph)


@pytest.mark.parametrize("algo", ["iql", "td3_bc"])
def test_gradients_applied_at_once_train_as_eager_steps_do(algo, monkeypatch):
    from rl_training.models.mlp.triton import launch_adam

    update, launched = launch_adam.parameter_updates, []
    monkeypatch.setattr(launch_adam, "parameter_updates", lambda *given: (launched.append(given), update(*given)))
    assert_moved_as_eagerly(algo)
    assert launched


@pytest.mark.parametrize("algo", ["sac_n", "edac", "cql", "fql"])
def test_tf32_populations_train_as_eager_steps_do(algo):
    assert_moved_as_eagerly(algo)


def assert_moved_as_eagerly(algo):
    """Each parameter and each target of many members moves as it does eagerly, but for rounded products."""
    data, changes = synthetic(20_000, 11, 3, registry.get_spec(algo).needs), {"precision": "tf32", "seeds": MANY}
    first = prepared(algo, "eager", data, **changes)[0].learner.model
    eager, ours = (trained(algo, mode, 10, data, **changes) for mode in ("eager", "graph"))
    for bank in ("trained", "targets"):
        begin, expected, got = (getattr(model, bank) for model in (first, eager, ours))
        begin, expected, got = (own.export(own.flat) for own in (begin, expected, got))
        for name, value in expected.items():
            assert (got[name] - value).norm() <= 0.5 * (value - begin[name]).norm(), f"{bank} {name}"


NORM_LAST = {"critic_layer_norm": True, "layer_norm_position": "after", "critic_weight_decay": 0.1}
LAYERS = [
    *((NORM_LAST, precision) for precision in ("float32", "tf32", "bf16")),
    ({"critic_layer_norm": True, "actor_layer_norm": True, "activation": "gelu", "actor_weight_decay": 0.1}, "float32"),
    ({"critic_hidden_sizes": [48, 256], "critic_layer_norm": True}, "float32"),  # compiled operation by operation
]


@pytest.mark.parametrize(("kwargs", "precision"), LAYERS, ids=["after", "after-tf32", "after-bf16", "gelu", "no-kernel"])
def test_other_layers_and_weight_decay_are_compiled_as_they_run_eagerly(kwargs, precision):
    """Whatever its gradient, Adam moves a parameter by about its rate, so rounded products change little in ten steps."""
    tolerance = {"float32": 3e-5, "tf32": 1e-2, "bf16": 2e-2}[precision]
    changes = {"precision": precision, "algo_kwargs": kwargs}
    eager, ours = (parameters("td3_bc", mode, 10, synthetic(20_000, 11, 3), **changes) for mode in ("eager", "graph"))
    assert ((eager - ours).norm() / eager.norm()).item() <= tolerance


@pytest.mark.parametrize("seeds", [None, [0, 7]], ids=["solo", "population"])
@pytest.mark.parametrize("algo", ["iql", "td3_bc", "cal_ql", "sac", "redq", "rlpd"])
def test_graphs_cut_and_resumed_equal_uninterrupted(algo, seeds, tmp_path):
    tiny_run(tmp_path / "whole", algo, seeds=seeds, device="cuda", engine="graph")
    for place in (("checkpoint", 30), ("log", 110)):
        with pytest.raises(Cut):
            tiny_run(tmp_path / place[0], algo, seeds=seeds, device="cuda", engine="graph", callbacks=[CutAt(*place)])
        tiny_run(tmp_path / place[0], algo, seeds=seeds, device="cuda", engine="graph", resume=True)
        assert_same_run(tmp_path / "whole", tmp_path / place[0])
