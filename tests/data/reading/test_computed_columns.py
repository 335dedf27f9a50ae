"""Column maps that compute, and the names of columns on their way."""

import numpy as np
import pytest

from rl_training.data import (
    DatasetWriter,
    filter_dataset,
    load_dataset,
    mix_datasets,
    save_dataset,
    split_dataset,
    transform_dataset,
)
from rl_training.errors import ConfigError, DatasetError
from tests.helpers import generator
from tests.logs import write_csv

ROWS = 12  # two episodes of 7 and 5 rows
EPISODE = np.array([0] * 7 + [1] * 5)
DRAW = generator(5)
TABLE = {
    "day": EPISODE,
    "T1": np.round(DRAW.uniform(20, 80, ROWS), 3),
    "TSP1": np.repeat([40.0, 60.0], [7, 5]),
    "Q1": np.round(DRAW.uniform(0, 100, ROWS), 3),
    "IAE": np.round(np.cumsum(DRAW.uniform(0, 9, ROWS)), 3),
    "Zone Temp [C]": np.round(DRAW.uniform(15, 25, ROWS), 3),
    "a-b": np.round(DRAW.uniform(0, 1, ROWS), 3),
    "a": np.full(ROWS, 100.0),
    "b": np.full(ROWS, 1.0),
}
ROLES = {"observations": ["T1"], "actions": ["Q1"], "reward": "T1", "episode": "day"}
KEPT = np.append(np.diff(EPISODE) == 0, False)  # rows with a successor


@pytest.fixture
def path(tmp_path):
    return write_csv(tmp_path / "log.csv", TABLE)


def load(path, **roles):
    return load_dataset(path, columns={**ROLES, **roles})


def test_a_reward_is_computed(path):
    data = load(path, reward="-(abs(T1 - TSP1) + 2)")
    expected = -(np.abs(TABLE["T1"] - TABLE["TSP1"]) + 2)
    assert data.rewards == pytest.approx(expected[KEPT], rel=1e-6)
    assert "reward `-(abs(T1 - TSP1) + 2)`" in data.origin


def test_a_name_in_backquotes_is_that_column_wherever_it_stands(path):
    """Also as a whole entry, under a new name, as the reward, and where a pattern leaves out what is named elsewhere."""
    plain = load(path, observations=["Zone Temp [C]", {"gap": "a-b"}], actions=["Zone Temp [C]", "Q1"], reward="a-b")
    quoted = load(
        path, observations=["`Zone Temp [C]`", {"gap": "`a-b`"}], actions=[" `Zone Temp [C]`", "Q1"], reward="`a-b`"
    )
    assert quoted.fingerprint == plain.fingerprint
    assert (quoted.observation_names, quoted.action_names) == (("Zone Temp [C]", "gap"), ("Zone Temp [C]", "Q1"))
    assert quoted.origin == plain.origin
    assert load(path, observations=["`T1`"], actions=["T*", "Q1"]).action_names == ("TSP1", "Q1")
    with pytest.raises(DatasetError, match="there is no column `Zone Tmp`"):
        load(path, observations=["`Zone Tmp`"])


def test_observations_and_actions_are_computed_in_order_and_named(path):
    data = load(
        path,
        observations=["T1", "T1 - TSP1", {"zone": "(`Zone Temp [C]` * 9 / 5) + 32"}, "Zone Temp [C]"],
        actions={"valve": "Q1 / 100"},
    )
    zone = TABLE["Zone Temp [C]"]
    columns = np.column_stack([TABLE["T1"], TABLE["T1"] - TABLE["TSP1"], zone * 9 / 5 + 32, zone])
    assert data.observations == pytest.approx(columns[KEPT], rel=1e-6)
    assert data.actions[:, 0] == pytest.approx(TABLE["Q1"][KEPT] / 100, rel=1e-6)
    assert data.observation_names == ("T1", "T1 - TSP1", "zone", "Zone Temp [C]")
    assert data.action_names == ("valve",)


def test_differences_and_lags_stay_inside_episodes(path):
    """The first row of an episode has no predecessor: it is left out, never filled."""
    data = load(path, observations=["T1", "lag(Q1, 2)"], reward="diff(IAE)")
    rows = [2, 3, 4, 5, 9, 10]  # less two first rows and the last row of each episode
    assert data.observations[:, 0] == pytest.approx(TABLE["T1"][rows])
    assert data.observations[:, 1] == pytest.approx(TABLE["Q1"][np.array(rows) - 2])
    assert data.rewards == pytest.approx((TABLE["IAE"][rows] - TABLE["IAE"][np.array(rows) - 1]), rel=1e-5)
    assert data.next_observations[:, 0] == pytest.approx(TABLE["T1"][np.array(rows) + 1])
    assert data.episode_spans[1].tolist() == [4, 2]
    assert "4 first rows of episodes are left out" in data.origin


