"""`rl-training bench`: what it reports, its ceilings, and the comparison, played by a stub that speaks the protocol."""

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import torch
from benchmarks.timing import best_times
from torch.utils._python_dispatch import TorchDispatchMode

from rl_training import registry
from rl_training.bench import against, d3rlpy_worker, measure, sb3_worker, worker
from rl_training.bench.against import D3RLPY
from rl_training.bench.ceilings import products, traffic_bytes
from rl_training.bench.passes import PASSES, Pass, Shapes, updates_of
from rl_training.bench.rounds import Timing, alternate
from rl_training.cli import run
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.runtime.execution.mode import resolve_execution
from tests.helpers import command, environment

CPU = torch.device("cpu")
TINY = [
    "--hidden",
    "16,16",
    "--rows",
    "1000",
    "--batch-size",
    "32",
    "--seconds",
    "0.05",
    "--device",
    "cpu",
    "--engine",
    "eager",
]
FIGURES = {
    "rounds",
    "steps_per_round",
    "steps_per_second",
    "steps_per_second_median",
    "steps_per_second_worst",
    "member_updates_per_second",
    "step_seconds",
    "kernels_per_step",
    "products_seconds",
    "traffic_bytes",
    "copy_bytes_per_second",
    "traffic_seconds",
    "share_of_products",
    "share_of_products_and_traffic",
    "against",
}


@pytest.fixture(autouse=True)
def _small_copy(monkeypatch):
    monkeypatch.setattr("rl_training.bench.ceilings._COPY_BYTES", {"cpu": 2**20, "cuda": 2**20})


