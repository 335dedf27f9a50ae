"""Tables for papers: what they hold, and that nothing in a name breaks them."""

import csv
import io
import json
import re

import pytest

from rl_training.analysis.comparison import compare
from rl_training.errors import ConfigError
from tests.analysis.known_scores import BAD, GOOD
from tests.analysis.runs import write_run

GROUPS = {"iql": {"x": GOOD, "y": GOOD[:4]}, "bc": {"x": BAD, "y": BAD}}


def test_markdown_has_every_task_and_group_with_interval_and_seeds():
    text = compare(GROUPS).table("md")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[1:4]] == ["x", "y", "all 2 tasks"]
    assert all(
        re.fullmatch(r"\d+\.\d \\\[\d+\.\d, \d+\.\d\\\] \(\d+( to \d+)?\)", cell) for row in rows[1:4] for cell in row[1:]
    )
    assert (rows[1][1][-4:], rows[2][1][-3:], rows[3][1][-9:]) == ("(10)", "(4)", "(4 to 10)")
    assert rows[4][-3:] == ["probability of improvement", "difference of IQM", "verdict"]
    assert (rows[5][0], rows[5][-1]) == ("iql against bc", "better")
    assert "Interquartile mean of the scores as given; 95% interval (number of seeds)" in text


def test_latex_is_two_tables_with_equal_numbers_of_cells():
    text = compare({"a_1 & b%": {"[x] 50%\\": [-1.0, -2.0, -3.0]}, "b": {"[x] 50%\\": [-4.0, -5.0, -6.5]}}).table("latex")
    body = [line for line in text.splitlines() if line and not line.startswith(("%", "\\"))]
    assert all(line.endswith(" \\\\") for line in body)
    assert body[0] == " & a\\_1 \\& b\\% & b \\\\"
    assert body[1].startswith("{}[x] 50\\%\\textbackslash{} & $-$2.0 [$-$4.")
    assert [len(re.findall(r"(?<!\\)&", line)) for line in body] == [2, 2, 3, 3]
    for rule in ("\\toprule", "\\midrule", "\\bottomrule"):
        assert text.count(rule) == 2
    assert text.count("\\begin{tabular}{lrr}") == text.count("\\begin{tabular}{lrrr}") == 1
    assert compare(GROUPS).table("latex").count("\\midrule") == 3  # one before what is of all tasks


def test_a_quote_needs_no_package():
    text = compare({'"a"': GOOD, "b": BAD}).table("latex")
    assert " & \\char34{}a\\char34{} & b" in text


def test_figures_on_another_scale_than_the_task_have_a_row_of_their_own():
    """A difference of normalised scores beside scores in their units would be read as one of those."""
    found = compare({"iql": GOOD, "bc": BAD}, normalize="min-max")
    rows = [line.strip("| ").split(" | ") for line in found.table("md").splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["iql", "scores", "normalised", "probability of improvement", "iql against bc"]
    assert [float(row[1].split()[0]) for row in rows[1:3]] == pytest.approx([61.2, 0.894])
    assert found.table("latex").count("\\midrule") == 3
    csv_rows = list(csv.DictReader(io.StringIO(found.table("csv"))))
    differences = {row["task"]: float(row["estimate"]) for row in csv_rows if row["measure"] == "difference of IQM"}
    assert differences == pytest.approx({"scores": 20.0, "normalised": 20.0 / 26.0})


def test_scores_of_files_beside_runs_are_told(tmp_path):
    write_run(tmp_path / "iql", [GOOD])
    (tmp_path / "bc.json").write_text(json.dumps({"bc": {"Pendulum-v1": BAD}}))
    text = compare([tmp_path / "iql", tmp_path / "bc.json"]).table("latex")
    assert "last eval/return_mean of each run, scores as given of bc; 95% interval" in text


def test_csv_has_a_row_for_each_number():
    found = compare({"=cmd": GROUPS["iql"], "bc": GROUPS["bc"]})
    rows = list(csv.DictReader(io.StringIO(found.table("csv"))))
    iqm = [row for row in rows if row["measure"] == "iqm"]
    assert [(row["task"], row["group"], row["seeds"]) for row in iqm[:2]] == [("x", "'=cmd", "10"), ("x", "bc", "10")]
    assert float(iqm[0]["low"]) == found.cells["=cmd"]["x"].iqm.low
    (pair,) = (row for row in rows if row["measure"] == "probability of improvement" and row["task"] == "all 2 tasks")
    assert (float(pair["estimate"]), pair["against"], pair["verdict"]) == (1.0, "bc", "better")
    assert len(rows) == 6 + 6


def test_what_is_not_known_is_left_empty():
    found = compare({"a": [1.0], "b": [2.0, 3.0]})
    row = next(csv.DictReader(io.StringIO(found.table("csv"))))
    assert (row["estimate"], row["low"], row["high"]) == ("1.0", "", "")
    assert "nan" not in "".join(found.table(kind) for kind in ("md", "latex", "csv"))
    relative = compare({name: {"x": GOOD, "y": [9e3, 8e3]} for name in "ab"}, normalize="min-max")
    assert "difference of IQM |" not in relative.table("md")  # it would mean nothing elsewhere
    assert "0 is the lowest score, 1 the highest (all 2 tasks)" in relative.table("md")


def test_the_note_says_which_scores_are_good():
    text = compare(GROUPS, lower_is_better=True).table("md")
    assert "Interquartile mean of the scores as given, lower is better; 95% interval" in text


def test_warnings_are_in_what_is_printed_and_in_tables(tmp_path):
    """Nobody who prints a comparison or puts it into a paper misses what the command line would have said of it."""
    found = compare({name: {"x": [-4e4, -3e4], "y": [0.1, 0.2]} for name in ("a", "b")})
    told = "warning: x and y differ in scale, so the first decides the overall values; pass --normalize min-max or reference"
    assert str(found) == f"{told}\n{found.conclusion}"
    assert told in found.table("md").splitlines()
    assert f"% {told}" in found.table("latex").splitlines()
    run = write_run(tmp_path / "a\nb", [GOOD], status="running")
    odd = compare({"iql": run, "bc": {"Pendulum-v1": BAD}})
    assert str(odd).count("\n") == odd.conclusion.count("\n") + len(odd.warnings)
    assert all(line.startswith(("%", "\\")) or line.endswith("\\\\") or not line for line in odd.table("latex").splitlines())


def test_another_kind_is_refused():
    with pytest.raises(ConfigError, match="--format html: must be one of md, latex, csv"):
        compare(GROUPS).table("html")
