"""Normalised scores: the published ends of the scale, and names in all their spellings."""

import json

import pytest

from rl_training.data import normalized_score
from rl_training.envs.reference_scores import REFERENCES, reference_of, reference_source
from rl_training.errors import ConfigError
from tests.helpers import call_cli


@pytest.mark.parametrize("task", REFERENCES)
def test_the_ends_of_the_scale(task):
    low, high = REFERENCES[task]
    assert low < high
    assert normalized_score(low, task) == 0.0
    assert normalized_score(high, task) == pytest.approx(100.0)
    assert reference_source(task) in ("D4RL", "NeoRL-2")


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("hopper-medium-v2", "hopper"),
        ("Hopper-v5", "hopper"),
        ("HalfCheetah-v4", "halfcheetah"),
        ("walker2d-medium-replay-v2", "walker2d"),
        ("antmaze-umaze-diverse-v2", "antmaze"),
        ("Ant-v5", "ant"),
        ("maze2d-umaze-dense-v1", "maze2d-umaze-dense"),
        ("maze2d-umaze-v1", "maze2d-umaze"),
        ("D4RL/pen/human-v2", "pen"),
        ("AdroitHandDoor-v1", "door"),
        ("kitchen-mixed-v0", "kitchen"),
        ("DMSD", "dmsd"),
        ("Pipeline", "pipeline"),
    ],
)
def test_names(name, task):
    assert reference_of(name)[0] == task


def test_published_scores():
    """The scores that NeoRL-2 gives for its own data (`benchmark/task_score.csv`), and D4RL's expert hopper."""
    assert normalized_score(494.4527188, "DMSD") == pytest.approx(56.643, abs=1e-3)
    assert normalized_score(429.0072265625, "Pipeline") == pytest.approx(69.246, abs=1e-3)
    assert normalized_score(353.4518694, "Simglucose") == pytest.approx(73.875, abs=1e-3)
    assert normalized_score(3234.3, "hopper-expert-v2") == pytest.approx(100.0)


def test_unknown_tasks_are_refused():
    with pytest.raises(ConfigError, match="Did you mean `hopper`"):
        reference_of("hoper-medium-v2")
    with pytest.raises(ConfigError, match="There are: halfcheetah"):
        normalized_score(1.0, "Pendulum-v1")


def test_evaluate_from_the_shell(finished, capsys):
    run = finished().run_dir
    assert "no reference returns" in call_cli(capsys, "evaluate", run, "--normalize", code=2).stderr
    arguments = ("evaluate", run, "--episodes", "2", "--normalize", "--reference", "hopper-medium-v2")
    report = json.loads(call_cli(capsys, *arguments, "--json").stdout)
    assert report["reference"] == "hopper"
    assert report["normalized_score"] == pytest.approx(normalized_score(report["return_mean"], "hopper"))
    assert "score " in call_cli(capsys, *arguments).stdout
