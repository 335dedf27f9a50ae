"""Tables as people export them: dialects, identifiers, dates, and columns that are not what they seem."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.errors import DatasetError
from tests.logs import episodes, table, transitions, write_csv

LOG = episodes()
WHOLE, KNOWN = transitions(LOG), transitions(LOG, keep_unknown=False)
ROWS = table(WHOLE, next_observations=False)


def text(columns, separator=",", end="\n", decimal="."):
    lines = [separator.join(columns)]
    lines += [
        separator.join(str(cell).replace(".", decimal) for cell in row)
        for row in zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    ]
    return end.join(lines) + end


DIALECTS = {
    "semicolons and decimal commas": text(ROWS, ";", decimal=",").encode(),
    "bars": text(ROWS, "|").encode(),
    "crlf": text(ROWS, end="\r\n").encode(),
    "byte order mark": b"\xef\xbb\xbf" + text(ROWS).encode(),
    "utf-16": text(ROWS).encode("utf-16"),
    "latin-1": text({**ROWS, "note °C": ["ü"] * len(ROWS["time"])}).encode("latin-1"),
    "utf-8 letters": text({**ROWS, "Außentemp ÄÖÜ": ["ß"] * len(ROWS["time"])}).encode(),
    "comments above": b"# exported by hand\n# twice\n" + text(ROWS).encode(),
    "quoted header": text({f'"{name}"': column for name, column in ROWS.items()}).encode(),
    "spaces around": text({f" {name} ": column for name, column in ROWS.items()}).encode(),
    "unnamed columns": text({"": range(len(ROWS["time"])), **ROWS}).encode(),
    "wide character at byte 4096": text({**ROWS, "note": ["ü" * 40] * len(ROWS["time"])}).encode(),
    "truth values": text({**ROWS, "terminal": ["TRUE" if flag else "FALSE" for flag in ROWS["terminal"]]}).encode(),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects(name, tmp_path):
    (tmp_path / "d.csv").write_bytes(DIALECTS[name])
    data = load_dataset(tmp_path / "d.csv")
    for field in ("observations", "actions", "rewards", "terminals", "timeouts"):
        assert np.array_equal(getattr(data, field), KNOWN[field]), field


def test_rows_of_another_width_are_refused(tmp_path):
    good = text(ROWS)
    lines = good.splitlines()
    shifted = "\n".join([lines[0].partition(",")[2], *lines[1:]])  # a header that lacks the name of the index column
    ragged = good.replace(lines[5], lines[5] + ",1")
    commas = text(ROWS, decimal=",")
    quoted = ragged.replace("episode", '"episode"')
    for bad in (shifted, ragged, commas, quoted):
        (tmp_path / "d.csv").write_text(bad)
        with pytest.raises(DatasetError, match=r"line \d+ has \d+ cells, the header has \d+"):
            load_dataset(tmp_path / "d.csv")


def test_a_value_that_comes_back_is_a_new_episode(tmp_path):
    """Without a time the rows stand in order: an episode is a run of one value."""
    ids = np.asarray(ROWS["episode"]) % 2
    bare = {name: column for name, column in ROWS.items() if name not in ("time", "terminal", "timeout")}
    data = load_dataset(write_csv(tmp_path / "d.csv", {**bare, "episode": ids}))
    assert len(data.episode_spans[0]) == len(LOG)
    with pytest.raises(DatasetError, match="column `episode` is empty in 1 rows .first: line 5."):
        load_dataset(write_csv(tmp_path / "e.csv", {**bare, "episode": ["a", "a", "a", "", *["b"] * (len(ids) - 4)]}))


def test_long_identifiers_are_not_rounded(tmp_path):
    ids = [9_007_199_254_740_992 + int(e) for e in ROWS["episode"]]
    bare = {name: column for name, column in ROWS.items() if name not in ("time", "terminal", "timeout")}
    data = load_dataset(write_csv(tmp_path / "d.csv", {**bare, "episode": ids}))
    assert len(data.episode_spans[0]) == len(LOG)


def test_time_that_starts_again_is_a_new_episode(tmp_path):
    jitter = np.asarray(ROWS["time"]) + np.random.Generator(np.random.Philox(0)).uniform(0, 0.1, len(ROWS["time"]))
    bare = {name: column for name, column in ROWS.items() if name not in ("episode", "timeout")}
    rows = {name: np.tile(np.asarray(column), 3) for name, column in {**bare, "time": jitter}.items()}
    data = load_dataset(write_csv(tmp_path / "d.csv", rows), columns=None)
    assert len(data.episode_spans[0]) == 3 * len(LOG)
    assert "steps back" in data.origin


def test_rows_in_no_order_need_a_word(tmp_path):
    bare = {name: column for name, column in ROWS.items() if name not in ("episode", "timeout", "terminal")}
    order = np.random.Generator(np.random.Philox(0)).permutation(len(ROWS["time"]))
    path = write_csv(tmp_path / "d.csv", {name: np.asarray(column)[order] for name, column in bare.items()})
    with pytest.raises(DatasetError, match="the rows are out of order, or episodes very short"):
        load_dataset(path)


def test_slow_episodes_are_not_gaps(tmp_path):
    rows = 28
    time = np.concatenate((np.arange(20.0), np.arange(8.0) * 10))
    columns = {
        "episode": [0] * 20 + [1] * 8,
        "time": time,
        "obs_0": np.arange(rows),
        "action_0": [0.5] * rows,
        "reward": time,
    }
    assert len(load_dataset(write_csv(tmp_path / "d.csv", columns))) == 26


def test_an_empty_date_is_named(tmp_path):
    dates = [f"2026-01-01T00:{minute:02d}:00+02:00" for minute in range(10)]
    columns = {"time": dates, "obs_0": np.arange(10), "action_0": [0.5] * 10, "reward": np.arange(10)}
    assert len(load_dataset(write_csv(tmp_path / "d.csv", columns))) == 9
    dates[3] = ""
    with pytest.raises(DatasetError, match="column `time` is empty in line 5"):
        load_dataset(write_csv(tmp_path / "d.csv", columns))


def test_a_temperature_is_not_a_time(tmp_path):
    columns = {"T": np.arange(10)[::-1], "obs_0": np.arange(10), "action_0": [0.5] * 10, "reward": np.arange(10)}
    data = load_dataset(write_csv(tmp_path / "d.csv", columns))
    assert data.observations[:, 0].tolist() == list(range(9))


def test_a_pattern_leaves_out_what_is_named_elsewhere(tmp_path):
    path = write_csv(tmp_path / "d.csv", ROWS)
    columns = {
        "observations": "*",
        "actions": ["action_0", "action_1"],
        "reward": "reward",
        "episode": "episode",
        "time": "time",
    }
    data = load_dataset(path, columns={**columns, "terminal": "terminal", "timeout": "timeout"})
    assert np.array_equal(data.observations, KNOWN["observations"])


def test_words_for_nothing_are_nan(tmp_path):
    for word in ("NA", "null", "#N/A", ""):
        rows = {name: list(column) for name, column in ROWS.items()}
        rows["obs_0"][2] = word
        with pytest.raises(DatasetError, match="NaN or inf"):
            load_dataset(write_csv(tmp_path / "d.csv", rows))


def test_frames_with_odd_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({0: np.arange(6.0), 1: [0.5] * 6, 2: np.arange(6.0), "who": ["a", "a", "a", None, "b", "b"]})
    roles = {"observations": "0", "actions": "1", "reward": "2"}
    assert len(load_dataset(frame, columns=roles)) == 5
    with pytest.raises(DatasetError, match="`who` is empty"):
        load_dataset(frame, columns={**roles, "episode": "who"})
    ragged = frame.assign(list=[[1.0], [1.0, 2.0], [1.0], [1.0], [1.0], [1.0]])
    with pytest.raises(DatasetError, match="different lengths"):
        load_dataset(ragged, columns={**roles, "observations": "list"})
