"""Long crash checks (`make test-faults`): many kills of real processes, and kills at every named place of a run."""

import signal
import subprocess

import pytest
import yaml

from rl_training.runtime import faults
from tests.helpers import assert_same_run, command, environment, generator, run_values, tiny_run

LONG = {"total_timesteps": 2000, "eval_interval": 500, "checkpoint_interval": 50, "log_interval": 25}
PLACES = [
    "save:before-rename@7",
    "save:after-rename@9",
    "save:state.json:half@5",
    "evaluation:done@2",
    "metrics:row@31",
    "save:prune@3",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    tiny_run(path, **LONG)
    return path


def start(tmp_path, **extra):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values(**LONG)))
    arguments = command("train", tmp_path / "c.yaml", "--run-dir", tmp_path / "run", "--resume", "auto")
    return subprocess.Popen(arguments, env=environment(**extra), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.faults
@pytest.mark.parametrize("place", PLACES)
def test_killed_at_a_named_place(whole, tmp_path, place):
    process = start(tmp_path, **{faults.VARIABLE: place})
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    again = start(tmp_path)
    again.communicate(timeout=300)
    assert again.returncode == 0
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_ten_interruptions_in_a_row(whole, tmp_path, number):
    """Each process is stopped after a few checkpoints of its own, at a place drawn beforehand."""
    draw, reached = generator(11), -1
    for _ in range(10):
        process = start(tmp_path)
        wanted = int(draw.integers(1, 4))
        for line in process.stderr:
            if line.startswith("saved step "):
                wanted -= 1
                now = int(line.split()[-1])
            if wanted == 0:
                break
        process.send_signal(number)
        process.communicate(timeout=300)
        assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM)
        assert reached < now < 2000
        reached = now
    last = start(tmp_path)
    last.communicate(timeout=300)
    assert last.returncode == 0
    assert_same_run(whole, tmp_path / "run")
