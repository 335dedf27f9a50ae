"""Datasets of several files: folders, globs, lists."""

import numpy as np
import pytest

from rl_training.data import load_dataset, read_dataset, save_dataset
from rl_training.errors import DatasetError
from tests.helpers import small_arrays, small_dataset
from tests.logs import episodes, table, transitions, write_csv, write_hdf5, write_minari

LOG = episodes((7, 5, 9, 4))


def rows_of(*chosen, log=LOG):
    whole = table(transitions([log[k] for k in chosen]), next_observations=False)
    return {name: column for name, column in whole.items() if name != "episode"}


@pytest.fixture
def folder(tmp_path):
    """Four episodes in four files, whose natural order is not the alphabetical one, among files that are no data."""
    root = tmp_path / "logs"
    root.mkdir()
    for position, name in enumerate(("run1", "run2", "run9", "run10")):
        write_csv(root / f"{name}.csv", rows_of(position))
    (root / "README.txt").write_text("Recorded by hand, in May\n")
    (root / "map.yaml").write_text("observations: [a, b]\n")
    (root / ".DS_Store").write_bytes(b"\0\1")
    (root / "broken.csv").write_bytes(b"")
    return root


def test_folders_globs_and_lists_are_one_dataset(folder, tmp_path):
    data = load_dataset(folder)
    expected = transitions(LOG, keep_unknown=False)
    for field in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts"):
        assert np.array_equal(getattr(data, field), expected[field]), field
    assert data.observation_names == ("obs_0", "obs_1", "obs_2")
    files = [folder / f"run{k}.csv" for k in (1, 2, 9, 10)]
    same = [
        f"{folder}/",
        f"{folder}/*.csv",
        f"{folder}/run*",
        files,
        [str(file) for file in files],
        [f"{folder}/run?.csv", files[3]],
    ]
    assert {load_dataset(source).fingerprint for source in same} == {data.fingerprint}
    assert load_dataset(files[::-1]).fingerprint != data.fingerprint  # the order counts
    assert "read as 4 files of CSV, run1.csv to run10.csv" in data.origin
    assert "4 other files are skipped (.DS_Store, broken.csv, map.yaml, ...)" in data.origin


def test_every_file_begins_an_episode(tmp_path):
    """Without any mark of an end, and though the last row of one file continues in the next."""
    columns = {"obs_0": np.arange(10.0), "action_0": np.linspace(0, 1, 10), "reward": np.arange(10.0)}
    for part in (0, 1):
        write_csv(tmp_path / f"{part}.csv", {name: column[part * 5 : part * 5 + 5] for name, column in columns.items()})
    data = load_dataset(tmp_path)
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert data.timeouts.tolist() == [False, False, False, True] * 2
    assert "2 last rows of cut episodes are left out" in data.origin


def test_counts_of_files_are_added_up_and_told_once(tmp_path):
    """Files differ in how many rows are bad and where the time skips; one has neither."""
    for number, bad, skip in ((0, [2], 8), (1, [2, 5], 20), (2, [], 60)):
        moments = np.arange(60.0)
        moments[skip:] += 3.0
        columns = {"obs_0": moments, "action_0": np.linspace(0, 1, 60), "reward": np.ones(60), "t": moments}
        columns["reward"][bad] = np.nan
        write_csv(tmp_path / f"{number}.csv", columns)
    names = {"observations": ["obs_0"], "actions": ["action_0"], "reward": "reward", "time": "t"}
    data = load_dataset(tmp_path, columns=names, on_bad_rows="drop", cut_gaps=True)
    assert "3 rows with NaN or inf are left out; 3 cuts of episodes by rows left out" in data.origin
    assert "2 gaps of at most 5 usual time steps cut episodes (cut_gaps)" in data.origin
    assert data.origin.count("left out:") == data.origin.count("NaN or inf") == 1
    assert "time limits are marked" not in data.origin  # the time tells where episodes end
    assert len(data.episode_spans[0]) == 3 + 3 + 2