def bench(capsys, *arguments):
    """The JSON object of a bench, and what it said on standard error."""
    code = run(["bench", *TINY, "--json", *arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert len(out.splitlines()) == 1
    return json.loads(out), err


def refused(capsys, *arguments):
    """The one line that a refused bench says."""
    assert run(["bench", *TINY, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert err.splitlines()[-1] == lines[0]
    return lines[0]


def settings_of(algo, **kwargs):
    shape = {"hidden_sizes": [16, 16], "batch_size": 8}
    return make_config({"algo": algo, "env_id": "Pendulum-v1", "engine": "eager", "algo_kwargs": {**shape, **kwargs}})


def test_all_algorithms_in_one_object(capsys):
    figures, err = bench(capsys, "--algo", "all")
    assert [result["algo"] for result in figures["results"]] == registry.names()
    assert set(figures) == {"rl_training", "torch", "machine", "device_name", "results"}
    for result in figures["results"]:
        assert set(result) >= FIGURES
        assert result["engine"] == "eager"
        assert (result["device"], result["precision"], result["threads"]) == ("cpu", "float32", torch.get_num_threads())
        assert result["rounds"] >= 3
        assert result["kernels_per_step"] is None
        assert result["against"] is None
        assert result["steps_per_second"] >= result["steps_per_second_median"] >= result["steps_per_second_worst"] > 0
        assert result["member_updates_per_second"] == result["steps_per_second"]
        both = result["products_seconds"] + result["traffic_seconds"]
        assert result["share_of_products"] == pytest.approx(result["products_seconds"] * result["steps_per_second"])
        assert result["share_of_products_and_traffic"] == pytest.approx(both * result["steps_per_second"])
        assert f"{result['algo']}: " in err


def test_members_shapes_and_settings_reach_the_run(capsys):
    figures, _ = bench(capsys, "--algo", "redq", "--members", "3", "--obs", "5", "--act", "2", "--set", "actor_interval=4")
    (result,) = figures["results"]
    assert (result["members"], result["observations"], result["actions"], result["rows"]) == (3, 5, 2, 1000)
    assert (result["hidden_sizes"], result["batch_size"]) == ([16, 16], 32)
    assert result["member_updates_per_second"] == pytest.approx(3 * result["steps_per_second"])
    assert result["steps_per_round"] % 4 == 0


def test_the_table_has_a_line_per_algorithm(capsys):
    assert run(["bench", *TINY, "--algo", "td3_bc"]) == 0
    out, err = capsys.readouterr()
    head, *_, names, values, end = out.splitlines()
    assert "obs 11, act 3" in head
    assert "engine eager, float32, threads" in out
    assert "share of products" in names
    assert values.split()[:3] == ["td3_bc", "16x16", "32"]
    assert "best round" in end
    assert "td3_bc: getting ready" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algo", "iqll"], "Did you mean `iql`?"),
        (["--algo", "iql", "--hidden", "16,x"], "--hidden '16,x'"),
        (["--algo", "iql", "--members", "0"], "`members` = 0 is not legal"),
        (["--algo", "iql", "--seconds", "0"], "`seconds` = 0.0 is not legal"),
        (["--algo", "iql", "--set", "expectle=0.8"], "Did you mean `algo_kwargs.expectile`?|Did you mean `expectile`?"),
        (["--algo", "iql", "--set", "dataset.kind=random"], "makes its own rows"),
        (["--algo", "iql", "--engine", "fast"], "`engine` = 'fast'"),
        (["--algo", "iql", "--device", "tpu"], "`device` = 'tpu'"),
        (["--algo", "iql", "--against", "corl"], "only `d3rlpy` is known without --end-to-end"),
        (["--algo", "iql", "--against-python", "python3"], "goes with --against"),
        (
            ["--algo", "xql", "--against", "d3rlpy"],
            "no twin of xql; --against d3rlpy compares iql, awac, td3_bc, td3, sac, cql",
        ),
        (["--algo", "iql", "--against", "d3rlpy", "--set", "max_grad_norm=1.0"], "max_grad_norm=... has no twin"),
        (["--algo", "iql", "--against", "d3rlpy", "--precision", "bf16"], "d3rlpy has no bf16"),
    ],
)
def test_refusals_are_one_line(capsys, monkeypatch, arguments, words):
    monkeypatch.setenv(D3RLPY.variable, sys.executable)
    line = refused(capsys, *arguments)
    assert any(word in line for word in words.split("|")), line


def test_help_loads_no_torch():
    code = "import sys; from rl_training.cli import run; run(['bench', '--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([*command()[:1], "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert "--against-python" in done.stdout


# ceilings


def test_every_algorithm_has_its_passes():
    assert set(PASSES) <= set(registry.names())


def test_passes_of_td3_bc_and_cql_by_hand():
    shapes = Shapes(3, 2, settings_of("td3_bc").algo_kwargs)
    policy, scores = (3, 16, 16, 2), (5, 16, 16, 1)
    critic = (Pass(1, policy, 8), Pass(2, scores, 8), Pass(2, scores, 8, "weights"))
    actor = (Pass(1, policy, 8, "weights"), Pass(1, scores, 8, "inputs", 2))
    assert updates_of("td3_bc", shapes) == [critic, (*critic, *actor)]
    shapes = Shapes(3, 2, settings_of("cql", num_cql_samples=4).algo_kwargs)
    (update,) = updates_of("cql", shapes, members=3)
    assert update == (
        Pass(3, (3, 16, 16, 4), 8),
        Pass(6, scores, 8),
        Pass(6, scores, 8 * 13, "weights"),
        Pass(3, (3, 16, 16, 4), 8, "weights"),
        Pass(6, scores, 8, "inputs", 2),
    )


class Products(TorchDispatchMode):
    """The sizes (stack, rows, inner, columns) of every matrix product, a transposed one as the product it stands for."""

    def __init__(self):
        super().__init__()
        self.sizes = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in (torch.ops.aten.bmm, torch.ops.aten.baddbmm):
            left, right = args[-2:]
            stack, rows, inner = left.shape
            self.sizes[(stack, inner, *sorted((rows, right.shape[-1])))] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("algo", registry.names())
def test_the_ceiling_multiplies_what_an_update_multiplies(algo):
    config = settings_of(algo)
    taken, _ = measure.bench_steps(config, measure.synthetic(100, 3, 2, registry.get_spec(algo).needs), CPU)
    updates = updates_of(algo, Shapes(3, 2, config.algo_kwargs))
    multiply, steps = products(updates, CPU, "float32")
    assert steps == len(updates)
    with Products() as ceiling:
        multiply()
    with Products() as update:
        measure.take_steps(taken, steps)
    assert not ceiling.sizes - update.sizes
    more = {size for size in update.sizes - ceiling.sizes if size[2] != 1}  # sums over the batch are products with ones
    # the policy at s, for CQL's samples: the pass that trains it could give it
    assert more == ({(1, 3, 8, 16), (1, 16, 8, 16), (1, 16, 4, 8)} if algo in ("cql", "cal_ql") else set())


def test_traffic_by_hand():
    config = settings_of("td3_bc")
    steps, _ = measure.bench_steps(config, measure.synthetic(100, 3, 2), CPU)
    critics = 2 * (5 * 16 + 16 + 16 * 16 + 16 + 16 + 1)
    actor = 3 * 16 + 16 + 16 * 16 + 16 + 16 * 2 + 2
    both_steps = 7 * (2 * critics + actor) + 2 * (critics + actor)  # policy and targets move every other step
    assert traffic_bytes(steps.learner, 2) == 4 * both_steps / 2


def test_rounds_take_turns_and_the_best_counts():
    order = []
    times = iter((3.0, 9.0, 1.0, 7.0, 2.0, 8.0))

    def round_of(name):
        def one():
            order.append(name)
            return next(times)

        return one

    first, second = alternate([round_of("a"), round_of("b")], rounds=3)
    assert order == ["a", "b"] * 3
    assert (first.best, first.median, first.worst) == (1.0, 2.0, 3.0)
    assert second == Timing((9.0, 7.0, 8.0))
    assert first.rates(6) == {"best": 6.0, "median": 3.0, "worst": 2.0}
    calls = []
    assert len(best_times([lambda: calls.append(1)], 2)) == 1
    assert len(calls) == 3


def test_a_bench_takes_the_steps_of_a_training_run():
    config = settings_of("sac")
    data = measure.synthetic(100, 3, 2)
    taken, how = measure.bench_steps(config, data, CPU)
    assert how.execution == resolve_execution(config, taken.learner, None, 10**9)
    measure.take_steps(taken, taken.chunk + 3)
    assert taken.learner.step == taken.chunk + 3
    assert set(taken.run(taken.learner.step, 1)) == set(taken.learner.metric_names)


# the other library

WORKER = """
import json, sys
settings = json.loads(sys.stdin.readline())
print("chatter of a library", file=sys.stderr)
print(json.dumps({"version": "0", "settings": settings, "arguments": sys.argv[1:]}), flush=True)
for line in sys.stdin:
    count = int(line.removeprefix("round "))
    print(json.dumps({"seconds": count / 100, "sampling_seconds": count / 400}), flush=True)
"""


def stub(folder, body):
    """A program that stands for the Python with d3rlpy."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(0o755)
    return str(path)


def test_the_comparison(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv(D3RLPY.variable, stub(tmp_path, WORKER))
    figures, err = bench(capsys, "--algo", "cql", "--members", "2", "--against", "d3rlpy", "--set", "num_cql_samples=3")
    (result,) = figures["results"]
    other = result["against"]
    assert other["library"] == "d3rlpy"
    assert other["algorithm"] == "CQL"
    assert other["steps_per_second"] == pytest.approx(100.0)
    assert other["steps_per_second_without_sampling"] == pytest.approx(100.0 / 0.75)
    assert other["ratio"] == pytest.approx(result["member_updates_per_second"] / 100.0)
    assert other["ratio_without_its_sampling"] == pytest.approx(0.75 * other["ratio"])
    received = other["versions"]["settings"]
    assert received.pop("threads") == result["threads"]
    assert received == {
        "algorithm": "CQL",
        "rows": 1000,
        "observations": 11,
        "actions": 3,
        "hidden_sizes": [16, 16],
        "batch_size": 32,
        "num_critics": 2,
        "num_cql_samples": 3,
        "device": "cpu",
        "tf32": False,
        "compile_graph": False,
    }
    assert other["versions"]["arguments"] == ["-I", d3rlpy_worker.__file__]
    assert "chatter" not in err
    assert "in turns with d3rlpy" in err


def test_all_meets_a_rival_where_there_is_a_twin(capsys, tmp_path):
    python = stub(tmp_path, WORKER)
    figures, _ = bench(capsys, "--algo", "all", "--against", "d3rlpy", "--against-python", python)
    assert {r["algo"] for r in figures["results"] if r["against"]} == set(against.TWINS)
    assert run(["bench", *TINY, "--algo", "sac", "--against", "d3rlpy", "--against-python", python]) == 0
    assert "ours / d3rlpy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise SystemExit('no module named d3rlpy')", "d3rlpy stopped (exit code 1): no module named d3rlpy"),
        ("import sys; sys.stdin.close(); sys.exit(3)", "d3rlpy stopped (exit code 3): no output"),
        ("print('hello', flush=True); input(); input()", "worker answered 'hello'"),
        ("print('{}', flush=True); input(); input(); print('{}', flush=True); input()", "worker answered '{}'"),
        (WORKER.replace("count =", "raise RuntimeError('burnt'); count ="), "(exit code 1): RuntimeError: burnt"),
    ],
)
def test_whatever_breaks_over_there_is_one_line(capsys, tmp_path, body, words):
    line = refused(capsys, "--algo", "iql", "--against", "d3rlpy", "--against-python", stub(tmp_path, body))
    assert words in line


def test_a_silent_worker_is_given_up(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "ANSWER_SECONDS", 0.2)
    line = refused(capsys, "--algo", "iql", "--against", "d3rlpy", "--against-python", stub(tmp_path, "input(); input()"))
    assert "did not answer within 0.2 s" in line


def test_where_the_python_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(D3RLPY.variable, raising=False)
    with pytest.raises(ConfigError, match="python3 -m venv .venv-d3rlpy"):
        D3RLPY.find_python(None)
    with pytest.raises(ConfigError, match="--against-python: absent is not a program; .*venv"):
        D3RLPY.find_python("absent")
    local = tmp_path / D3RLPY.local_python
    local.parent.mkdir(parents=True)
    stub(local.parent, WORKER)
    assert D3RLPY.find_python(None) == local
    monkeypatch.setenv(D3RLPY.variable, "elsewhere")
    with pytest.raises(ConfigError, match="RL_TRAINING_D3RLPY_PYTHON: elsewhere is not a program"):
        D3RLPY.find_python(None)
    assert D3RLPY.find_python(str(local)) == local
    local.write_text("no program")
    with (
        pytest.raises(ConfigError, match="cannot be started.*a Python with d3rlpy"),
        worker.started("d3rlpy", [local], {}),
    ):
        pass


def test_workers_stand_alone():
    for module in (d3rlpy_worker, sb3_worker):
        assert "rl_training" not in Path(module.__file__).read_text()


@pytest.mark.skipif(D3RLPY.variable not in os.environ, reason="needs a Python with d3rlpy")
@pytest.mark.parametrize("algo", list(against.TWINS))
def test_d3rlpy_itself(capsys, algo):
    figures, _ = bench(capsys, "--algo", algo, "--against", "d3rlpy")
    other = figures["results"][0]["against"]
    assert other["versions"]["version"].startswith("2.")
    assert other["steps_per_second_without_sampling"] > other["steps_per_second"] > 0
