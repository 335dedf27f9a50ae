"""Compiled steps: the traced graph is the learner's own step, networks are merged, failures fall back, runs resume."""

from functools import partial

import pytest
import torch

from rl_training import registry
from rl_training.algorithms.learner import Step, summarize
from rl_training.bench.measure import synthetic
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models.mlp import operators as mlp_ops
from rl_training.rng import Draws
from rl_training.runtime.execution import compiled
from rl_training.runtime.execution.compiled import LONGEST_BLOCK, block_length
from rl_training.runtime.execution.mode import STEPS_WORTH_COMPILING, resolve_execution
from rl_training.runtime.execution.tracing import Wanted, launches, trace_step, variant_at
from rl_training.runtime.learners import build_learner
from rl_training.runtime.progress import QuietReporter
from tests import operators_on_the_cpu  # noqa: F401 - registers them
from tests.helpers import Cut, CutAt, assert_same_run, metric_rows, mode_of, tiny_run

MEMBERS, BATCH = 2, 16
cpu_run = partial(tiny_run, device="cpu")  # also where there is a GPU


@pytest.fixture
def uncompiled(monkeypatch):
    """Blocks of traced steps without the compiler, which takes seconds for each."""

    def layouts(values):
        return [value if value is None else (value.shape, value.stride(), value.dtype) for value in values]

    def strict(traced):
        def function(*arguments):
            assert layouts(arguments) == layouts(traced.example)  # compiled code takes nothing else
            return traced.graph(*arguments)

        return function

    monkeypatch.setattr(compiled, "compile_for_cpu", strict)


@pytest.fixture
def operators(monkeypatch):
    """Networks recorded as on a GPU: whole, as operators, which do what an eager step does to the last bit."""
    monkeypatch.setattr(mlp_ops, "recorded_plainly", lambda _device: False)


def learner_of(algo, **kwargs):
    data = synthetic(200, 5, 2)
    values = {"algo": algo, "env_id": "Pendulum-v1", "algo_kwargs": {"hidden_sizes": [16, 16], **kwargs}}
    learner = build_learner(algo, data.spaces, range(MEMBERS), torch.device("cpu"), make_config(values).algo_kwargs)
    rows = torch.from_numpy(data.rows[: MEMBERS * BATCH]).view(MEMBERS, BATCH, -1)
    return learner, rows, lambda rows, _prior: data.layout.batch(rows)


def wanted_at(learner, step, **results):
    return Wanted(variant_at(learner, step, report=False).due, **results)


def check_traced(learner, rows, make_batch, wanted, same):
    """Compare a traced step with the learner's own, on other random numbers than it was traced with."""
    traced = trace_step(learner, wanted, rows, None, make_batch, "float32")
    model, draws = learner.model, Draws.of_steps(learner.model.seed_tensor, 7)
    got = traced.graph(model.trained.flat, model.targets.flat, rows, None, *draws.values_of_step(traced.streams))
    loss, metrics = learner.loss(make_batch(rows, None), Step(draws, wanted.due, wanted.metrics))
    gradients = learner.gradients(loss, wanted.due) if wanted.gradients else {}
    told = summarize(metrics) if wanted.metrics else {}
    assert (traced.segments, traced.metrics) == (tuple(gradients), tuple(told))
    for name, value, expected in zip([*gradients, *told], got, [*gradients.values(), *told.values()], strict=True):
        assert same(value, expected), name


