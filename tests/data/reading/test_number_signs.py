"""Which of point and comma is the decimal sign of a CSV, and which separates thousands."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.errors import DatasetError

ROLES = {"observations": ["a", "b"], "actions": "u", "reward": "r", "time": "t"}
HEADER = "t;a;b;u;r;note"


def read(path, rows, header=HEADER, separator=";", **columns):
    lines = [header, *rows]
    path.write_text("\n".join(line.replace(";", separator) for line in lines) + "\n", encoding="utf-8")
    return load_dataset(path, columns={**ROLES, **columns})


def german(a="1.271", b="24,04", note="x"):
    """Rows of which all but the first hold `a` and `b`."""
    return ["31.12.2025 10:00;876;24,04;-0,5;0,5;x", *(f"31.12.2025 10:0{i};{a};{b};-0,5;0,5;{note}" for i in range(1, 9))]


@pytest.mark.parametrize(
    ("a", "value"),
    [
        *[("1.271", 1271.0), ("-12.500", -12500.0), ("+999.999", 999_999.0), ("1.271,5", 1271.5), ("1.271.000", 1_271_000.0)],
        *[
            ("28,046", 28.046),
            ("0,006", 0.006),
            ("1.234.567,891", 1_234_567.891),
            ("1271", 1271.0),
            (",5", 0.5),
            ("1,5e3", 1500.0),
        ],
    ],
)
def test_a_point_beside_decimal_commas_separates_thousands(tmp_path, a, value):
    data = read(tmp_path / "d.csv", german(a))
    np.testing.assert_array_equal(data.observations[:, 0], np.float32([876.0] + [value] * 7))
    np.testing.assert_array_equal(data.observations[:, 1], np.float32(24.04))
    count = "8 numbers are read with a point between thousands (`1.234` is 1234)"
    assert (count in data.origin) == ("." in a)


@pytest.mark.parametrize("a", ["0.271", "1.27", "1.2710", "1271.5", "01.271", "1.27e1", ".271"])
def test_a_column_with_decimal_points_of_its_own_keeps_them(tmp_path, a):
    data = read(tmp_path / "d.csv", [row if i % 2 else row.replace("876", "1.500") for i, row in enumerate(german(a))])
    np.testing.assert_array_equal(data.observations[:2, 0], np.float32([1.5, float(a)]))
    assert "thousands" not in data.origin


def test_a_column_that_is_not_mapped_tells(tmp_path):
    rows = [
        f"{i};{a};7;1.500;2;{note}" for i, (a, note) in enumerate([("876", "1"), ("1.271", "24,04"), ("1.300", "25,1")] * 3)
    ]
    data = read(tmp_path / "d.csv", rows)  # of these columns alone every cell is a number
    assert data.observations[:3, 0].tolist() == [876.0, 1271.0, 1300.0]
    assert data.actions[:, 0].tolist() == [1500.0] * 8


def test_a_file_without_a_decimal_comma_keeps_its_points(tmp_path):
    rows = [f"{i};1.{i}71;12.500;2.000;{i};x" for i in range(9)]
    data = read(tmp_path / "d.csv", rows)
    assert data.observations[1].tolist() == pytest.approx([1.171, 12.5])
    assert "thousands" not in data.origin


def test_a_file_of_three_decimals_keeps_its_commas(tmp_path):
    data = read(tmp_path / "d.csv", [f"{i};1,{i}71;12,500;2,000;{i};x" for i in range(9)])
    assert data.observations[1].tolist() == pytest.approx([1.171, 12.5])


def test_commas_between_thousands_in_quotes(tmp_path):
    rows = [f'{i};"{a}";0.569;"1,405.5";-95.00;x' for i, a in enumerate(["550", "2,029", "12,345,678"] * 3)]
    data = read(tmp_path / "d.csv", rows, separator=",")
    assert data.observations[:3, 0].tolist() == [550.0, 2029.0, 12_345_678.0]
    assert data.actions[:, 0].tolist() == [1405.5] * 8
    assert "15 numbers are read with a comma between thousands (`1,234` is 1234)" in data.origin


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([f"{i};1,271;1.271;2;3;x" for i in range(9)], "line 2, column `a`: `1,271` may be 1.271 or 1271, since no cell"),
        (
            [f"{i};{a};7;2;3;x" for i, a in enumerate(["876", "1.271"] * 4)],
            "line 3, column `a`: `1.271` may be 1.271 or 1271",
        ),
        ([f"{i};1.271;24,04;24.04;3;x" for i in range(9)], "the file has decimal points and decimal commas; export it"),
        ([f"{i};{a};7;2;3;x" for i, a in enumerate(["2,5", "1.271", "2.5"] * 3)], "the column has decimal points and"),
    ],
)
def test_what_no_cell_tells_is_refused(tmp_path, rows, message):
    with pytest.raises(DatasetError) as caught:
        read(tmp_path / "d.csv", rows)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'd.csv'}: line ")


def test_commas_in_quotes_that_nothing_explains_are_refused(tmp_path):
    rows = [f'{i},"2,029",7,2,3,x' for i in range(9)]
    with pytest.raises(DatasetError, match="`2,029` may be 2.029 or 2029"):
        read(tmp_path / "d.csv", rows, HEADER.replace(";", ","), ";")
    with pytest.raises(DatasetError, match="holds text"):  # a pair, or a decimal in a file of commas
        read(tmp_path / "d.csv", [row.replace("2,029", "2,5") for row in rows], HEADER.replace(";", ","), ";")


def test_dates_and_identifiers_are_left_alone(tmp_path):
    rows = [row.replace("31.12.2025 10:0", "") for row in german()[1:]]
    data = read(tmp_path / "d.csv", [f"1.00{row}" for row in rows], episode="note")
    assert len(data.episode_spans[0]) == 1
    assert data.observations[:, 0].tolist() == [1271.0] * 7
    assert "8 numbers are read" in data.origin  # those of `a`, and none of the times
    assert "gap" not in read(tmp_path / "e.csv", german()).origin
