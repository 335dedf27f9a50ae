"""CSV as loggers write it: the line of every row, rows of units, dates."""

import numpy as np
import pytest

from rl_training.config.blocks import ReadOptions
from rl_training.data import load_dataset, read_dataset
from rl_training.errors import DatasetError
from tests.logs import write_csv

ROLES = {"observations": "T1", "actions": "Q1", "reward": "r"}
HEADER = "t,T1,Q1,r,note"


def rows(count=8, first="{i}", t1=lambda i: i * 1.5):
    return [f"{first.format(i=i)},{t1(i)},{i / 10},{i},n" for i in range(count)]


def written(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def lines_of(path, **options):
    return read_dataset(path, options=ReadOptions(**{"columns": ROLES, **options})).source_rows


def test_lines_count_everything_above_and_between(tmp_path):
    body = rows()
    body[2] = '2,3.0,0.2,2,"two\nlines"'
    lines = ["# export", "", "sep=,", HEADER, "s,°C,%,-,", *body[:3], "", *body[3:]]
    path = written(tmp_path / "d.csv", lines)
    places = lines_of(path)
    assert places.lines.tolist() == [6, 7, 8, 11, 12, 13, 14]  # the last row has no successor
    assert places.rows.tolist() == list(range(7))
    text = path.read_text().splitlines()
    data = load_dataset(path, columns=ROLES)
    assert [float(text[line - 1].split(",")[1]) for line in places.lines] == data.observations[:, 0].tolist()


def test_lines_survive_order_drops_and_lags(tmp_path):
    order = np.random.Generator(np.random.Philox(1)).permutation(8)
    body = rows(t1=lambda i: "" if i == 3 else i * 1.5)
    path = written(tmp_path / "d.csv", [HEADER, *(body[i] for i in order)])
    roles = {**ROLES, "time": "t", "episode": "note", "reward": "diff(r)"}
    places = lines_of(path, columns=roles, on_bad_rows="drop")
    line_of = {int(moment): 2 + k for k, moment in enumerate(order)}
    assert places.lines.tolist() == [line_of[moment] for moment in (1, 4, 5, 6)]
    with pytest.raises(DatasetError, match=rf"`observations` is NaN or inf in 1 rows .first: line {line_of[3]}."):
        load_dataset(path, columns=roles)


def test_rows_of_other_formats_keep_their_numbers(tmp_path):
    arrays = {"observations": np.arange(6.0)[:, None], "actions": np.zeros((6, 1)), "rewards": np.zeros(6)}
    arrays["terminals"] = arrays["timeouts"] = np.zeros(6, dtype=bool)
    arrays["timeouts"] = np.array([0, 0, 1, 0, 0, 0], dtype=bool)
    arrays["rewards"][4] = np.nan
    np.savez(tmp_path / "d.npz", **arrays)
    places = read_dataset(tmp_path / "d.npz").source_rows
    assert places.rows.tolist() == [0, 1, 3, 4]
    with pytest.raises(DatasetError, match=r"`rewards` is NaN or inf in 1 rows .first: 4."):
        load_dataset(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["# a", HEADER, *rows()[:3], "3,err,0,0,n", *rows()[4:]], "column `T1` holds text .'err' in line 6."),
        ([HEADER, *rows()[:3], "3,err,0,0,n", *rows()[4:]], "'err' in line 5."),
        (["", HEADER, *rows()[:3], "3,1", *rows()[4:]], "line 6 has 2 cells, the header has 5"),
        ([HEADER, '0,1,0,0,"a\nb"', "1,1"], "line 4 has 2 cells, the header has 5"),
    ],
)
def test_faulty_cells_are_named_by_line(tmp_path, lines, message):
    with pytest.raises(DatasetError, match=message):
        load_dataset(written(tmp_path / "d.csv", lines), columns=ROLES)


def test_decimal_commas_are_not_the_faulty_cell(tmp_path):
    text = "T1;Q1;r\n1,5;0,5;1\n2,5;0,5;x\n"
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(DatasetError, match="column `r` holds text .'x' in line 3."):
        load_dataset(tmp_path / "d.csv", columns=ROLES)