def test_what_looks_back_follows_the_order_in_time(tmp_path):
    order = generator(0).permutation(ROWS)
    table = {**TABLE, "t": np.arange(ROWS)}
    roles = {**ROLES, "reward": "diff(IAE)", "time": "t"}
    straight = load_dataset(write_csv(tmp_path / "a.csv", table), columns=roles)
    shuffled = {name: np.asarray(column)[order] for name, column in table.items()}
    assert load_dataset(write_csv(tmp_path / "b.csv", shuffled), columns=roles).fingerprint == straight.fingerprint


def test_what_looks_back_stops_at_ends_and_files(tmp_path):
    table = {"x": np.arange(8.0), "u": np.linspace(0, 1, 8), "end": [0, 0, 0, 1, 0, 0, 0, 0]}
    roles = {"observations": "x", "actions": "u", "reward": "diff(x)"}
    first = write_csv(tmp_path / "a.csv", table)
    second = write_csv(tmp_path / "b.csv", {**table, "x": table["x"] + 100})
    data = load_dataset([first, second], columns={**roles, "terminal": "end"})
    assert data.observations[:, 0].tolist() == [1, 2, 3, 5, 6, 101, 102, 103, 105, 106]
    assert (data.rewards == 1.0).all()
    assert data.terminals.sum() == 2


def test_ends_may_be_conditions(tmp_path):
    table = {"x": [1, 2, 3, 99, 1, 2, 3, 4], "u": np.linspace(0, 1, 8)}
    roles = {"observations": "x", "actions": "u", "reward": "0 - x"}
    path = write_csv(tmp_path / "a.csv", table)
    data = load_dataset(path, columns={**roles, "terminal": "x > 90 or x < 0"})
    assert np.flatnonzero(data.terminals).tolist() == [3]
    with pytest.raises(DatasetError, match=r"`x` marks ends .`terminal`. and is 2 in line 3: 0 or 1 is needed"):
        load_dataset(path, columns={**roles, "terminal": "x"})


def test_a_name_that_is_a_column_is_the_column(path):
    data = load(path, observations=["a-b"], reward="a - b")
    assert data.observations[:, 0] == pytest.approx(TABLE["a-b"][KEPT])
    assert (data.rewards == 99.0).all()


def test_patterns_skip_the_columns_that_actions_compute_with(path):
    data = load(path, observations="*1", actions=["Q1 / 100"], reward="a")
    assert data.observation_names == ("T1", "TSP1")
    assert load(path, observations=["*1", "lag(Q1, 1)"], actions=["Q1 / 100"]).observation_names == ("TSP1", "lag(Q1, 1)")


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (
            {"reward": "-(abs(T1 - TSP2))"},
            r"no column `TSP2` \(position 12 of `-\(abs\(T1 - TSP2\)\)`\). Did you mean `TSP1`",
        ),
        ({"reward": "absolute(T1)"}, "no function `absolute`"),
        ({"reward": "T1 -"}, "neither a column nor an expression: .* expected before the end"),
        ({"observations": "sensor_*"}, r"there is no column `sensor_\*`"),
        ({"observations": ["Zone Tmp [C]"]}, r"Did you mean `Zone Temp \[C\]`"),
        ({"observations": ["T1", {"T1": "T1 + 1"}]}, "two of the observations are named `T1`"),
        ({"observations": ["lag(T1, 9)"]}, "every episode is shorter"),
        ({"reward": "log(T1 - T1)"}, r"`rewards` is NaN or inf in \d+ rows .first: line 2, line 3"),
    ],
)
def test_faults_of_expressions_are_one_line(path, roles, message):
    with pytest.raises(DatasetError, match=message) as caught:
        load(path, **roles)
    assert "log.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entries", [[], [3], {"x": 3}, [["T1"]], 5])
def test_entries_of_other_kinds_are_refused(path, entries):
    with pytest.raises(ConfigError, match="columns.observations"):
        load(path, observations=entries)


def test_lists_are_numbered_and_not_computed_with():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"s": [[1.0, 2.0]] * 5, "u": np.linspace(0, 1, 5), "r": np.arange(5.0)})
    roles = {"observations": "s", "actions": "u", "reward": "r"}
    assert load_dataset(frame, columns=roles).observation_names == ("s[0]", "s[1]")
    with pytest.raises(DatasetError, match="column `s` holds lists"):
        load_dataset(frame, columns={**roles, "reward": "s + 1"})


def test_a_table_may_be_a_mapping(path):
    roles = {**ROLES, "reward": "diff(IAE)"}
    assert load_dataset(TABLE, columns=roles).fingerprint == load_dataset(path, columns=roles).fingerprint
    with pytest.raises(DatasetError, match="must share one length"):
        load_dataset({**TABLE, "b": [1.0]}, columns=roles)


NAMES = (("T1", "TSP1"), ("Q1",))


def names(data):
    return data.observation_names, data.action_names


