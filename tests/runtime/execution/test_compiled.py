"""Compiled steps: the traced graph is the learner's own step, networks are merged, failures fall back, runs resume."""

import gc
import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch

from rl_training import registry
from rl_training.bench.measure import synthetic
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.models.mlp import operators as mlp_ops
from rl_training.rng import normals
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.execution import compiled, tracing
from rl_training.runtime.execution.compiled import LONGEST_BLOCK, block_length
from rl_training.runtime.execution.mode import STEPS_WORTH_COMPILING, resolve_execution
from rl_training.runtime.execution.steps import Executor
from rl_training.runtime.execution.tracing import trace_acting, trace_step
from rl_training.runtime.progress import QuietReporter
from tests.contract import check_traced, nearly, wanted_at
from tests.helpers import assert_same_run, die_at_each, metric_rows, mode_of, tiny_run
from tests.models.mlp import operators_on_the_cpu  # noqa: F401 - registers them

MEMBERS, BATCH = 2, 16


def launches(module):
    """The number of calls of each network operator in a graph."""
    names = ("mlp_forward", "mlp_hidden_gradients", "mlp_gradients")
    found = [str(node.target) for node in module.graph.nodes]
    return {name: sum(target == f"rl_training.{name}.default" for target in found) for name in names}


@pytest.fixture
def uncompiled(monkeypatch):
    """Blocks of traced steps without the compiler, which takes seconds for each."""

    def layouts(values):
        return [value if value is None else (value.shape, strides(value), value.dtype) for value in values]

    def strides(value):  # over an axis of one entry nobody steps, and torch does not check it either
        return [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]

    def strict(traced):
        def function(*arguments):
            assert layouts(arguments) == layouts(traced.example)  # compiled code takes nothing else
            return traced.graph(*arguments)

        return function

    monkeypatch.setattr(compiled, "compile_traced", strict)


@pytest.fixture
def operators(monkeypatch):
    """Networks recorded as on a GPU: whole, as operators, which do what an eager step does to the last bit."""
    monkeypatch.setattr(mlp_ops, "recorded_plainly", lambda _device: False)


OWN = {"redq": {"actor_interval": 20}}  # otherwise its policy is delayed only where there are rounds


def learner_of(algo, **kwargs):
    data = synthetic(200, 5, 2, registry.get_spec(algo).needs)
    values = {"algo": algo, "env_id": "Pendulum-v1"}
    values["algo_kwargs"] = {"hidden_sizes": [16, 16], **OWN.get(algo, {}), **kwargs}
    learner = build_learner(algo, data.spaces, range(MEMBERS), torch.device("cpu"), make_config(values).algo_kwargs)
    rows = torch.from_numpy(data.rows[: MEMBERS * BATCH]).view(MEMBERS, BATCH, -1)
    return learner, rows, lambda rows, _prior: data.layout.batch(rows)


DELAYED = ["td3_bc", "rebrac", "td3", "redq"]  # their policies are not due at every step
LAUNCHES = {
    "iql": 1,
    "xql": 1,
    "td3_bc": 2,
    "td3": 2,
    "sac": 2,
    "sac_n": 2,
    "cql": 2,
    "rlpd": 2,
}  # of forward passes, in a step that trains all
WHOLE, GRADIENTS, METRICS = {"metrics": True}, {}, {"gradients": False, "metrics": True}
TRACED = [
    *((algo, 19, GRADIENTS if algo in LAUNCHES else WHOLE) for algo in registry.names()),
    *(("iql", 19, results) for results in (WHOLE, METRICS)),
    *((algo, 0, results) for algo in DELAYED for results in (WHOLE, GRADIENTS, METRICS)),
]


def test_at_other_steps_no_other_groups_are_due_unless_the_policy_is_delayed():
    """So one step of each algorithm is enough to trace, and another of those with a delayed policy."""
    learners = {algo: learner_of(algo)[0] for algo in registry.names()}
    assert [algo for algo, learner in learners.items() if learner.due_groups(0) != learner.due_groups(19)] == DELAYED


@pytest.mark.parametrize(("algo", "step", "results"), TRACED, ids=str)
def test_a_traced_step_is_the_learner_s_own(algo, step, results, operators):
    """And networks that wait for the same share a launch."""
    learner, rows, make_batch = learner_of(algo)
    traced = check_traced(learner, rows, make_batch, wanted_at(learner, step, **results), torch.equal)
    if algo in LAUNCHES and (step, results) == (19, GRADIENTS):
        calls = LAUNCHES[algo]
        assert launches(traced.graph) == {"mlp_forward": calls, "mlp_hidden_gradients": calls, "mlp_gradients": 1}