@pytest.mark.parametrize("units", [["s,°C,%,-,"], ["[s],[degC],[%],[1],[]"], ["time,temperature,heater,reward,", "s,K,%,,"]])
def test_rows_of_units_are_skipped_with_a_note(tmp_path, units):
    plain = load_dataset(written(tmp_path / "a.csv", [HEADER, *rows()]), columns={**ROLES, "time": "t"})
    data = load_dataset(written(tmp_path / "b.csv", [HEADER, *units, *rows()]), columns={**ROLES, "time": "t"})
    assert data.fingerprint == plain.fingerprint
    assert f"line {1 + len(units)} below the header is skipped as units ({units[-1].replace(',', ' , ')[:10]}" in data.origin


@pytest.mark.parametrize("first", ["0,1.0,%,0,n", "0,broken,0.1,0,n"])
def test_a_row_with_numbers_is_no_row_of_units(tmp_path, first):
    with pytest.raises(DatasetError, match="holds text .* in line 2"):
        load_dataset(written(tmp_path / "a.csv", [HEADER, first, *rows()]), columns=ROLES)


def test_units_in_the_names(tmp_path):
    path = written(tmp_path / "a.csv", [HEADER.replace("T1", "T1 [°C]"), *rows()])
    plain = load_dataset(path, columns={**ROLES, "observations": ["T1 [°C]"]})
    assert load_dataset(path, columns={**ROLES, "observations": "T1*"}).fingerprint == plain.fingerprint
    kelvin = load_dataset(path, columns={**ROLES, "observations": "`T1 [°C]` + 273.15"})
    assert kelvin.observations == pytest.approx(plain.observations + 273.15)


FORMS = {
    "German": [f"31.12.2025 23:59:{s:02d}" for s in range(50, 58)],
    "German dates alone": [f"{d}.12.2025" for d in range(1, 9)],
    "German, short year": [f"{d:02d}.12.25 08:00" for d in range(1, 9)],
    "German, fractions": [f"31.12.2025 23:59:58.{s}" for s in range(8)],
    "ISO": [f"2025-12-31T23:59:{s:02d}" for s in range(50, 58)],
    "ISO with a space and a comma": [f'"2025-12-31 23:59:58,{s}"' for s in range(8)],
    "year first": [f"2025/12/31 23:{m:02d}" for m in range(8)],
    "month first": [f"12/{d}/2025 10:00" for d in range(10, 18)],
    "day first": [f"{d}/12/2025" for d in range(10, 18)],
    "half days": [f"12/31/2025 {11 + h if h < 2 else h - 1}:00:00 {'AM' if h < 1 else 'PM'}" for h in range(8)],
    "named month": [f"31-Dec-2025 10:00:{s:02d}" for s in range(8)],
    "time of day": [f"10:00:{s:02d}" for s in range(8)],
}


@pytest.mark.parametrize("form", FORMS)
def test_dates_order_rows(tmp_path, form):
    """Rows in no order come back in that of their dates, evenly spaced: any misread date would cut or reorder them."""
    order = np.random.Generator(np.random.Philox(2)).permutation(8)
    body = rows()
    lines = [f"{FORMS[form][i]}{body[i][1:]}" for i in order]
    roles = {**ROLES, "time": "t", "episode": "note"}
    data = load_dataset(written(tmp_path / "d.csv", [HEADER, *lines]), columns=roles)
    assert data.observations[:, 0].tolist() == [i * 1.5 for i in range(7)]
    assert len(data.episode_spans[0]) == 1


@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        ([f"12/{d}/2025" for d in range(1, 9)], "day and month cannot be told apart .'12/1/2025'."),
        (["13/12/2025", "12/13/2025", *[f"1/{d}/2025" for d in range(1, 7)]], "both orders of day and month occur"),
        (
            [*[f"{d}.12.2025" for d in range(1, 8)], "32.12.2025"],
            "'32.12.2025' in line 9, which is not a date like",
        ),
        ([*[f"{d}.12.2025" for d in range(1, 8)], "yesterday"], "'yesterday' in line 9"),
        ([f"day {d}" for d in range(8)], "neither numbers nor dates"),
        (["1.12.2025", "", *[f"{d}.12.2025" for d in range(3, 9)]], "is empty in line 3"),
    ],
)
def test_dates_that_cannot_be_read_are_one_line(tmp_path, stamps, message):
    columns = {"t": stamps, "T1": np.arange(8), "Q1": np.linspace(0, 1, 8), "r": np.arange(8)}
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(write_csv(tmp_path / "d.csv", columns), columns={**ROLES, "time": "t"})
    assert "\n" not in str(caught.value)
