"""Compiled steps: the traced graph is the learner's own step, networks are merged, failures fall back, runs resume."""

import pytest
import torch

from rl_training.algorithms.learner import Step, summarize
from rl_training.bench.measure import synthetic
from rl_training.errors import ConfigError
from rl_training.experiment import registry
from rl_training.experiment.config import make_config
from rl_training.rng import Draws
from rl_training.runtime.checkpoint import load_checkpoint
from rl_training.runtime.compiled import LONGEST_BLOCK, block_length
from rl_training.runtime.engine import STEPS_WORTH_COMPILING, resolve_engine
from rl_training.runtime.progress import QuietReporter
from rl_training.runtime.tracing import launches, trace_step, variant_at
from tests.helpers import Cut, CutAt, assert_same_run, checkpoints, metric_rows, tiny_run

MEMBERS, BATCH = 2, 16


@pytest.fixture
def uncompiled(monkeypatch):
    """Blocks of traced steps without the compiler, which takes seconds for each."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def learner_of(algo, **kwargs):
    data = synthetic(200, 5, 2)
    values = {"algo": algo, "env_id": "Pendulum-v1", "algo_kwargs": {"hidden_sizes": [16, 16], **kwargs}}
    learner = registry.get_spec(algo).build()(
        data.spaces, range(MEMBERS), torch.device("cpu"), make_config(values).algo_kwargs
    )
    rows = torch.from_numpy(data.rows[: MEMBERS * BATCH]).view(MEMBERS, BATCH, -1)
    return learner, rows, lambda rows, _prior: data.layout.batch(rows)


@pytest.mark.parametrize("report", [False, True], ids=["silent", "reporting"])
@pytest.mark.parametrize("step", [0, 19], ids=["first", "delayed"])
@pytest.mark.parametrize("algo", registry.names())
def test_a_traced_step_is_the_learner_s_own(algo, step, report):
    learner, rows, make_batch = learner_of(algo)
    variant = variant_at(learner, step, report=report)
    traced = trace_step(learner, variant, rows, None, make_batch, "float32")
    draws = Draws.of_steps(learner.model.seed_tensor, 7)  # other numbers than it was traced with
    got = traced.graph(
        learner.model.trained.flat, learner.model.targets.flat, rows, None, *draws.values_of_step(traced.streams)
    )
    loss, metrics = learner.loss(make_batch(rows, None), Step(draws, variant.due, report))
    expected = summarize(metrics) if report else learner.gradients(loss, variant.due)
    assert traced.names == tuple(expected)
    for name, value in zip(traced.names, got, strict=True):
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(("algo", "calls"), [("iql", 1), ("xql", 1), ("td3_bc", 2), ("sac", 2), ("cql", 2), ("rlpd", 2)])
def test_networks_that_wait_for_the_same_share_a_launch(algo, calls):
    learner, rows, make_batch = learner_of(algo)
    traced = trace_step(learner, variant_at(learner, 19, report=False), rows, None, make_batch, "float32")
    assert launches(traced.graph) == {"mlp_forward": calls, "mlp_hidden_slopes": calls, "mlp_gradients": 1}


def test_layer_norm_and_clipping_are_traced_too():
    learner, rows, make_batch = learner_of("iql", critic_layer_norm=True, value_layer_norm=True, max_grad_norm=0.1)
    variant = variant_at(learner, 0, report=False)
    traced = trace_step(learner, variant, rows, None, make_batch, "float32")
    loss, _ = learner.loss(make_batch(rows, None), Step(Draws.of_steps(learner.model.seed_tensor, 0), variant.due, False))
    got = traced.graph(learner.model.trained.flat, learner.model.targets.flat, rows, None)
    for value, expected in zip(got, learner.gradients(loss, variant.due).values(), strict=True):
        assert torch.allclose(value, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seeds", [None, [0, 7]], ids=["solo", "population"])
@pytest.mark.parametrize("algo", registry.names())
def test_blocks_of_traced_steps_train_as_eager_steps_do(algo, seeds, tmp_path, uncompiled):
    for mode in ("eager", "compile"):
        tiny_run(tmp_path / mode, algo, seeds=seeds, engine=mode)
    assert_same_run(tmp_path / "eager", tmp_path / "compile")


def test_the_compiler_changes_nothing_but_rounding(tmp_path):
    for mode in ("eager", "compile"):
        tiny_run(tmp_path / mode, "iql", engine=mode, eval_interval=1000)
    for here, there in zip(metric_rows(tmp_path / "eager"), metric_rows(tmp_path / "compile"), strict=True):
        assert there == pytest.approx(here, rel=1e-5, abs=1e-6)
    assert mode_of(tmp_path / "compile") == "compile"


@pytest.mark.parametrize("algo", ["iql", "td3_bc", "rlpd"])
def test_cut_and_resumed_equals_uninterrupted(algo, tmp_path, uncompiled):
    tiny_run(tmp_path / "whole", algo, engine="compile")
    for place in (("checkpoint", 30), ("log", 110)):
        with pytest.raises(Cut):
            tiny_run(tmp_path / place[0], algo, engine="compile", callbacks=[CutAt(*place)])
        tiny_run(tmp_path / place[0], algo, engine="compile", resume=True)
        assert_same_run(tmp_path / "whole", tmp_path / place[0])


@pytest.mark.parametrize("failing_call", [1, 2], ids=["at once", "half way"])
def test_a_failure_falls_back_with_one_warning_and_is_recorded(failing_call, tmp_path, monkeypatch):
    calls = []

    def compile_later(function, **_):
        """As the compiler does: it looks at a function when that is first called."""
        calls.append(function)
        number = len(calls)

        def compiled(*arguments):
            if number >= failing_call:
                raise RuntimeError("no such instruction\nand much more")
            return function(*arguments)

        return compiled

    monkeypatch.setattr(torch, "compile", compile_later)
    warned = []
    tiny_run(tmp_path / "fallen", "td3_bc", engine="compile", reporter=Warnings(warned))
    assert len(warned) == 1
    assert "going on with `eager`" in warned[0]
    assert "\n" not in warned[0]
    assert mode_of(tmp_path / "fallen") == "eager"
    tiny_run(tmp_path / "eager", "td3_bc", engine="eager")
    assert_same_run(tmp_path / "eager", tmp_path / "fallen")


def test_what_the_cpu_cannot_do_is_refused_in_one_line():
    learner, _, _ = learner_of("iql")
    for key, value in (("precision", "bf16"), ("precision", "tf32"), ("engine", "graph")):
        with pytest.raises(ConfigError, match=f"{key} = .{value}. needs a CUDA device"):
            resolve_engine(make_config({"algo": "iql", "env_id": "Pendulum-v1", key: value}), learner, None)


def test_auto_is_eager_on_the_cpu_and_keeps_what_a_checkpoint_says():
    learner, _, _ = learner_of("iql")
    config = make_config({"algo": "iql", "env_id": "Pendulum-v1"})
    resolved = resolve_engine(config, learner, None, 100 * STEPS_WORTH_COMPILING)
    assert resolved.mode == "eager"
    assert resolve_engine(config, learner, {**resolved.record(), "mode": "compile"}).mode == "compile"


@pytest.mark.parametrize(("members", "length"), [(1, 20), (12, 20), (13, 10), (30, 5), (64, 4), (128, 2), (4096, 1)])
def test_blocks_divide_the_longest_and_shrink_with_the_population(members, length):
    assert block_length(members) == length
    assert LONGEST_BLOCK % length == 0


class Warnings(QuietReporter):
    """Collects what a run warns of."""

    def __init__(self, warned):
        self.warned = warned

    def warn(self, text):
        self.warned.append(text)


def mode_of(run_dir):
    return load_checkpoint(checkpoints(run_dir)[-1]).state["environment"]["mode"]
