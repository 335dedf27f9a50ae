"""Long crash checks (`make test-faults`): many kills of real processes, and kills at every named place of a run."""

import signal
import subprocess

import pytest
import yaml

from rl_training import faults
from rl_training.config.loading import make_config
from rl_training.experiment.manager import ExperimentManager
from tests.helpers import assert_same_run, command, environment, generator, is_online, run_values

LONG = {"total_timesteps": 2000, "eval_interval": 500, "checkpoint_interval": 50, "log_interval": 25}
ALGORITHMS = ["iql", "cql", "sac"]  # an offline one, one with dual variables and noise, an online one
PLACES = [
    "save:before-rename@7",
    "save:after-rename@9",
    "save:state.json:half@5",
    "evaluation:done@2",
    "metrics:row@31",
    "save:prune@3",
]
ONLINE_PLACES = ["save:before-replay@4", "save:after-replay@6", "save:prune-replay@2"]
CASES = [*((algo, place) for algo in ALGORITHMS for place in PLACES), *(("sac", place) for place in ONLINE_PLACES)]


def values(algo):
    """The ring of an online run is small enough to move on, so that segments are pruned."""
    return run_values(algo, **LONG, **({"algo_kwargs": {"buffer_capacity": 400}} if is_online(algo) else {}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run of each algorithm, made when first asked for."""
    paths = {}

    def run(algo):
        if algo not in paths:
            paths[algo] = tmp_path_factory.mktemp(algo)
            ExperimentManager(make_config(values(algo)), paths[algo]).train()
        return paths[algo]

    return run


def start(tmp_path, algo, **extra):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(values(algo)))
    arguments = command("train", tmp_path / "c.yaml", "--run-dir", tmp_path / "run", "--resume", "auto")
    return subprocess.Popen(arguments, env=environment(**extra), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.faults
@pytest.mark.parametrize(("algo", "place"), CASES)
def test_killed_at_a_named_place(whole, tmp_path, algo, place):
    process = start(tmp_path, algo, **{faults.VARIABLE: place})
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    again = start(tmp_path, algo)
    again.communicate(timeout=300)
    assert again.returncode == 0
    assert_same_run(whole(algo), tmp_path / "run")


@pytest.mark.faults
@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_ten_interruptions_in_a_row(whole, tmp_path, algo, number):
    """Each process is stopped after a few checkpoints of its own, at a place drawn beforehand."""
    draw, reached = generator(11), -1
    for _ in range(10):
        process = start(tmp_path, algo)
        wanted = int(draw.integers(1, 4))
        for line in process.stderr:
            if line.startswith("saved "):
                wanted -= 1
                now = int(line.split()[-1])
            if wanted == 0:
                break
        process.send_signal(number)
        process.communicate(timeout=300)
        assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM)
        assert reached < now < 2000
        reached = now
    last = start(tmp_path, algo)
    last.communicate(timeout=300)
    assert last.returncode == 0
    assert_same_run(whole(algo), tmp_path / "run")
