"""On a CUDA device: runs repeat and resume bit for bit, and say the same as on the CPU."""

import json

import pytest
import torch

from rl_training.bench.ceilings import products
from rl_training.bench.kernels import kernels_per_step
from rl_training.bench.passes import Shapes, updates_of
from rl_training.cli import run
from rl_training.data import TransitionDataset, save_dataset
from rl_training.experiment import registry
from rl_training.experiment.config import make_config
from tests.helpers import Cut, CutAt, assert_same_run, metric_rows, small_arrays, tiny_run

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
    for device in ("cpu", "cuda"):
        tiny_run(tmp_path / device, algo, device=device, eval_interval=1000, total_timesteps=60)
    rows = {device: [r for r in metric_rows(tmp_path / device) if "train/critic_loss" in r] for device in ("cpu", "cuda")}
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


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_the_ceiling_is_one_graph_in_the_precision_asked_for(precision):
    updates = updates_of("td3_bc", Shapes(11, 3, make_config({"algo": "td3_bc"}).algo_kwargs))
    allowed = torch.backends.cuda.matmul.allow_tf32
    multiply, steps = products(updates, (256, 256), torch.device("cuda"), precision)
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
