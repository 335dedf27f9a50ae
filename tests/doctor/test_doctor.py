"""The doctor against faults planted in three datasets, and against clean ones."""

import json

import numpy as np
import pytest

from rl_training.config.blocks import ReadOptions
from rl_training.data import load_dataset, make_dataset
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.helpers import SHARED, call_cli
from tests.logs import FIELDS, REWARDS, linear_log, plant, table, write_csv, write_hdf5


class Recipe:
    kind, size, seed, noise = "random", 5000, 3, 0.0


@pytest.fixture(scope="session")
def pendulum():
    """Pendulum in D4RL's layout, with the environment at hand."""
    data = make_dataset("Pendulum-v1", Recipe)
    return {name: getattr(data, name).copy() for name in FIELDS}


@pytest.fixture(scope="session")
def neorl():
    """NeoRL-2's DMSD (or something like it), without an environment."""
    if SHARED.is_dir():
        data = load_dataset(SHARED / "DMSD-high-20000-val.npz")
        return {name: getattr(data, name).copy() for name in FIELDS}
    return plant(rows=10_000, length=100, seed=5)


@pytest.fixture(scope="session")
def logged():
    """A plant's log as a table, without an environment."""
    return plant()


DATASETS = {
    "pendulum": (lambda path, values: write_hdf5(path / "d.hdf5", values), "Pendulum-v1"),
    "neorl": (
        lambda path, values: save_npz(
            path / "d.npz",
            dict(zip(("obs", "action", "reward", "next_obs", "done", "truncated"), map(values.get, FIELDS), strict=True)),
        ),
        None,
    ),
    "logged": (lambda path, values: write_csv(path / "d.csv", table_with_end_columns(values)), None),
}


def save_npz(path, values):
    np.savez(path, **{name: value for name, value in values.items() if value is not None})
    return path


def table_with_end_columns(values):
    """A table whose only word on ends is its flags."""
    columns = table({**values, "terminals": values["terminals"], "timeouts": values["timeouts"]})
    return {name: column for name, column in columns.items() if name not in ("episode", "time")}


def seeded_rows(values, count=3):
    """Some rows inside episodes."""
    inside = np.flatnonzero(~(values["terminals"] | values["timeouts"]))
    return inside[np.linspace(len(inside) // 10, len(inside) - 2, count).astype(int)]


def nan(values):
    values["observations"][seeded_rows(values), 0] = np.nan
    values["rewards"][seeded_rows(values, 1)] = np.inf


def broken_successors(values):
    rows = seeded_rows(values, 20)
    values["next_observations"][rows] = values["next_observations"][rows[::-1]] + 0.5


def successor_of_the_following_episode(values):
    ends = np.flatnonzero(values["terminals"] | values["timeouts"])[:-1]
    values["next_observations"][ends] = values["observations"][ends + 1]


def no_ends(values):
    values["terminals"][:] = values["timeouts"][:] = False


def limits_as_terminals(values):
    values["terminals"], values["timeouts"] = values["timeouts"].copy(), values["terminals"].copy()


def rewards_late(values):
    values["rewards"] = np.roll(values["rewards"], 1)


def rewards_early(values):
    values["rewards"] = np.roll(values["rewards"], -1)


def rewards_with_arrival(values):
    ends = values["terminals"] | values["timeouts"]
    values["rewards"] = np.where(np.append(True, ends[:-1]), 0.0, np.roll(values["rewards"], 1)).astype(np.float32)


def actions_beyond(values):
    values["actions"][seeded_rows(values)] *= 0.0
    values["actions"][seeded_rows(values)] += 3.5


def constant(values):
    values["observations"][:, 1] = values["next_observations"][:, 1] = 0.25


def huge(values):
    for name in ("observations", "next_observations"):
        values[name][:, 0] = values[name][:, 0] * 1000 + 1e9


def twice(values):
    ends = np.flatnonzero(values["terminals"] | values["timeouts"])
    for name in values:
        values[name] = np.concatenate((values[name], values[name][ends[1] + 1 : ends[3] + 1]))


FAULTS = {
    "not-finite": [nan],
    "next-observation-break": [broken_successors],
    "next-observation-leak": [successor_of_the_following_episode],
    "missing-ends": [no_ends],
    "ends-at-one-length": [limits_as_terminals],
    "shifted-rewards": [rewards_late, rewards_early, rewards_with_arrival],
    "actions-out-of-bounds": [actions_beyond],
    "constant-column": [constant],
    "huge-column": [huge],
    "duplicate-episodes": [twice],
}
SEEDED = [(code, fault) for code, faults in FAULTS.items() for fault in faults]


def findings(path, env_id=None, **options):
    return examine(read_dataset(path, options=ReadOptions(**options)), env_id)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(("code", "fault"), SEEDED, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_fault_is_found_and_named(name, code, fault, tmp_path, request):
    values = {field: array.copy() for field, array in request.getfixturevalue(name).items()}
    fault(values)
    write, env_id = DATASETS[name]
    found = findings(write(tmp_path, values), env_id)
    assert code in {finding.code for finding in found}, found
    errors = {finding.code for finding in found if finding.severity == "error"}
    related = {"actions-out-of-bounds", "action-units"} if code.startswith("action") else {code}
    assert errors <= related, found  # and nothing else is called an error
    finding = next(one for one in found if one.code == code)
    assert finding.evidence
    assert finding.fix


@pytest.mark.parametrize("name", DATASETS)
def test_clean_data_is_called_clean(name, tmp_path, request):
    write, env_id = DATASETS[name]
    assert findings(write(tmp_path, request.getfixturevalue(name)), env_id) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="the third-party data is not here")
@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        ("pendulum_random.h5", "Pendulum-v1"),
        ("pendulum_replay.h5", "Pendulum-v1"),
        ("pendulum_replay.h5", None),
        ("DMSD-high-100000-train.npz", None),
        ("DMSD-high-20000-val.npz", None),
    ],
)
def test_third_party_data_has_no_errors(name, env_id):
    assert [finding for finding in findings(SHARED / name, env_id) if finding.severity == "error"] == []


