"""Every reader against files written by other code: round trips, and the traps of each layout."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.data.reading.formats import READERS
from rl_training.data.reading.tables.columns import guess_columns
from rl_training.errors import ConfigError, DatasetError
from tests.helpers import SHARED
from tests.logs import (
    FIELDS,
    episodes,
    table,
    transitions,
    write_csv,
    write_d3rlpy,
    write_hdf5,
    write_minari,
    write_old_d3rlpy,
)

LOG = episodes()
WHOLE, KNOWN = transitions(LOG), transitions(LOG, keep_unknown=False)


def npz(names, values=WHOLE, **more):
    def write(path):
        np.savez(path / "d.npz", **{new: values[old] for new, old in names.items()}, **more)
        return path / "d.npz"

    return write


def rows_of_observations():
    """A log as it is recorded: one row per action, the observation before it, ends marked on the last row."""
    return {name: WHOLE[name] for name in FIELDS if name != "next_observations"}


def parquet(path, columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.table({name: pyarrow.array(np.asarray(value)) for name, value in columns.items()}), path)
    return path


OWN = {name: name for name in FIELDS}
NEORL = dict(zip(("obs", "action", "reward", "next_obs", "done", "truncated"), FIELDS, strict=True))
CASES = {
    "npz": (npz(OWN), WHOLE, "npz", "NumPy npz"),
    "npz neorl": (npz(NEORL), WHOLE, "npz", "NeoRL-2"),
    "npz rows": (npz({n: n for n in rows_of_observations()}), KNOWN, "npz", "following rows"),
    "npz ogbench": (
        npz(
            {"observations": "observations", "actions": "actions", "rewards": "rewards"},
            masks=1.0 - WHOLE["terminals"],
            terminals=(WHOLE["terminals"] | WHOLE["timeouts"]).astype(np.float32),
        ),
        KNOWN,
        "npz",
        "OGBench",
    ),
    "d4rl": (lambda path: write_hdf5(path / "d.hdf5", WHOLE), WHOLE, "hdf5", "D4RL"),
    "d4rl rows": (lambda path: write_hdf5(path / "d.hdf5", rows_of_observations()), KNOWN, "hdf5", "are left out"),
    "minari": (lambda path: write_minari(path / "m", LOG), WHOLE, "minari", "Minari"),
    "minari 0.4": (lambda path: write_minari(path / "m", LOG, metadata=False), WHOLE, "minari", "Minari"),
    "d3rlpy": (lambda path: write_d3rlpy(path / "d.h5", LOG), KNOWN, "d3rlpy", "`terminated` episodes have a true end"),
    "old d3rlpy": (lambda path: write_old_d3rlpy(path / "d.h5", LOG), WHOLE, "d3rlpy", "old layout"),
    "csv": (lambda path: write_csv(path / "d.csv", table(WHOLE)), WHOLE, "csv", "CSV"),
    "csv rows": (lambda path: write_csv(path / "d.csv", table(WHOLE, next_observations=False)), KNOWN, "csv", "following"),
    "tsv": (lambda path: write_csv(path / "d.tsv", table(WHOLE), "\t"), WHOLE, "csv", "CSV"),
    "parquet": (lambda path: parquet(path / "d.parquet", table(WHOLE)), WHOLE, "parquet", "Parquet"),
}


@pytest.mark.parametrize("case", CASES)
def test_round_trip(case, tmp_path):
    write, expected, name, words = CASES[case]
    path = write(tmp_path)
    for chosen in ("auto", name):
        data = load_dataset(path, format=chosen)
        for field in FIELDS:
            values = getattr(data, field)
            if field == "next_observations":  # a true end's successor does not matter
                keep = ~expected["terminals"]
                assert np.array_equal(values[keep], expected[field][keep]), field
            else:
                assert np.array_equal(values, expected[field]), field
        assert words in data.origin
        assert len(list(data.episodes())) == len(LOG)


def test_every_reader_has_a_round_trip():
    own = {"rl_training", "run"}  # tested with the store and in test_run_directory.py
    assert {name for _, _, name, _ in CASES.values()} | own == set(READERS)


def test_minari_bounds_and_places(tmp_path):
    path = write_minari(tmp_path / "m", LOG)
    prints = {load_dataset(place).fingerprint for place in (path, path / "data", path / "data" / "main_data.hdf5")}
    assert len(prints) == 1
    assert load_dataset(path).spaces.action_high.tolist() == [3.0, 3.0]
    older = load_dataset(write_minari(tmp_path / "old", LOG, metadata=False))
    assert older.spaces.action_low.tolist() == [-3.0, -3.0]


def test_minari_episode_of_the_wrong_length_is_named(tmp_path):
    broken = [dict(episode) for episode in LOG]
    broken[2]["observations"] = broken[2]["observations"][:-1]
    with pytest.raises(DatasetError, match="episode_2 must have one observation more"):
        load_dataset(write_minari(tmp_path / "m", broken))


def test_minari_episodes_are_ordered_by_number(tmp_path):
    many = episodes(lengths=(3,) * 12)
    assert np.array_equal(load_dataset(write_minari(tmp_path / "m", many)).rewards, transitions(many)["rewards"])


def test_minari_ids_need_the_package_and_stay_inside_its_directory(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match=r"rl-training\[minari\]|minari download"):
        load_dataset("minari:no/such-v0")
    import sys
    from types import ModuleType

    monkeypatch.setitem(sys.modules, "minari", ModuleType("minari"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    write_minari(tmp_path / "root" / "plant" / "one-v0", LOG)
    write_minari(tmp_path / "outside", LOG)
    assert len(load_dataset("minari:plant/one-v0")) == len(WHOLE["rewards"])
    for name in ("plant/two-v0", "../outside"):
        with pytest.raises(DatasetError, match="minari download"):
            load_dataset(f"minari:{name}")


def test_an_old_d3rlpy_episode_of_l_rows_is_l_minus_1_transitions(tmp_path):
    data = load_dataset(write_old_d3rlpy(tmp_path / "d.h5", LOG))
    assert [episode.length for episode in data.episodes()] == [len(episode["actions"]) for episode in LOG]
    assert [episode.ended for episode in data.episodes()] == [True, False, True, False]


def test_goal_conditioned_files_say_why_they_cannot_be_used(tmp_path):
    np.savez(tmp_path / "d.npz", observations=WHOLE["observations"], actions=WHOLE["actions"], terminals=WHOLE["timeouts"])
    with pytest.raises(DatasetError, match="`rewards` is missing .goal-conditioned"):
        load_dataset(tmp_path / "d.npz")


def test_mask_of_zero_inside_a_trajectory_is_a_true_end(tmp_path):
    rows = 6
    masks, terminals = np.ones(rows), np.zeros(rows)
    masks[2] = 0
    terminals[5] = 1
    observations = np.arange(rows, dtype=np.float32)[:, None]
    actions, rewards = np.zeros((rows, 1), dtype=np.float32), np.zeros(rows)
    np.savez(
        tmp_path / "d.npz",
        observations=observations,
        actions=actions,
        rewards=rewards,
        next_observations=observations + 1,
        masks=masks,
        terminals=terminals,
    )
    data = load_dataset(tmp_path / "d.npz")
    assert data.terminals.tolist() == [False, False, True, False, False, False]
    assert data.timeouts.tolist() == [False] * 5 + [True]


def test_columns_by_map_patterns_and_dates(tmp_path):
    rows = table(WHOLE, next_observations=False)
    start = np.datetime64("2026-01-01T00:00:00")
    renamed = {
        "when": [str(start + np.timedelta64(int(2 * t), "m")) + "Z" for t in rows["time"]],
        "run": [f"run-{e}" for e in rows["episode"]],
        **{f"s[{10 - i}]": rows[f"obs_{i}"] for i in (2, 1, 0)},
        "valve": rows["action_0"],
        "fan": rows["action_1"],
        "score": rows["reward"],
        "end": ["True" if flag else "False" for flag in rows["terminal"]],
        "note": ["text"] * len(rows["time"]),
    }
    path = write_csv(tmp_path / "d.csv", renamed)
    columns = {
        "observations": ["s[[]*[]]"],
        "actions": ["fan", "valve"],
        "reward": "score",
        "episode": "run",
        "time": "when",
        "terminal": "end",
    }
    data = load_dataset(path, columns=columns)
    assert np.array_equal(data.observations, KNOWN["observations"][:, ::-1])  # the pattern's columns in number order
    assert np.array_equal(data.actions, KNOWN["actions"][:, ::-1])  # named columns in the order they were named
    assert np.array_equal(data.terminals, KNOWN["terminals"])
    with pytest.raises(DatasetError, match="there is no column `fann`. Did you mean `fan`"):
        load_dataset(path, columns={**columns, "actions": ["fann"]})
    with pytest.raises(ConfigError, match="unknown key `columns.rewrd`"):
        load_dataset(path, columns={**columns, "rewrd": "score"})
    with pytest.raises(DatasetError, match="holds text .'text' in line 2."):
        load_dataset(path, columns={**columns, "reward": "note"})


def test_rows_out_of_order_are_ordered_and_gaps_cut(tmp_path):
    rows = table(WHOLE, next_observations=False)
    shuffled = np.random.Generator(np.random.Philox(1)).permutation(len(rows["time"]))
    path = write_csv(tmp_path / "d.csv", {name: np.asarray(values)[shuffled] for name, values in rows.items()})
    data = load_dataset(path)
    ordered = {float(r) for r in KNOWN["rewards"]}
    assert {float(r) for r in data.rewards} == ordered
    assert "put in the order of" in data.origin
    late = {**rows, "time": rows["time"] + 100.0 * (np.arange(len(rows["time"])) >= 3)}
    cut = load_dataset(write_csv(tmp_path / "gap.csv", late))
    assert len(cut) == len(KNOWN["rewards"]) - 1  # row 2 has lost its successor
    assert "1 gap of more than 5 usual time steps cuts an episode" in cut.origin
    with pytest.raises(DatasetError, match="`time` repeats inside an episode"):
        load_dataset(write_csv(tmp_path / "same.csv", {**rows, "time": np.zeros(len(rows["time"]))}))


def test_empty_cells_are_nan_with_row_numbers(tmp_path):
    rows = {name: list(values) for name, values in table(WHOLE).items()}
    rows["obs_1"][4] = ""
    with pytest.raises(DatasetError, match="`observations` is NaN or inf in 1 rows .first: line 6."):
        load_dataset(write_csv(tmp_path / "d.csv", rows))
    data = load_dataset(tmp_path / "d.csv", on_bad_rows="drop")
    assert len(data) == len(WHOLE["rewards"]) - 1
    assert data.timeouts[3]  # the episode is cut there
    assert data.terminals.sum() == WHOLE["terminals"].sum()


@pytest.mark.parametrize("header", ["a,b,c", "reward,action_0", "obs_0,obs_0,action_0,reward"])
def test_tables_that_do_not_explain_themselves(tmp_path, header):
    (tmp_path / "d.csv").write_text(header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")
    with pytest.raises(DatasetError, match="cannot infer the roles|two columns named"):
        load_dataset(tmp_path / "d.csv")


def test_guessed_columns():
    names = ["t", "obs_10", "obs_2", "act_0", "reward", "next_obs_2", "next_obs_10", "done", "episode_id"]
    guess = guess_columns(names, "x")
    assert guess.observations == ("obs_2", "obs_10")
    assert guess.next_observations == ("next_obs_2", "next_obs_10")
    assert (guess.reward, guess.episode, guess.time, guess.done) == ("reward", "episode_id", "t", "done")


def test_dataframes_and_mappings():
    pandas = pytest.importorskip("pandas")
    framed = load_dataset(pandas.DataFrame(table(WHOLE)))
    mapped = load_dataset({**WHOLE})
    assert framed.fingerprint == mapped.fingerprint
    assert "mapping" in mapped.origin
    frame = pandas.DataFrame(table(WHOLE))
    frame["state"] = list(WHOLE["observations"])
    listed = load_dataset(
        frame, columns={"observations": "state", "actions": "action_*", "reward": "reward", "episode": "episode"}
    )
    assert np.array_equal(listed.observations[0], WHOLE["observations"][0])
    with pytest.raises(DatasetError, match="not int"):
        load_dataset(3)


def test_parquet_with_lists(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    columns = table(WHOLE)
    lists = {
        "observation.state": pyarrow.array(WHOLE["observations"].tolist(), pyarrow.list_(pyarrow.float32())),
        "action": pyarrow.array(WHOLE["actions"].tolist(), pyarrow.list_(pyarrow.float32(), 2)),
        "reward": columns["reward"],
        "episode_index": columns["episode"],
        "done": columns["terminal"] == 1,
    }
    write_table(pyarrow.table(lists), tmp_path / "d.parquet")
    data = load_dataset(tmp_path / "d.parquet")
    assert np.array_equal(data.observations, KNOWN["observations"])
    assert np.array_equal(data.actions, KNOWN["actions"])
    assert np.array_equal(data.terminals, KNOWN["terminals"])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    import sys

    (tmp_path / "d.parquet").write_bytes(b"PAR1 and so on")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DatasetError, match=r'pip install "rl-training\[parquet\]"'):
        load_dataset(tmp_path / "d.parquet")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the third-party data is not here")
@pytest.mark.parametrize(
    ("name", "count", "mean", "spread"),
    [("DMSD-high-100000-train.npz", 1000, 494, 65), ("DMSD-high-20000-val.npz", 200, 481, 52)],
)
def test_third_party_neorl2(name, count, mean, spread):
    data = load_dataset(SHARED / name)
    statistics = data.statistics()
    assert (statistics["episodes"], statistics["rows"], statistics["true_ends"]) == (count, count * 100, 0)
    assert statistics["return_mean"] == pytest.approx(mean, abs=0.5)
    assert statistics["return_std"] == pytest.approx(spread, abs=0.5)
    inside = ~data.episode_ends[:-1]
    assert np.array_equal(data.next_observations[:-1][inside], data.observations[1:][inside])
    assert "NeoRL-2" in data.origin