def nearly(value, expected):
    return torch.allclose(value, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("results", [{}, {"metrics": True}, {"gradients": False, "metrics": True}], ids=str)
@pytest.mark.parametrize("step", [0, 19], ids=["first", "delayed"])
@pytest.mark.parametrize("algo", registry.names())
def test_a_traced_step_is_the_learner_s_own(algo, step, results, operators):
    learner, rows, make_batch = learner_of(algo)
    check_traced(learner, rows, make_batch, wanted_at(learner, step, **results), torch.equal)


@pytest.mark.parametrize("algo", registry.names())
def test_a_step_recorded_for_the_cpu_s_compiler_is_the_learner_s_own_too(algo):
    learner, rows, make_batch = learner_of(algo)
    check_traced(learner, rows, make_batch, wanted_at(learner, 19, metrics=True), nearly)


@pytest.mark.parametrize("plainly", [True, False], ids=["plain", "operators"])
def test_layer_norm_and_clipping_are_traced_too(plainly, monkeypatch):
    monkeypatch.setattr(mlp_ops, "recorded_plainly", lambda _device: plainly)
    learner, rows, make_batch = learner_of("iql", critic_layer_norm=True, value_layer_norm=True, max_grad_norm=0.1)
    check_traced(learner, rows, make_batch, wanted_at(learner, 0), nearly)


@pytest.mark.parametrize(("algo", "calls"), [("iql", 1), ("xql", 1), ("td3_bc", 2), ("sac", 2), ("cql", 2), ("rlpd", 2)])
def test_networks_that_wait_for_the_same_share_a_launch(algo, calls, operators):
    learner, rows, make_batch = learner_of(algo)
    traced = trace_step(learner, wanted_at(learner, 19), rows, None, make_batch, "float32")
    assert launches(traced.graph) == {"mlp_forward": calls, "mlp_hidden_slopes": calls, "mlp_gradients": 1}


@pytest.mark.parametrize("seeds", [None, [0, 7]], ids=["solo", "population"])
@pytest.mark.parametrize("algo", registry.names())
def test_blocks_of_traced_steps_train_as_eager_steps_do(algo, seeds, tmp_path, uncompiled, operators):
    for mode in ("eager", "compile"):
        cpu_run(tmp_path / mode, algo, seeds=seeds, engine=mode)
    assert_same_run(tmp_path / "eager", tmp_path / "compile")


@pytest.mark.parametrize(("algo", "seeds"), [("iql", None), ("sac", [0, 7])], ids=["offline", "online"])
def test_the_compiler_changes_nothing_but_rounding_and_its_runs_resume(algo, seeds, tmp_path):
    def run(name, mode="compile", **options):
        cpu_run(tmp_path / name, algo, seeds=seeds, engine=mode, eval_interval=1000, **options)

    run("eager", "eager")
    run("compile")
    for here, there in zip(metric_rows(tmp_path / "eager"), metric_rows(tmp_path / "compile"), strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=1e-5)
    assert mode_of(tmp_path / "compile") == "compile"
    with pytest.raises(Cut):
        run("cut", callbacks=[CutAt("checkpoint", 30)])
    run("cut", resume=True)
    assert_same_run(tmp_path / "compile", tmp_path / "cut")


@pytest.mark.parametrize("algo", ["iql", "td3_bc", "rlpd"])
def test_cut_and_resumed_equals_uninterrupted(algo, tmp_path, uncompiled):
    cpu_run(tmp_path / "whole", algo, engine="compile")
    for place in (("checkpoint", 30), ("log", 110)):
        with pytest.raises(Cut):
            cpu_run(tmp_path / place[0], algo, engine="compile", callbacks=[CutAt(*place)])
        cpu_run(tmp_path / place[0], algo, engine="compile", resume=True)
        assert_same_run(tmp_path / "whole", tmp_path / place[0])


@pytest.mark.parametrize("algo", ["rlpd", "cql"])
def test_a_population_with_all_groups_due_gets_the_layouts_it_was_compiled_for(algo, tmp_path, uncompiled):
    cpu_run(tmp_path, algo, seeds=[0, 7, 9], engine="compile", algo_kwargs={"alpha": "auto", "actor_interval": 1})
    assert mode_of(tmp_path) == "compile"


@pytest.mark.parametrize("failing_call", [1, 2], ids=["at once", "half way"])
def test_a_failure_falls_back_with_one_warning_and_is_recorded(failing_call, tmp_path, monkeypatch, operators):
    calls = []

    def compile_badly(traced):
        calls.append(traced)
        if len(calls) >= failing_call:
            raise RuntimeError("no such instruction\nand much more")
        return traced.graph

    monkeypatch.setattr(compiled, "compile_for_cpu", compile_badly)
    warned = []
    cpu_run(tmp_path / "fallen", "td3_bc", engine="compile", reporter=Warnings(warned))
    assert len(warned) == 1
    assert "going on with `eager`" in warned[0]
    assert "\n" not in warned[0]
    assert mode_of(tmp_path / "fallen") == "eager"
    cpu_run(tmp_path / "eager", "td3_bc", engine="eager")
    assert_same_run(tmp_path / "eager", tmp_path / "fallen")


def test_a_run_of_two_phases_falls_back_once(tmp_path, monkeypatch):
    def compile_never(_traced):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(compiled, "compile_for_cpu", compile_never)
    warned = []
    cpu_run(tmp_path, "iql", engine="compile", finetune={"env_steps": 30}, reporter=Warnings(warned))
    assert len([text for text in warned if "going on with `eager`" in text]) == 1


def test_a_finetune_asked_for_at_once_or_later_is_compiled_alike(tmp_path, monkeypatch, uncompiled):
    monkeypatch.setitem(STEPS_WORTH_COMPILING, "cpu", 130)  # more than the offline steps, fewer than all
    for name, first in (("once", {"finetune": {"env_steps": 30}}), ("later", {})):
        cpu_run(tmp_path / name, "iql", **first)
    cpu_run(tmp_path / "later", "iql", finetune={"env_steps": 30}, resume=True)
    assert_same_run(tmp_path / "once", tmp_path / "later")


def test_without_a_compiler_the_warning_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/not/there")
    warned = []
    cpu_run(tmp_path, "iql", engine="compile", reporter=Warnings(warned))
    assert len(warned) == 1
    assert "install g++, or name one in CXX" in warned[0]


def test_what_the_cpu_cannot_do_is_refused_in_one_line():
    learner, _, _ = learner_of("iql")
    for key, value in (("precision", "bf16"), ("precision", "tf32"), ("engine", "graph")):
        with pytest.raises(ConfigError, match=f"{key} = .{value}. needs a CUDA device"):
            resolve_execution(make_config({"algo": "iql", "env_id": "Pendulum-v1", key: value}), learner, None)


def test_auto_compiles_long_runs_where_there_is_a_compiler_and_keeps_what_a_checkpoint_says(monkeypatch):
    learner, _, _ = learner_of("iql")
    config = make_config({"algo": "iql", "env_id": "Pendulum-v1"})
    long = STEPS_WORTH_COMPILING["cpu"]
    for compiler, steps, mode in (("/bin/g++", long, "compile"), ("/bin/g++", long - 1, "eager"), (None, long, "eager")):
        monkeypatch.setattr("shutil.which", lambda _name, found=compiler: found)
        resolved = resolve_execution(config, learner, None, steps)
        assert resolved.mode == mode
    assert resolve_execution(config, learner, {**resolved.record(), "mode": "compile"}).mode == "compile"


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