def test_a_network_that_would_be_alone_joins_a_later_launch(operators):
    """ReBRAC's critics differ from its policies: those of the data wait for the target's and, if due, the policy's."""
    for step, calls in ((0, (2, 1)), (19, (2, 2))):
        learner, rows, make_batch = learner_of("rebrac")
        traced = check_traced(learner, rows, make_batch, wanted_at(learner, step), torch.equal)
        found = launches(traced.graph)
        assert (found["mlp_forward"], found["mlp_hidden_gradients"]) == calls


@pytest.mark.parametrize(("algo", "left"), [("iql", ["log_std"]), ("rebrac", []), ("edac", ["critic", "temperature"])])
def test_gradients_that_only_the_optimizer_needs_can_be_left_to_it(algo, left, operators, monkeypatch):
    """EDAC's critics have gradients of two kinds, which must be added first."""
    monkeypatch.setattr(tracing, "updates_at_once", lambda *_: True)
    learner, rows, make_batch = learner_of(algo)
    given = (learner, wanted_at(learner, 19), rows, None, make_batch, "float32")
    whole, later = trace_step(*given), trace_step(*given)
    postponed = tracing.postpone_gradients(later.graph, later.segments)
    expected = dict(zip(whole.segments, whole.graph(*whole.example), strict=True))
    results = iter(later.graph(*later.example))
    got = {name: next(results) for name in left}
    for own in postponed:
        *rest, layouts, precision = own.backward(results)
        encoded = [number for layout in layouts for number in layout.encode()]
        got |= dict(zip(own.segments, mlp_ops.mlp_gradients(*rest, encoded, precision), strict=True))
    assert not list(results)
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], gradient) for name, gradient in expected.items())


