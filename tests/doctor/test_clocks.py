"""Samples that are missing inside episodes are found by the time and by clocks, and cut by the fix."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.data.reading.clocks import clock_skips, skipped_samples
from rl_training.doctor.doctor import examine, quick_findings
from tests.doctor.test_fixes import flags_of, found
from tests.helpers import generator
from tests.logs import write_csv

DAY, DAYS = 288, 12  # samples of five minutes
MISSING = 4  # samples at the end of each day


def days(**clock):
    """A table of a slow plant over some days, with the last samples of each day missing; line 1 is the header."""
    draw, rows = generator(0), np.arange(DAY * DAYS)
    heat = 20.0 + np.cumsum(draw.normal(0, 0.1, len(rows)))
    columns = {"T": heat, "u": draw.uniform(0, 1, len(rows)), "r": -np.abs(heat - 20.0)}
    columns |= {name: make(rows) for name, make in clock.items()}
    kept = rows % DAY < DAY - MISSING
    return {name: column[kept] for name, column in columns.items()}


CLOCKS = {
    "an index": {"n": lambda rows: rows},
    "the hour": {"h": lambda rows: np.round(rows % DAY / 12.0, 3)},
    "seconds of the day": {"s": lambda rows: rows % DAY * 300.0},
    "sine and cosine": {
        "s": lambda rows: np.round(np.sin(rows * 2 * np.pi / DAY), 3),
        "c": lambda rows: np.round(np.cos(rows * 2 * np.pi / DAY), 3),
    },
}


@pytest.mark.parametrize("kind", CLOCKS)
def test_a_clock_among_the_observations(kind, tmp_path, capsys):
    path = write_csv(tmp_path / "log.csv", days(**CLOCKS[kind]))
    mapped = f"{{observations: [T, {', '.join(CLOCKS[kind])}], actions: [u], reward: r}}"
    finding = found(capsys, path, "--columns", mapped)["time-gap"]
    lines = [1 + (DAY - MISSING) * day for day in (1, 2, 3)]
    assert f"after {DAYS - 1} rows (first: line {lines[0]}, line {lines[1]}, line {lines[2]})" in finding["evidence"]
    assert finding["severity"] == "warning"
    assert flags_of(finding["fix"]) == ["--cut-gaps"]
    assert "time-gap" not in found(capsys, path, "--columns", mapped, "--cut-gaps")
    columns = {"observations": ["T", *CLOCKS[kind]], "actions": ["u"], "reward": "r"}
    cut = load_dataset(path, columns=columns, cut_gaps=True)
    assert len(cut.episode_spans[0]) == DAYS
    assert len(cut) == (DAY - MISSING - 1) * DAYS  # no transition leads across a gap


def test_the_time_column(tmp_path, capsys):
    path = write_csv(tmp_path / "log.csv", days(t=lambda rows: rows * 300.0))
    mapped = "{observations: [T], actions: [u], reward: r, time: t}"
    finding = found(capsys, path, "--columns", mapped)["time-gap"]
    assert f"the time skips samples inside episodes, after {DAYS - 1} rows (first: line 285" in finding["evidence"]
    assert "time-gap" not in found(capsys, path, "--columns", mapped, *flags_of(finding["fix"]))


def test_a_run_is_told_what_the_reader_saw(tmp_path):
    """The time is no column of a dataset, so the reader's words go with it."""
    path = write_csv(tmp_path / "log.csv", days(t=lambda rows: rows * 300.0))
    columns = {"observations": ["T"], "actions": ["u"], "reward": "r", "time": "t"}
    assert "time-gap" in [one.code for one in quick_findings(load_dataset(path, columns=columns))]
    assert quick_findings(load_dataset(path, columns=columns, cut_gaps=True)) == []
    several = load_dataset([path, path], columns=columns)
    assert several.time_skips.startswith(f"{2 * (DAYS - 1)} rows (first: {path} line 285")


def test_nothing_looks_across_a_cut(tmp_path):
    """A change that is computed from the row before a gap would be one of several samples."""
    path = write_csv(tmp_path / "log.csv", days(t=lambda rows: rows * 300.0))
    columns = {"observations": ["T", "diff(t)"], "actions": ["u"], "reward": "r", "time": "t"}
    assert load_dataset(path, columns=columns).observations[:, 1].max() == 300.0 * (MISSING + 1)
    assert load_dataset(path, columns=columns, cut_gaps=True).observations[:, 1].max() == 300.0


def test_stored_successors_across_a_gap():
    """Whoever shifted the rows of a log with missing samples stored wrong next observations; they are left out."""
    rows = np.delete(np.arange(601), slice(200, 203))
    values = {"observations": rows[:-1, None], "next_observations": rows[1:, None], "terminals": np.zeros(597)}
    values = {name: np.asarray(array, dtype=np.float32) for name, array in values.items()}
    values |= {"actions": generator(0).uniform(-1, 1, (597, 1)), "rewards": generator(1).normal(size=597)}
    assert "time-gap" in [one.code for one in examine(values)]
    cut = load_dataset(values, cut_gaps=True)
    assert len(cut) == 596
    assert np.flatnonzero(cut.timeouts).tolist() == [198, 595]
    assert "time-gap" not in [one.code for one in examine(cut)]


def steps_of(values):
    return values[:-1].astype(float), values[1:].astype(float)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(500) % 100,  # it turns
        np.arange(5000) % 1000,
        np.cumsum(1.0 + generator(0).uniform(-0.4, 0.4, 500)),  # samples are not taken at equal times
        np.cumsum(np.where(np.arange(500) % 20 < 18, 1.0, 1.5)),  # a position at two speeds
        np.minimum(np.arange(500), 470),  # a ramp that ends
        np.repeat(np.arange(250), 2),
        np.full(500, 3.0),
        np.arange(40),
        np.where(np.arange(500) == 70, np.nan, np.arange(500)),
    ],
)
def test_what_is_no_gap(values):
    assert not skipped_samples(*steps_of(values)).any()


def test_an_angle_is_no_clock():
    """Sine and cosine of a joint lie on a circle too, but it does not turn evenly."""
    angle = np.cumsum(generator(0).normal(0, 0.3, 1000))
    seen = np.column_stack((np.sin(angle), np.cos(angle)))
    assert not list(clock_skips(seen[:-1], seen[1:]))
