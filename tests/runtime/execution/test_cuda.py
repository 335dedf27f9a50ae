"""On a CUDA device: runs repeat and resume bit for bit, and say the same as on the CPU."""

import json

import pytest
import torch

from rl_training import registry
from rl_training.bench.ceilings import products
from rl_training.bench.kernels import kernels_per_step
from rl_training.bench.passes import Shapes, updates_of
from rl_training.cli import run
from rl_training.config.loading import make_config
from rl_training.data import TransitionDataset, save_dataset
from rl_training.rng import Draws
from rl_training.runtime.batches.dataset import DatasetBatches
from rl_training.runtime.batches.prefetch import PrefetchedBatches, dataset_batches
from rl_training.runtime.offline_data import process_offline_dataset
from rl_training.runtime.progress import LineReporter
from tests.helpers import Cut, CutAt, assert_same_run, metric_rows, run_values, small_arrays, tiny_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("seeds", [None, [0, 7]], ids=["solo", "population"])
@pytest.mark.parametrize("algo", registry.names())
def test_cut_and_resumed_equals_uninterrupted(algo, seeds, tmp_path):
    tiny_run(tmp_path / "whole", algo, seeds=seeds, device="cuda")
    for place in (("checkpoint", 30), ("log", 110)):
        with pytest.raises(Cut):
            tiny_run(tmp_path / place[0], algo, seeds=seeds, device="cuda", callbacks=[CutAt(*place)])
        tiny_run(tmp_path / place[0], algo, seeds=seeds, device="cuda", resume=True)
        assert_same_run(tmp_path / "whole", tmp_path / place[0])


@pytest.mark.parametrize("algo", registry.names())
def test_the_losses_are_those_of_the_cpu(algo, tmp_path):
    changes = {"eval_interval": 1000, "total_timesteps": 60}
    if algo == "edac":  # with the one action of Pendulum the gradient of its directions is rounding alone
        save_dataset(TransitionDataset.from_dict(small_arrays(rows=600, action_dim=3)), tmp_path / "d")
        changes |= {"env_id": None, "algo_kwargs": {"dataset": {"path": str(tmp_path / "d")}}}
    for device in ("cpu", "cuda"):
        tiny_run(tmp_path / device, algo, device=device, **changes)
    rows = {device: [r for r in metric_rows(tmp_path / device) if "train/actor_loss" in r] for device in ("cpu", "cuda")}
    assert len(rows["cpu"]) == len(rows["cuda"]) >= 6
    for here, there in zip(rows["cpu"], rows["cuda"], strict=True):
        for name in here:
            assert there[name] == pytest.approx(here[name], rel=1e-3, abs=1e-4), (here["step"], name)


@pytest.mark.parametrize("seeds", [None, [0, 7]], ids=["solo", "population"])
def test_streamed_training_is_that_from_memory(seeds, tmp_path):
    save_dataset(TransitionDataset.from_dict(small_arrays(rows=30_000, length=50, observation_dim=5)), tmp_path / "d")
    for name, limit in (("memory", "1GiB"), ("streamed", "1MiB")):
        settings = {"dataset": {"path": str(tmp_path / "d")}, "max_dataset_bytes": limit}
        changes = {"total_timesteps": 600, "eval_interval": 200, "log_interval": 100}
        tiny_run(tmp_path / name, env_id=None, device="cuda", seeds=seeds, algo_kwargs=settings, **changes)
    assert_same_run(tmp_path / "memory", tmp_path / "streamed")


@pytest.mark.parametrize("algo", ["iql", "rlpd"])
def test_rows_beyond_the_devices_memory_stay_on_the_host_with_the_same_result(algo, tmp_path, monkeypatch, capsys):
    tiny_run(tmp_path / "device", algo, device="cuda")
    monkeypatch.setattr("rl_training.runtime.batches.prefetch.DEVICE_SHARE", 0.0)
    tiny_run(tmp_path / "host", algo, device="cuda", reporter=LineReporter())
    assert "rows stay in the host's memory" in capsys.readouterr().err
    assert_same_run(tmp_path / "device", tmp_path / "host")


def indices_of(source, first, count):
    """Load the rows of some steps, and return where they are."""
    draws = Draws.of_steps(source.seeds, first, count)
    source.load(first, count)
    return source.indices(lambda stream: draws.bits(stream, (source.batch_size,), 0, count), count)[0]


def test_rows_fetched_ahead_are_not_overwritten_while_they_are_in_use():
    """Batches are read late, behind a queue of slow kernels, as a step without a synchronisation would read them."""
    columns = small_arrays(rows=20_000, length=50, observation_dim=5)
    config = make_config(run_values(env_id=None, algo_kwargs={"normalize_observations": False}))
    data = process_offline_dataset(TransitionDataset.from_dict(columns), config)
    device = torch.device("cuda")
    source = dataset_batches(data, torch.tensor([0, 7], device=device), 256, device, device_bytes=0)
    plain = dataset_batches(data, torch.tensor([0, 7], device=device), 256, device)
    assert (type(source), type(plain)) == (PrefetchedBatches, DatasetBatches)
    slow, gathered = torch.randn(2048, 2048, generator=torch.Generator(device).manual_seed(0), device=device), []
    for first in range(0, 200, 20):
        indices = indices_of(source, first, 20)
        for _ in range(20):
            slow = torch.tanh(slow @ slow)
        gathered.append(source.gather(indices))
    for number, rows in enumerate(gathered):
        assert torch.equal(rows, plain.gather(indices_of(plain, 20 * number, 20)))
    source.close()


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_the_ceiling_is_one_graph_in_the_precision_asked_for(precision):
    updates = updates_of("td3_bc", Shapes(11, 3, make_config({"algo": "td3_bc"}).algo_kwargs))
    allowed, allocated = torch.backends.cuda.matmul.allow_tf32, torch.cuda.memory_allocated()
    multiply, steps = products(updates, torch.device("cuda"), precision)
    activation = 256 * 256 * (2 if precision == "bf16" else 4)
    assert torch.cuda.memory_allocated() > allocated + 10 * activation  # what the graph reads and writes is still held
    assert torch.backends.cuda.matmul.allow_tf32 == allowed
    assert steps % len(updates) == 0
    assert steps >= 20
    kernels = kernels_per_step(multiply, steps, torch.device("cuda"))
    assert kernels is not None
    least = sum({"none": 3, "weights": 8, "inputs": 6}[one.gradient] for update in updates for one in update) / len(updates)
    assert least <= kernels < 3 * least  # a product may take a second kernel


def test_bench_counts_kernels(capsys):
    tiny = ["--hidden", "16,16", "--rows", "1000", "--seconds", "0.1"]
    assert run(["bench", "--algo", "iql", "--device", "cuda", "--engine", "eager", "--json", *tiny]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["device"] == "cuda"
    assert result["kernels_per_step"] > 50
    assert result["copy_bytes_per_second"] > 1e10