def test_a_note_of_some_files_tells_how_many(tmp_path):
    columns = {"obs_0": np.arange(60.0), "action_0": np.linspace(0, 1, 60), "reward": np.arange(60.0)}
    for name in "ab":
        write_csv(tmp_path / f"{name}.csv", columns)
    lines = (tmp_path / "b.csv").read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([lines[0], "m,s,EUR", *lines[1:]]) + "\n")
    told = load_dataset(tmp_path)
    assert "below the header is skipped as units (m , s , EUR) (in 1 of 2 files)" in told.origin
    assert told.origin_in_short.startswith(f"{tmp_path}: read as 2 files of CSV, a.csv to b.csv; line ")
    assert told.origin_in_short.endswith("(in 1 of 2 files)")  # what is usual is left out


def test_rows_are_named_by_file_and_line(folder):
    path = folder / "run9.csv"
    lines = path.read_text().splitlines()
    column = lines[0].split(",").index("reward")
    cells = lines[4].split(",")
    path.write_text("\n".join([*lines[:4], ",".join([*cells[:column], "", *cells[column + 1 :]]), *lines[5:]]) + "\n")
    with pytest.raises(DatasetError, match=r"`rewards` is NaN or inf in 1 rows .first: run9.csv line 5."):
        load_dataset(folder)
    places = read_dataset(folder).source_rows
    assert places.names[2] == "run9.csv"
    assert places.label(int(np.flatnonzero(places.files == 2)[0])) == "run9.csv line 2"


def test_options_hold_for_every_file(folder):
    data = load_dataset(folder, ends="timeouts", action_low=[-3, -3], action_high=[3, 3])
    assert not data.terminals.any()
    assert data.action_high.tolist() == [3, 3]
    assert len(load_dataset(folder, reward_lag=1)) == sum(len(episode["actions"]) - 1 for episode in LOG)


def test_arrays_are_joined_too(tmp_path):
    arrays = small_arrays()
    for name in ("b2", "b10"):
        write_hdf5(tmp_path / f"{name}.h5", arrays)
    data = load_dataset(tmp_path)
    assert len(data) == 2 * len(arrays["rewards"])
    assert data.observation_names is None
    mixed = load_dataset([tmp_path / "b2.h5", save_dataset(small_dataset(), tmp_path.parent / "store")])
    assert len(mixed) == len(data)


def test_a_folder_that_is_a_dataset_is_read_as_one(tmp_path):
    store = save_dataset(small_dataset(), tmp_path / "store")
    assert load_dataset(store).records is not None
    assert "Minari" in load_dataset(write_minari(tmp_path / "minari", LOG) or tmp_path / "minari").origin


def test_a_name_with_brackets_is_a_file(tmp_path):
    path = write_csv(tmp_path / "run[1].csv", rows_of(0))
    assert load_dataset(path).fingerprint == load_dataset(str(path)).fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs_3": 1.0}, r"b.csv: its observations differ from those of a.csv: `obs_3` is new"),
        ({"obs_2": None, "action_7": 0.5}, "its observations differ from those of a.csv: `obs_2` is missing"),
        ({"action_1": None}, "its actions differ from those of a.csv: `action_1` is missing"),
    ],
)
def test_files_must_agree_in_columns(tmp_path, change, message):
    rows = rows_of(0)
    write_csv(tmp_path / "a.csv", rows)
    values = {name: value for name, value in change.items() if value is not None}
    other = {name: column for name, column in rows.items() if change.get(name, 0) is not None}
    other |= {name: [value] * len(rows["reward"]) for name, value in values.items()}
    write_csv(tmp_path / "b.csv", other)
    with pytest.raises(DatasetError, match=message):
        load_dataset(tmp_path)