SHAPES = [{}, {"same_start": True, "varied": True}, {"varied": True, "terminal": True}, {"count": 6}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reward", REWARDS)
def test_no_false_alarm_on_rewards_of_any_kind(reward, shape):
    found = examine(read_dataset(linear_log(reward, **shape)))
    assert [finding for finding in found if finding.severity == "error"] == []


@pytest.mark.parametrize("shape", SHAPES[1:3], ids=str)
@pytest.mark.parametrize("reward", ["dense", "next state", "effort", "progress"])
@pytest.mark.parametrize("fault", [rewards_late, rewards_early, rewards_with_arrival])
def test_shifts_are_found_in_rewards_of_any_kind(fault, reward, shape):
    values = linear_log(reward, **shape)
    fault(values)
    found = examine(read_dataset(values))
    assert [(finding.code, finding.severity) for finding in found if finding.severity == "error"] == [
        ("shifted-rewards", "error")
    ]
    assert f"--reward-lag {-1 if fault is rewards_early else 1}" in found[0].fix


def test_mismatch_with_the_environment(logged, tmp_path):
    wrong = examine(linear_log("dense"), "Pendulum-v1")  # 4 observations, 2 actions
    assert [finding.code for finding in wrong if finding.severity == "error"] == ["space-mismatch"]
    assert "4 observations and 2 actions" in wrong[0].evidence
    same_sizes = findings(DATASETS["logged"][0](tmp_path, logged), "Pendulum-v1")  # 3 observations, 1 action
    assert "space-mismatch" in {finding.code for finding in same_sizes}  # a room is not a pendulum: see the ranges


def test_rows_without_successors_and_without_ends(logged, tmp_path):
    """A bare table of rows: the jumps between episodes are all there is to see."""
    columns = table(logged, next_observations=False)
    bare = {name: column for name, column in columns.items() if name.startswith(("obs", "action", "reward"))}
    found = {finding.code: finding for finding in findings(write_csv(tmp_path / "bare.csv", bare))}
    assert "jump after" in found["missing-ends"].evidence
    whole = {**bare, "episode": columns["episode"]}
    assert findings(write_csv(tmp_path / "whole.csv", whole)) == []


def test_evidence_has_row_numbers(pendulum, tmp_path):
    values = {field: array.copy() for field, array in pendulum.items()}
    rows = seeded_rows(values)
    nan(values)
    finding = findings(DATASETS["pendulum"][0](tmp_path, values))[0]
    assert finding.code == "not-finite"
    assert str(rows[0]) in finding.evidence
    assert finding.severity == "error"


@pytest.mark.parametrize("fault", [rewards_late, rewards_early, rewards_with_arrival])
def test_the_fix_of_a_shift_works(fault, pendulum, tmp_path):
    values = {field: array.copy() for field, array in pendulum.items()}
    fault(values)
    path = DATASETS["pendulum"][0](tmp_path, values)
    finding = next(one for one in findings(path) if one.code == "shifted-rewards")
    lag = -1 if fault is rewards_early else 1
    assert f"--reward-lag {lag}" in finding.fix
    assert findings(path, reward_lag=lag) == []


def test_the_fix_of_ends_works(pendulum, tmp_path):
    values = {field: array.copy() for field, array in pendulum.items()}
    limits_as_terminals(values)
    path = DATASETS["pendulum"][0](tmp_path, values)
    assert "--ends timeouts" in next(one for one in findings(path) if one.code == "ends-at-one-length").fix
    assert findings(path, ends="timeouts") == []


def test_command_line(pendulum, tmp_path, capsys):
    clean = write_hdf5(tmp_path / "clean.hdf5", pendulum)
    done = call_cli(capsys, "data", "doctor", clean, "--env", "Pendulum-v1", "--json")
    assert json.loads(done.stdout)["findings"] == []
    values = {field: array.copy() for field, array in pendulum.items()}
    rewards_late(values)
    bad = write_hdf5(tmp_path / "bad.hdf5", values)
    found = json.loads(call_cli(capsys, "data", "doctor", bad, "--json", code=3).stdout)["findings"]
    assert [one["code"] for one in found] == ["shifted-rewards"]
    assert set(found[0]) == {"code", "severity", "evidence", "fix"}
    assert "no findings" in call_cli(capsys, "data", "doctor", bad, "--reward-lag", "1").stdout


def test_a_number_that_stands_for_nothing(pendulum):
    values = {field: array.copy() for field, array in pendulum.items()}
    rows = seeded_rows(values)
    values["observations"][rows, 2] = values["next_observations"][rows - 1, 2] = -9999.0
    found = {finding.code: finding for finding in examine(values)}
    assert "column 2 is -9999" in found["outlier-rows"].evidence


def test_several_faults_at_once_and_their_fixes(pendulum, tmp_path):
    values = {field: array.copy() for field, array in pendulum.items()}
    rewards_late(values)
    limits_as_terminals(values)
    values["observations"][50, 1] = np.nan
    path = DATASETS["pendulum"][0](tmp_path, values)
    assert {finding.code for finding in findings(path)} == {
        "not-finite",
        "ends-at-one-length",
    }  # the rest after the first fix
    dropped = {"on_bad_rows": "drop"}
    assert {finding.code for finding in findings(path, **dropped)} == {"shifted-rewards", "ends-at-one-length"}
    assert findings(path, **dropped, ends="timeouts", reward_lag=1, reward_lag_across=True) == []


def test_shuffled_rows_are_not_called_broken():
    """The advice to rebuild next observations would ruin them."""
    values = linear_log("dense")
    order = np.random.Generator(np.random.Philox(0)).permutation(len(values["rewards"]))
    found = examine(read_dataset({name: array[order] for name, array in values.items()}))
    assert [finding.severity for finding in found if finding.code == "next-observation-break"] == ["warning"]
    assert "shuffled" in found[0].evidence


@pytest.mark.parametrize("column", ["clock", "set-point"])
def test_a_column_that_jumps_by_itself_is_no_end(column):
    """Continuing data: an hour of the day, or a set-point, among slow columns."""
    draw = np.random.Generator(np.random.Philox(0))
    slow = np.cumsum(draw.normal(size=(2000, 3)) * 0.1, axis=0)
    hours = np.arange(2000) % 24 if column == "clock" else (np.arange(2000) // 150) * 3.0
    observations = np.concatenate((slow, hours[:, None]), axis=1).astype(np.float32)
    values = {"observations": observations, "actions": draw.uniform(-1, 1, (2000, 1)).astype(np.float32)}
    values["rewards"] = -np.abs(observations[:, 0])
    assert [f for f in examine(read_dataset(values)) if f.severity == "error"] == []
    cut = {**values, "timeouts": np.append(np.diff(hours) != 0, True), "next_observations": np.roll(observations, -1, axis=0)}
    cut["next_observations"][-1] = observations[-1]
    assert [f for f in examine(read_dataset(cut)) if f.severity == "error"] == []


def test_time_limits_missing_beside_true_ends():
    """D4RL's first files: terminals, no timeouts, no next observations."""
    values = linear_log("dense", terminal=True)
    rows = {name: values[name] for name in ("observations", "actions", "rewards", "terminals")}
    assert "missing-ends" in {finding.code for finding in examine(read_dataset(rows))}


def test_anything_can_be_examined(pendulum, tmp_path):
    path = write_hdf5(tmp_path / "d.hdf5", pendulum)
    assert examine(path) == examine(pendulum) == examine(load_dataset(path)) == []


def test_inspect_replaces_nothing_but_its_own_page(pendulum, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_hdf5(tmp_path / "d.hdf5", pendulum)
    before = path.read_bytes()
    assert "choose another name" in call_cli(capsys, "data", "inspect", path, "--html", path, code=2).stderr
    assert path.read_bytes() == before
    (tmp_path / "folder").mkdir()
    call_cli(capsys, "data", "inspect", path, "--html", tmp_path / "folder", code=2)
    for _ in range(2):
        call_cli(capsys, "data", "inspect", path)
    values = {field: array.copy() for field, array in pendulum.items()}
    nan(values)
    write_hdf5(path, values)
    assert "not-finite" in call_cli(capsys, "data", "inspect", path, code=3).stdout
    found = json.loads(call_cli(capsys, "data", "inspect", path, "--json", code=3).stdout)["findings"]
    assert "not-finite" in {finding["code"] for finding in found}
