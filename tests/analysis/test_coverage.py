"""The packaged table of coverage: what it promises, and that the code still gives it."""

import json
import math

import pytest
from benchmarks import coverage as benchmark
from benchmarks.coverage import markdown

from rl_training.analysis.coverage import KINDS, RUNS, SHAPES, coverage, measured, truth
from tests.helpers import ROOT

EXPERIMENTS = 200


def test_95_percent_intervals_of_30_runs_cover_the_truth_in_93_to_97_percent():
    table = measured()
    assert (table["experiments"], table["confidence"]) == (1000, 0.95)
    for kind in ("iqm", "difference"):
        shares = table["coverage"][kind]["30"]
        assert set(shares) == set(SHAPES)
        assert all(0.93 <= share <= 0.97 for share in shares.values()), (kind, shares)
    chances = table["coverage"]["improvement"]["30"]
    assert all(0.93 <= share <= 0.985 for share in chances.values()), chances  # too wide where nearly every run wins


def test_every_kind_and_number_of_runs_was_measured():
    table = measured()["coverage"]
    assert set(table) == set(KINDS)
    assert all([*rows] == [str(runs) for runs in RUNS] for rows in table.values())


@pytest.mark.parametrize(
    ("kind", "shape", "runs"),
    [
        ("iqm", "one in three fails", 3),
        ("iqm", "skewed", 30),
        ("iqm", "four tasks", 5),
        ("iqm, plain percentiles", "normal", 3),
        ("difference", "unequal spread", 5),
        ("improvement", "far apart", 10),
        ("improvement", "no difference", 3),
        ("improvement", "unequal spread", 30),
    ],
)
def test_the_table_is_what_the_code_gives(kind, shape, runs):
    expected = measured()["coverage"][kind][str(runs)][shape]
    error = math.sqrt(expected * (1 - expected) * (1 / EXPERIMENTS + 1 / 1000))
    found = coverage(kind, shape, runs, EXPERIMENTS, resamples=500, seed=1)
    assert abs(found - expected) < 3.5 * error + 0.01


def test_the_truth_is_known_where_it_can_be_computed():
    assert truth("iqm", "normal") == pytest.approx(120.0, abs=0.2)
    assert (truth("difference", "no difference"), truth("improvement", "no difference")) == (0.0, 0.5)
    assert truth("iqm", "no difference") == pytest.approx(50.0, abs=0.2)
    assert truth("improvement", "normal") == pytest.approx(0.7602, abs=0.002)  # Phi(1 / sqrt(2))


def test_the_guide_shows_the_packaged_table():
    assert markdown(measured()) in (ROOT / "docs" / "guide.md").read_text()


def test_the_command_writes_the_table(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark, "KINDS", ["improvement"])
    monkeypatch.setattr(benchmark, "RUNS", [3])
    monkeypatch.setattr(benchmark, "PACKAGED", tmp_path / "coverage.json")
    monkeypatch.setattr("sys.argv", ["coverage", "--experiments", "4", "--processes", "1", "--write"])
    benchmark.main()
    table = json.loads((tmp_path / "coverage.json").read_text())
    assert table["experiments"] == 4
    assert table["coverage"] == {"improvement": {"3": {shape: coverage("improvement", shape, 3, 4) for shape in SHAPES}}}
    assert capsys.readouterr().out == markdown(table) + "\n"