def test_the_same_columns_in_another_order_are_refused_where_no_order_is_named(tmp_path):
    rows = {"obs_b": np.arange(5.0), "obs_a": np.ones(5), "action_0": np.linspace(0, 1, 5), "reward": np.ones(5)}
    write_csv(tmp_path / "1.csv", rows)
    write_csv(tmp_path / "2.csv", {name: rows[name] for name in ("obs_a", "obs_b", "action_0", "reward")})
    with pytest.raises(DatasetError, match="2.csv: its observations are those of 1.csv in another order"):
        load_dataset(tmp_path)
    named = {"observations": ["obs_a", "obs_b"], "actions": "action_0", "reward": "reward"}
    assert load_dataset(tmp_path, columns=named).observation_names == ("obs_a", "obs_b")


def test_widths_of_arrays_must_agree(tmp_path):
    for name, width in (("a", 3), ("b", 4)):
        np.savez(tmp_path / f"{name}.npz", **small_arrays(observation_dim=width))
    with pytest.raises(DatasetError, match=r"b.npz: its observations differ from those of a.npz: \(4,\) instead of \(3,\)"):
        load_dataset(tmp_path)


def test_memory_is_limited_over_the_sum(folder):
    bytes_of_one = 4 * (folder / "run9.csv").stat().st_size
    with pytest.raises(DatasetError, match=r"up to run\d+.csv: holds .* more than max_dataset_bytes"):
        load_dataset([folder / "run9.csv"] * 40, max_bytes=bytes_of_one)


@pytest.mark.parametrize(
    ("make", "source", "message"),
    [
        (lambda root: None, "", "holds no data files: it is empty"),
        (lambda root: None, "*.csv", "matches no file"),
        (lambda root: None, "absent/*.csv", "matches no file"),
        (lambda root: (root / "README.md").write_text("a, b"), "", r"holds no data files \(README.md skipped\)"),
        (lambda root: (root / "inner").mkdir(), "", r"folders inside it are not searched, but a glob such as '.*/\*/\*.csv'"),
        (lambda root: (root / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n"), "", "a.png is an image; images are not supported"),
        (
            lambda root: (write_csv(root / "a.csv", rows_of(0)), np.savez(root / "b.npz", **small_arrays())),
            "",
            "holds files of several formats .1 csv, 1 npz.",
        ),
    ],
)
def test_folders_without_data_are_one_line(tmp_path, make, source, message):
    make(tmp_path)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(f"{tmp_path}/{source}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", [[], None, 5, [None], ["a.csv", 3]])
def test_other_sources_are_refused(source):
    with pytest.raises(DatasetError, match="a dataset is a path, a list of paths"):
        load_dataset(source)


def test_a_damaged_file_of_a_folder_is_named(tmp_path):
    path = write_hdf5(tmp_path / "a.h5", small_arrays())
    (tmp_path / "b.h5").write_bytes(path.read_bytes()[:600])
    with pytest.raises(DatasetError, match="b.h5: cannot be read"):
        load_dataset(tmp_path)


def test_the_home_folder_may_be_written_short(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load_dataset("~/logs").fingerprint == load_dataset(folder).fingerprint


@pytest.mark.parametrize(
    ("reward", "own", "message"),
    [
        (
            "net-cost",
            "net cost",
            r"b\.csv: there is no column `net-cost`, which the other 2 files have\. Did you mean `net cost`\?",
        ),
        ("-cost", "price", r"b\.csv: there is no column `cost`, which the other 2 files have\.$"),
        ("gain", "cost", r"a\.csv: there is no column `gain`\.$"),
    ],
)
def test_a_file_that_lacks_a_column_is_named_with_how_many_have_it(tmp_path, reward, own, message):
    for name in "abc":
        header = f"T,u,{own if name == 'b' else reward.strip('-') if 'cost' in reward else 'cost'}"
        (tmp_path / f"{name}.csv").write_text(f"{header}\n" + "".join(f"{i}.5,{i % 3}.5,{i}\n" for i in range(8)))
    with pytest.raises(DatasetError, match=message):
        load_dataset(tmp_path, columns={"observations": "T", "actions": "u", "reward": reward})
