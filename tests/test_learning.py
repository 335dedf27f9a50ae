"""They learn: packaged configs, four seeds as one population, twenty fixed episodes each, the last checkpoint."""

import json
import subprocess
from itertools import pairwise

import pytest
import torch

from rl_training.config.loading import load_config
from tests.helpers import command, environment, metric_rows

BARS = {
    "iql/pendulum": -200.0,
    "iql/pendulum-mixture": -180.0,
    "xql/pendulum": -200.0,
    "xql/pendulum-mixture": -180.0,
    "awac/pendulum": -200.0,
    "awac/pendulum-mixture": -180.0,
    "td3_bc/pendulum": -250.0,
    "td3_bc/pendulum-mixture": -180.0,
    "rebrac/pendulum": -200.0,
    "rebrac/pendulum-mixture": -180.0,
    "cql/pendulum": -200.0,
    "cql/pendulum-mixture": -180.0,
    "cal_ql/pendulum": -200.0,
    "cal_ql/pendulum-mixture": -180.0,
    "sac_n/pendulum": -200.0,
    "sac_n/pendulum-mixture": -180.0,
    "edac/pendulum": -200.0,
    "edac/pendulum-mixture": -180.0,
    "fql/pendulum": -200.0,
    "fql/pendulum-mixture": -180.0,
    "td3/pendulum": -180.0,
    "sac/pendulum": -180.0,
    "redq/pendulum": -180.0,
    "rlpd/pendulum": -180.0,
}
CONTROLLER = "algo_kwargs.dataset={kind: scripted, size: 50000, seed: 1, noise: 0.5}"
RANDOM_POLICY = -1230.0  # mean return of uniformly random actions


def call(*arguments):
    done = subprocess.run(command(*arguments), env=environment(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def train(name, run_dir, *settings, seeds="0..3"):
    options = [part for setting in settings for part in ("--set", setting)]
    call("train", name, "--run-dir", run_dir, "--seeds", seeds, "--json", *options)


def curve(run_dir, counter):
    """Mean return over the seeds by the count at which it was measured; online rows count environment steps."""
    returns = {}
    for row in metric_rows(run_dir):
        if "eval/return_mean" in row and ("env_step" in row) == (counter == "env_step"):
            returns.setdefault(row[counter], []).append(row["eval/return_mean"])
    return {count: sum(values) / len(values) for count, values in returns.items()}


def assert_learned(name, run_dir):
    report = call("evaluate", run_dir, "--episodes", "20", "--json")
    means = [round(member["return_mean"], 1) for member in report["members"]]
    print(f"\n{name}: mean {report['return_mean']:.1f}, seeds {means}, 95 % {report['return_interval']}")
    assert report["return_mean"] >= BARS[name]
    assert min(means) >= BARS[name] - 100.0


@pytest.mark.learning
def test_behaviour_cloning_does_what_the_data_does(tmp_path):
    """Cloning a controller gives the controller; cloning it mixed with noise, something between the two."""
    train("bc/pendulum-mixture", tmp_path / "controller", CONTROLLER)
    train("bc/pendulum-mixture", tmp_path / "mixture")
    reports = [call("evaluate", tmp_path / run, "--episodes", "20", "--json") for run in ("controller", "mixture")]
    means = [report["return_mean"] for report in reports]
    print(f"\nbc of a controller: {means[0]:.1f}, of a mixture: {means[1]:.1f}")
    assert means[0] >= -220.0
    assert means[0] - 300.0 > means[1] > RANDOM_POLICY


@pytest.mark.learning
@pytest.mark.parametrize("name", BARS)
def test_it_learns(name, tmp_path):
    train(name, tmp_path / "run")
    assert_learned(name, tmp_path / "run")


@pytest.mark.learning
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("name", [name for name in BARS if "mixture" not in name])
def test_it_learns_in_graphs(name, precision, tmp_path):
    train(name, tmp_path / "run", "engine=graph", f"precision={precision}", "device=cuda", seeds="0..7")
    assert_learned(name, tmp_path / "run")


def needs(returns, bar=-200.0):
    """The first of two consecutive evaluations at or above the bar."""
    counts = sorted(returns)
    pairs = pairwise(counts)
    return next(first for first, second in pairs if min(returns[first], returns[second]) >= bar)


@pytest.mark.learning
def test_prior_data_halves_the_environment_steps(tmp_path):
    configs = {name: load_config(f"{name}/pendulum").algo_kwargs for name in ("sac", "rlpd")}
    for key in ("hidden_sizes", "actor_learning_rate", "critic_learning_rate", "learning_starts", "train_frequency"):
        assert getattr(configs["sac"], key) == getattr(configs["rlpd"], key)
    assert configs["sac"].gradient_updates_per_step == configs["rlpd"].gradient_updates_per_step
    curves = {}
    for name in configs:
        train(f"{name}/pendulum", tmp_path / name, "eval_interval=500", "eval_episodes=20", "total_timesteps=6000")
        curves[name] = curve(tmp_path / name, "env_step")
        print(f"\n{name}: needs {needs(curves[name])}; { ({k: round(v) for k, v in curves[name].items()}) }")
    assert needs(curves["rlpd"]) <= needs(curves["sac"]) / 2


@pytest.mark.learning
@pytest.mark.parametrize("algo", ["iql", "cal_ql"])
def test_finetuning_keeps_what_was_learned_and_adds_to_it(algo, tmp_path):
    run = tmp_path / "run"
    train(f"{algo}/pendulum", run, "eval_interval=1000", "eval_episodes=20", "checkpoint_interval=5000")
    offline = curve(run, "step")
    offline = offline[max(offline)]
    gentle = ["--set", "learning_rate_factor=0.3", "--set", "prior_ratio=0.25"]
    call("finetune", run, "--env-steps", "10000", "--json", *gentle)
    online = curve(run, "env_step")
    print(f"\n{algo}: offline {offline:.1f}, online { ({k: round(v, 1) for k, v in online.items()}) }")
    assert online[10000] >= max(-170.0, offline - 10.0)
    assert min(value for count, value in online.items() if count <= 5000) >= offline - 0.2 * (offline - RANDOM_POLICY)