@pytest.mark.parametrize("algo", registry.names())
def test_traced_acting_is_the_policy_s_own_and_no_more(algo, operators):
    """The density of SAC's actions, for example, is left out."""
    model = learner_of(algo)[0].model
    sizes = {"observations": model.observation_dim, "noise": model.action_dim}
    observations, noise = (normals(model.seed_tensor, name, 0, (1, size)) for name, size in sizes.items())
    graph = trace_acting(model, observations, noise, "float32")
    model.trained.flat.mul_(1.5)  # it is what the graph is given
    assert torch.equal(graph(model.trained.flat, observations, noise), model.act(observations, noise))
    assert launches(graph) == {"mlp_forward": 1, "mlp_hidden_gradients": 0, "mlp_gradients": 0}
    assert not any("softplus" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize("algo", registry.names())
def test_a_step_recorded_for_the_cpu_s_compiler_is_the_learner_s_own_too(algo):
    learner, rows, make_batch = learner_of(algo)
    check_traced(learner, rows, make_batch, wanted_at(learner, 19, metrics=True), nearly)


@pytest.mark.parametrize("plainly", [True, False], ids=["plain", "operators"])
@pytest.mark.parametrize(
    ("position", "activation"), [("before", "relu"), ("after", "relu"), ("before", "gelu"), ("after", "silu")]
)
def test_layer_norm_and_clipping_are_traced_too(position, activation, plainly, monkeypatch):
    """Networks with LayerNorm share a launch, and those without it another."""
    monkeypatch.setattr(mlp_ops, "recorded_plainly", lambda _device: plainly)
    norms = {"critic_layer_norm": True, "value_layer_norm": True, "layer_norm_position": position}
    learner, rows, make_batch = learner_of("iql", **norms, activation=activation, max_grad_norm=0.1)
    traced = check_traced(learner, rows, make_batch, wanted_at(learner, 0), nearly)
    if not plainly:
        assert launches(traced.graph) == {"mlp_forward": 2, "mlp_hidden_gradients": 2, "mlp_gradients": 2}


@pytest.mark.parametrize("algo", registry.names())
def test_blocks_of_traced_steps_train_as_eager_steps_do(algo, finished, tmp_path, uncompiled, operators):
    eager = finished(algo, [0, 7]).run_dir
    tiny_run(tmp_path, algo, seeds=[0, 7], engine="compile")
    assert (mode_of(eager), mode_of(tmp_path)) == ("eager", "compile")
    assert_same_run(eager, tmp_path)


@pytest.mark.parametrize("algo", ["td3_bc", "rlpd"])
def test_cut_and_resumed_blocks_train_as_eager_steps_do(algo, finished, tmp_path, uncompiled, operators):
    """Alone, with a delayed policy, and with mixed batches in two phases."""
    eager = finished(algo).run_dir
    die_at_each(partial(tiny_run, tmp_path, algo, engine="compile"), (("checkpoint", 30), ("log", 110)))
    assert (mode_of(eager), mode_of(tmp_path)) == ("eager", "compile")
    assert_same_run(eager, tmp_path)


@pytest.mark.parametrize(("algo", "seeds"), [("iql", None), ("sac", [0, 7])], ids=["offline", "online"])
def test_the_compiler_changes_nothing_but_rounding_and_its_runs_resume(algo, seeds, tmp_path):
    def run(name, mode="compile", **options):
        tiny_run(tmp_path / name, algo, seeds=seeds, engine=mode, eval_interval=1000, **options)

    run("eager", "eager")
    run("compile")
    for here, there in zip(metric_rows(tmp_path / "eager"), metric_rows(tmp_path / "compile"), strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=1e-5)
    assert mode_of(tmp_path / "compile") == "compile"
    if algo == "iql":  # what is cut and resumed above without the compiler need not be again
        die_at_each(partial(run, "cut"), [("checkpoint", 30)])
        assert_same_run(tmp_path / "compile", tmp_path / "cut")


def test_a_population_with_all_groups_due_gets_the_layouts_it_was_compiled_for(tmp_path, uncompiled):
    """As those of other algorithms do above; RLPD's temperature is due where it is asked for."""
    kwargs = {"alpha": "auto", "actor_interval": 1, "offline_pretrain_updates": 0}
    tiny_run(tmp_path, "rlpd", seeds=[0, 7, 9], engine="compile", total_timesteps=20, eval_interval=100, algo_kwargs=kwargs)
    assert mode_of(tmp_path) == "compile"


@pytest.mark.parametrize("failing_call", [1, 2], ids=["at once", "half way"])
def test_a_failure_falls_back_with_one_warning_and_is_recorded(failing_call, finished, tmp_path, monkeypatch, operators):
    eager, calls = finished("td3_bc").run_dir, []

    def compile_badly(traced):
        calls.append(traced)
        if len(calls) >= failing_call:
            raise RuntimeError("no such instruction\nand much more")
        return traced.graph

    monkeypatch.setattr(compiled, "compile_traced", compile_badly)
    warned = []
    tiny_run(tmp_path, "td3_bc", engine="compile", reporter=Warnings(warned))
    assert len(warned) == 1
    assert "going on with `eager`" in warned[0]
    assert "\n" not in warned[0]
    assert mode_of(tmp_path) == "eager"
    assert_same_run(eager, tmp_path)


def test_a_run_of_two_phases_falls_back_once(tmp_path, monkeypatch):
    def compile_never(_traced):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(compiled, "compile_traced", compile_never)
    warned = []
    tiny_run(tmp_path, "iql", engine="compile", finetune={"env_steps": 30}, reporter=Warnings(warned))
    assert len([text for text in warned if "going on with `eager`" in text]) == 1


def test_a_finetune_asked_for_at_once_or_later_is_compiled_alike(tmp_path, monkeypatch, uncompiled):
    monkeypatch.setitem(STEPS_WORTH_COMPILING, "cpu", 130)  # more than the offline steps, fewer than all
    for name, first in (("once", {"finetune": {"env_steps": 30}}), ("later", {})):
        tiny_run(tmp_path / name, "iql", **first)
    tiny_run(tmp_path / "later", "iql", finetune={"env_steps": 30}, resume=True)
    assert mode_of(tmp_path / "once") == mode_of(tmp_path / "later")
    assert_same_run(tmp_path / "once", tmp_path / "later")


def test_without_a_compiler_the_warning_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/not/there")
    warned = []
    tiny_run(tmp_path, "iql", engine="compile", reporter=Warnings(warned))
    assert len(warned) == 1
    assert "install g++, or name one in CXX" in warned[0]


@pytest.mark.parametrize(("device", "notes"), [("cuda", 3), ("cpu", 1)])
def test_a_compiled_run_says_once_which_networks_have_no_kernel(device, notes, monkeypatch):
    monkeypatch.setattr(mlp_ops, "triton_available", lambda: True)
    learner, _, _ = learner_of("iql", critic_hidden_sizes=[16, 100], critic_layer_norm=True, activation="gelu")
    config = make_config({"algo": "iql", "env_id": "Pendulum-v1"})
    execution = replace(resolve_execution(config, learner, None), device=device, mode="compile")
    said = []
    executor = Executor(execution, warn=said.append, note=said.append)
    executor.announce(learner)
    executor.announce(learner)
    assert len(said) == notes
    assert "compiling the first steps" in said[0]
    reason = "no kernel for hidden layers of 16, 100 units (powers of two from 16 to 512 have one)"
    assert (
        said[1:]
        == [f"{name}: {reason}; compiled operation by operation, slower" for name in ("critic", "value")][: notes - 1]
    )
    dropping, _, _ = learner_of("iql", actor_dropout=0.1)
    assert [network.without_kernel for network in dropping.model.networks] == [
        "dropout" if network.name == "actor" else None for network in dropping.model.networks
    ]


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


def test_garbage_that_compiling_left_is_collected_later():
    class Ring:
        def __init__(self):
            self.own = self

    with compiled._garbage_kept():
        assert not gc.isenabled()
        left = weakref.ref(Ring())
    assert gc.isenabled()
    gc.collect()
    assert left() is None
