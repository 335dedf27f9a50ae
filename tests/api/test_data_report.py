"""A run on logged data: the report of `evaluate --data`."""

import json
from pathlib import Path

import numpy as np
import pytest

from rl_training import Policy
from rl_training.api.data_report import data_report, load_like_training
from rl_training.errors import DatasetError
from tests.helpers import call_cli, small_arrays
from tests.logs import plant, table, write_csv

MAP = "{observations: 'obs_*', actions: action_0, reward: reward, episode: episode, time: time}"
SMALL = ("--set", "algo_kwargs.hidden_sizes=[16, 16]", "--set", "eval_interval=40", "--set", "log_interval=20")


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("log.csv", "other.csv")):
        write_csv(tmp_path / name, table(plant(rows=600, length=40, seed=seed)))
    short = ("--total-timesteps", "80", "--seeds", "0,1", "--run-dir", "run")
    call_cli(capsys, "train", "iql", "--dataset", "log.csv", "--columns", MAP, *short, *SMALL)
    return tmp_path / "run"


def test_the_shell_reports_on_other_data_read_like_the_training_data(run, capsys):
    done = call_cli(capsys, "evaluate", run, "--data", "other.csv")
    assert "iql after 80 gradient steps, on 585 rows of other.csv" in done.stdout
    assert done.stdout.count("of the range from the logged ones (best constant ") == 2
    assert "  action_0: " in done.stdout
    report = json.loads(call_cli(capsys, "evaluate", run, "--data", "other.csv", "--json").stdout)
    assert [row["seed"] for row in report["members"]] == [0, 1]
    figures = report["members"][1]["figures"]
    one = json.loads(call_cli(capsys, "evaluate", run, "--data", "other.csv", "--member", "1", "--json").stdout)
    assert [row["figures"] for row in one["members"]] == [figures]
    policy = Policy.load(run)
    data = load_like_training(policy, "other.csv")
    wanted = np.abs(policy.predict(data.observations, member=1) - data.actions).mean()
    assert figures["action_distance/action_0"] == pytest.approx(wanted, rel=1e-4)


def test_the_data_of_the_training_is_told_from_other_data(run, capsys):
    told = "warning: the policy was trained on these rows"
    assert told in call_cli(capsys, "evaluate", run, "--data", "log.csv").stderr
    assert told not in call_cli(capsys, "evaluate", run, "--data", "other.csv").stderr
    found = [
        json.loads(call_cli(capsys, "evaluate", run, "--data", f"{name}.csv", "--json").stdout) for name in ("log", "other")
    ]
    assert [one["trained_on"] for one in found] == [True, False]


def test_a_part_of_the_data_of_the_training_is_known_and_nothing_is_said_without_that_data(run, capsys):
    """A file among several, or a part of one: its fingerprint is not that of the whole."""
    lines = Path("log.csv").read_text().splitlines(keepends=True)
    Path("part.csv").write_text("".join(lines[:100]))

    def asked(name):
        return json.loads(call_cli(capsys, "evaluate", run, "--data", name, "--json").stdout)["trained_on"]

    assert asked("part.csv") is True
    Path("log.csv").rename("moved.csv")
    assert asked("part.csv") is None
    assert asked("moved.csv") is True
    note = "whether the policy was trained on these rows is not known"
    assert note in call_cli(capsys, "evaluate", run, "--data", "part.csv").stderr


def test_data_that_does_not_fit_is_one_line(run, tmp_path, capsys):
    np.savez(tmp_path / "wide.npz", **small_arrays(observation_dim=5))
    assert (
        "the data has 5 observations and 2 actions, the policy"
        in call_cli(capsys, "evaluate", run, "--data", "wide.npz", code=3).stderr
    )
    swapped = MAP.replace("'obs_*'", "[obs_1, obs_0, obs_2]")
    done = call_cli(capsys, "evaluate", run, "--data", "other.csv", "--columns", swapped, code=3)
    assert "the columns of the data are obs_1, obs_0, obs_2, those of the policy obs_0, obs_1, obs_2" in done.stderr
    assert "exclude each other" in call_cli(capsys, "evaluate", run, "--data", "x", "--env", "y", code=2).stderr
    assert "no such file" in call_cli(capsys, "evaluate", run, "--data", "gone.csv", code=3).stderr


def test_actions_outside_the_bounds_are_compared_too(run):
    policy = Policy.load(run)
    data = load_like_training(policy, "other.csv")
    data.actions[:] *= 50.0
    report = data_report(policy, data)
    assert report["members"][0]["figures"]["action_distance"] > 1.0


def test_an_algorithm_without_critics_has_distances_only(tmp_path):
    from rl_training import BC, TransitionDataset

    data = TransitionDataset.from_dict(small_arrays())
    model = BC(dataset=data, hidden_sizes=[8, 8], batch_size=16).learn(10)
    figures = model.evaluate_on(data)["members"][0]["figures"]
    assert figures == model.evaluate_on(small_arrays())["members"][0]["figures"]
    assert "action_distance" in figures
    assert "q_policy" not in figures
    narrow = TransitionDataset.from_dict(small_arrays(action_dim=1))
    with pytest.raises(DatasetError, match="the policy 3 and 2"):
        data_report(model.policy, narrow)


def test_read_options_of_evaluate_go_with_data(run, tmp_path, capsys):
    lines = (tmp_path / "other.csv").read_text().splitlines()
    cells = zip(lines[0].split(","), lines[5].split(","), strict=True)
    lines[5] = ",".join("" if name.startswith("obs_") else cell for name, cell in cells)
    (tmp_path / "gaps.csv").write_text("\n".join(lines) + "\n")
    assert "NaN" in call_cli(capsys, "evaluate", run, "--data", "gaps.csv", code=3).stderr
    assert "rows of gaps.csv" in call_cli(capsys, "evaluate", run, "--data", "gaps.csv", "--on-bad-rows", "drop").stdout
    assert "--on-bad-rows says how to read files" in call_cli(capsys, "evaluate", run, "--on-bad-rows", "drop", code=2).stderr
    assert (
        "no best checkpoint is recorded" in call_cli(capsys, "evaluate", run, "--best", "--data", "gaps.csv", code=4).stderr
    )


def test_an_observation_in_another_unit_is_noticed(run, capsys):
    policy = Policy.load(run)
    names = policy.spaces.observation_names
    usual = dict(zip(names, (float(end) for end in policy.recorded_range[0]), strict=True))
    assert call_cli(capsys, "predict", run, "--obs", json.dumps(usual), "--member", "0").stderr == ""
    strange = call_cli(capsys, "predict", run, "--obs", json.dumps({**usual, names[0]: 29100.0}), "--member", "0")
    assert f"warning: `{names[0]}` = 29100, and was " in strange.stderr
    assert len(json.loads(strange.stdout)) == 1