def test_names_travel(path, tmp_path):
    data = load(path, observations=["T1", "TSP1"])
    assert names(data) == NAMES
    rest, held = split_dataset(data, 0.5)
    changed = [rest, held, filter_dataset(data, top=0.5), transform_dataset(data, reward_scale=2.0, normalize_actions=True)]
    changed += [mix_datasets([data, data]), mix_datasets([data, rest], [1, 1])]
    assert [names(one) for one in changed] == [NAMES] * len(changed)
    for target in ("store", "file.npz"):
        save_dataset(data, tmp_path / target)
        back = load_dataset(tmp_path / target)
        assert names(back) == NAMES
        assert back.fingerprint == data.fingerprint
    assert names(load_dataset(tmp_path / "store", action_low=0, action_high=100)) == NAMES
    assert names(load_dataset(tmp_path / "store", ends="timeouts")) == NAMES


def test_names_that_differ_are_dropped_and_another_order_is_refused(path, tmp_path):
    data, other = load(path, observations=["T1", "TSP1"]), load(path, observations=["T1", "IAE"])
    assert names(mix_datasets([data, other])) == (None, ("Q1",))
    swapped = load(path, observations=["TSP1", "T1"])
    with pytest.raises(DatasetError, match="dataset 1: its observations are those of dataset 0 in another order: column 0"):
        mix_datasets([data, swapped])
    with DatasetWriter(tmp_path / "kept") as writer:
        writer.append(data)
        with pytest.raises(DatasetError, match="in another order"):
            writer.append(swapped)


def test_a_condition_on_nan_marks_nothing_and_the_row_can_be_dropped(tmp_path):
    table = {"x": [1, 2, "", 4, 95, 2, 3, 4], "u": np.linspace(0, 1, 8)}
    roles = {"observations": "x", "actions": "u", "reward": "1", "terminal": "x > 90"}
    path = write_csv(tmp_path / "a.csv", table)
    with pytest.raises(DatasetError, match=r"`observations` is NaN or inf in 1 rows .first: line 4."):
        load_dataset(path, columns=roles)
    data = load_dataset(path, columns=roles, on_bad_rows="drop")
    assert data.observations[:, 0].tolist() == [1, 4, 95, 2, 3]
    assert "1 row marks no end, since `x > 90` is computed from NaN" in data.origin


def test_the_time_may_be_computed_with(tmp_path):
    table = {"t": [0, 1, 2, 4, 5, 6], "x": np.arange(6.0), "u": np.linspace(0, 1, 6)}
    roles = {"observations": ["x", "diff(t)"], "actions": "u", "reward": "x", "time": "t"}
    data = load_dataset(write_csv(tmp_path / "a.csv", table), columns=roles)
    assert data.observations[:, 1].tolist() == [1, 1, 2, 1]


def test_a_date_counts_seconds_in_expressions_and_is_no_observation_itself(tmp_path):
    stamps = [f"{day}.11.2026 {clock}" for day in (20, 21) for clock in ("06:00", "12:30")]  # a Friday and a Saturday
    path = write_csv(
        tmp_path / "a.csv", {"stamp": [*stamps, "22.11.2026 06:00"], "x": np.arange(5.0), "u": np.linspace(0, 1, 5)}
    )
    roles = {
        "observations": ["(stamp % 86400) / 3600", "(stamp / 86400 + 3) % 7 >= 5"],
        "actions": "u",
        "reward": "x",
        "time": "stamp",
    }
    data = load_dataset(path, columns=roles)
    assert data.observations.tolist() == [[6.0, 0.0], [12.5, 0.0], [6.0, 1.0], [12.5, 1.0]]
    with pytest.raises(DatasetError, match=r"`stamp` holds text .*the hour: `\(stamp % 86400\) / 3600`"):
        load_dataset(path, columns={**roles, "observations": ["x", "stamp"]})


def test_missing_values_of_a_frame_are_nan():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.array([1, None, 3, 4, 5], dtype="Int64"), "u": np.linspace(0, 1, 5)})
    roles = {"observations": "x", "actions": "u", "reward": "x * 2"}
    with pytest.raises(DatasetError, match=r"`observations` is NaN or inf in 1 rows .first: 1."):
        load_dataset(frame, columns=roles)
    assert load_dataset(frame, columns=roles, on_bad_rows="drop").rewards.tolist() == [6.0, 8.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PV-Leistung", r": there is no column `PV-Leistung`\. Did you mean `PV Leistung`\?"),
        ("Zone-Tmp", r": there is no column `Zone-Tmp`\. Did you mean `Zone_Temp`\?"),
        ("-Kostn", r": there is no column `Kostn` \(position 2 of `-Kostn`\)\. Did you mean `Kosten`\?"),
        ("Kosten - Erlos", r": there is no column `Erlos` \(position 10 of"),
    ],
)
def test_a_misspelt_name_with_signs_is_no_expression(text, message):
    columns = {"PV Leistung": [1.0, 2.0], "Zone_Temp": [1.0, 2.0], "Kosten": [1.0, 2.0], "u": [0.5, 1.5]}
    with pytest.raises(DatasetError, match=message):
        load_dataset(columns, columns={"observations": "Zone_Temp", "actions": "u", "reward": text})
