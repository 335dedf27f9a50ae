"""`predict` by name, and what is said of a run that was never evaluated."""

import json

import numpy as np
import pytest

from rl_training import IQL, TransitionDataset
from rl_training.cli.observations import parse_observation
from rl_training.errors import ConfigError
from tests.helpers import call_cli, run_cli, small_arrays

NAMED = '{"T1": 0.5, "TSP1": 0.1, "T2": -0.5}'
SMALL = {"hidden_sizes": [16, 16], "batch_size": 64, "log_interval": 1000}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run and a population on data with names, neither evaluated, and a run without names."""
    folder, names = (
        tmp_path_factory.mktemp("named"),
        {"observation_names": ["T1", "T2", "TSP1"], "action_names": ["Q1", "Q2"]},
    )
    named = TransitionDataset.from_dict(small_arrays(rows=200), **names)
    plain = TransitionDataset.from_dict(small_arrays(rows=200))
    IQL(dataset=named, run_dir=folder / "solo", **SMALL).learn(10)
    IQL(dataset=named, run_dir=folder / "population", seeds=[4, 5], **SMALL).learn(10)
    IQL(dataset=plain, run_dir=folder / "plain", **SMALL).learn(10)
    return folder


def test_actions_without_names_are_called_by_their_numbers(runs, tmp_path, capsys):
    np.savez(tmp_path / "data.npz", **small_arrays(rows=200))
    for run, names in (("plain", ["action 0", "action 1"]), ("solo", ["Q1", "Q2"])):
        lines = call_cli(capsys, "evaluate", runs / run, "--data", tmp_path / "data.npz").stdout.splitlines()
        assert [line.strip().partition(":")[0] for line in lines if "from the logged value" in line] == names


def test_an_observation_by_name_is_answered_by_name(runs, capsys):
    done = run_cli("predict", runs / "solo", "--obs", NAMED)
    by_name = json.loads(done.stdout)
    assert list(by_name) == ["Q1", "Q2"]
    assert done.stderr == ""
    positions = json.loads(call_cli(capsys, "predict", runs / "solo", "--obs", "[0.5, -0.5, 0.1]").stdout)
    assert positions == list(by_name.values())
    batch = json.loads(call_cli(capsys, "predict", runs / "solo", "--obs", f"[{NAMED}, {NAMED}]").stdout)
    assert [list(row) for row in batch] == [["Q1", "Q2"]] * 2
    for obs in (NAMED, "[0.5, -0.5, 0.1]"):
        report = json.loads(call_cli(capsys, "predict", runs / "solo", "--obs", obs, "--json").stdout)
        assert report == {"action": positions, "action_by_name": by_name, "member": 0}


def test_a_policy_without_names(runs, capsys):
    done = call_cli(capsys, "predict", runs / "plain", "--obs", NAMED, code=2)
    assert done.stderr == (
        "error: this policy was trained without names of its observations; pass numbers in the recorded order\n"
    )
    report = json.loads(call_cli(capsys, "predict", runs / "plain", "--obs", "[1, 2, 3]", "--json").stdout)
    assert report["action_by_name"] is None


def test_an_observation_may_be_nested_as_the_environment_returns_it():
    nested = '{"arm": [1, 0.5], "goal": {"x": 1, "y": [2]}}'
    assert parse_observation(nested) == {"arm": [1, 0.5], "goal": {"x": 1, "y": [2]}}
    for wrong in ('{"arm": [1, "two"]}', '{"arm": [true]}', '{"goal": {"x": null}}', "[[1], [[2]]]"):
        with pytest.raises(ConfigError, match="must hold numbers only"):
            parse_observation(wrong)


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        ('{"T1": 1, "TSP": 2, "T2": 3}', "unknown observation 'TSP'. Did you mean `TSP1`? There are T1, T2, TSP1"),
        ('{"T1": 1, "T2": 3}', "observation `TSP1` is missing. Needed are T1, T2, TSP1"),
        ('[{"T1": 1, "T2": 3, "TSP1": 2}, {"T1": 1}]', "observation `T2` is missing"),
        ('{"T1": 1, "T1": 1, "T2": 3, "TSP1": 2}', "--obs: has the same name twice"),
        ('{"T1": "warm", "T2": 3, "TSP1": 2}', "must hold numbers only"),
        ('{"T1": true, "T2": 3, "TSP1": 2}', "must hold numbers only"),
        (f"[{NAMED}, [1, 2, 3]]", "must hold numbers only, in rows of one length"),
        ("{}", "must be a JSON list of numbers, such as '[1.0, 0.0, 0.0]', or a mapping by name"),
        ("T1=60", "must be a JSON list of numbers"),
    ],
)
def test_faults_are_one_line(runs, obs, words, capsys):
    done = call_cli(capsys, "predict", runs / "solo", "--obs", obs, code=2)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_population_that_was_never_evaluated_has_no_best(runs, capsys):
    done = call_cli(capsys, "predict", runs / "population", "--obs", NAMED)
    choose = "choose with --member (`rl-training select` compares them)"
    assert done.stderr == f"member 0, seed 4: no member was evaluated, so the first is used; {choose}\n"
    assert call_cli(capsys, "predict", runs / "population", "--obs", NAMED, "--member", "1").stderr == ""
