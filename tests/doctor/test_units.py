"""Columns that are in another unit in some files of a dataset."""

import numpy as np
import pytest
from benchmarks import doctor_files

from rl_training.config.blocks import ReadOptions
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.helpers import generator
from tests.logs import write_csv

COLUMNS = {"observations": ["T", "flow", "level"], "actions": ["valve"], "reward": "cost"}
OPTIONS = ReadOptions.checked({"columns": COLUMNS})


def week(draw, rows=300):
    wander = np.cumsum(draw.normal(0, 0.02, (rows, 2)), axis=0)
    temperature = draw.normal(40.0, 2.0) + 4 * np.sin(np.arange(rows) / 15) + draw.normal(0, 0.2, rows)
    flow = 3000 * np.exp(0.2 * wander[:, 0]) + draw.normal(0, 20, rows)
    valve = np.clip(0.5 + wander[:, 1] + draw.normal(0, 0.1, rows), 0, 1)
    return {"T": temperature, "flow": flow, "level": wander[:, 1], "valve": valve, "cost": -np.abs(temperature - 40.0)}


def found(folder, weeks):
    for number, columns in enumerate(weeks):
        write_csv(folder / f"week{number}.csv", columns)
    findings = examine(read_dataset(str(folder), options=OPTIONS))
    return [finding for finding in findings if finding.code == "unit-change"]


def weeks(count=5, seed=0):
    draw = generator(seed)
    return [week(draw) for _ in range(count)]


@pytest.mark.parametrize(
    ("column", "change", "words", "fix"),
    [
        ("T", lambda x: x * 1.8 + 32, "1.8 times the smaller plus 32, as of °F and °C", "`(NAME - 32) / 1.8`"),
        ("T", lambda x: x + 273.15, "the larger are the smaller plus 273.15, as of K and °C", "`NAME - 273.15`"),
        (
            "flow",
            lambda x: x / 60,
            "60 times the smaller, as of an hour and a minute; or 57.296 times, as of degrees and radians",
            "`NAME * 60` for an hour and a minute, `NAME * 57.29578` for degrees and radians",
        ),
        ("flow", lambda x: x * 3600, "3600 times the smaller", "`NAME / 3600`"),
        ("valve", lambda x: x * 100, "100 times the smaller, as of percent and a fraction", "`NAME / 100`"),
    ],
)
def test_a_unit_that_changes_in_one_file(tmp_path, column, change, words, fix):
    logs = weeks()
    logs[3][column] = change(logs[3][column])
    (finding,) = found(tmp_path, logs)
    assert f"`{column}` (" in finding.evidence
    assert "in week3.csv, and " in finding.evidence
    assert "in 4 others" in finding.evidence
    assert words in finding.evidence
    assert fix in finding.fix
    assert "leave it out" in finding.fix


def test_a_wide_range_in_fahrenheit_that_begins_just_above_the_others(tmp_path):
    logs = weeks()
    for log in logs:
        log["T"] = 40.0 + 19.0 * np.sin(np.arange(300) / 15) + 0.2 * (log["T"] - 40.0)
    logs[1]["T"] = logs[1]["T"] * 1.8 + 32
    (finding,) = found(tmp_path, logs)
    assert "in week1.csv, and " in finding.evidence


def test_several_columns_of_a_run_of_files(tmp_path):
    logs = weeks(6)
    for log in logs[4:]:
        log["flow"], log["valve"] = log["flow"] / 60, log["valve"] * 100
    findings = found(tmp_path, logs)
    assert [finding.evidence.split("`")[1] for finding in findings] == ["flow", "valve"]
    assert all("in week4.csv, week5.csv, and " in finding.evidence for finding in findings)


def test_rewards_in_another_unit(tmp_path):
    logs = weeks(6)
    for log in logs[4:]:
        log["cost"] = log["cost"] / 100
    (finding,) = found(tmp_path, logs)
    assert finding.evidence.startswith("`rewards` is ")
    assert " in week4.csv, week5.csv, and " in finding.evidence
    assert "100 times the smaller, as of percent and a fraction, or ct and EUR" in finding.evidence


def test_rewards_that_are_computed_from_a_column_in_another_unit_are_no_finding_of_their_own(tmp_path):
    logs = weeks()
    logs[3] |= {"flow": logs[3]["flow"] * 3600, "cost": -np.abs(logs[3]["flow"] * 3600)}
    for log in (*logs[:3], logs[4]):
        log["cost"] = -np.abs(log["flow"])
    (finding,) = found(tmp_path, logs)
    assert finding.evidence.startswith("`flow` (")


def test_an_angle_in_radians_is_named_first_and_in_every_file_that_it_explains(tmp_path):
    logs = weeks(6)
    for number, log in enumerate(logs):
        log["level"] = 8.0 * np.sin(np.arange(300) / (5 if number % 2 else 6)) + log["level"]
    for log in logs[4:]:
        log["level"] = np.deg2rad(log["level"])
    logs[5]["level"] *= 2.5
    (finding,) = found(tmp_path, logs)
    assert " in week4.csv, week5.csv, and " in finding.evidence
    assert "57.296 times the smaller, as of degrees and radians; or 60 times, as of an hour and a minute" in finding.evidence
    assert "`NAME * 57.29578` for degrees and radians, `NAME * 60` for an hour" in finding.fix


def test_on_off_commands_in_percent(tmp_path):
    logs = weeks()
    for log in logs:
        log["valve"] = (log["valve"] > 0.5).astype(float)
    logs[0]["valve"] *= 100
    (finding,) = found(tmp_path, logs)
    assert "`valve` (action column 0) is 0 to 100 in week0.csv, and 0 to 1 in 4 others" in finding.evidence


def test_the_other_unit_of_a_dataset_of_two_files(tmp_path):
    logs = weeks(2)
    logs[1]["flow"] /= 60
    (finding,) = found(tmp_path, logs)
    assert "week0.csv" in finding.evidence
    assert "week1.csv" in finding.evidence


def levels(logs):
    logs[2]["T"] += 60
    logs[3]["flow"] += 5000


def another_noise(logs):
    logs[1]["flow"] = logs[1]["flow"] / 60 + generator(9).normal(0, 40, 300)


def set_points(logs):
    for log, value in zip(logs, (20, 20, 68, 20, 20), strict=True):
        log["flow"] = np.full(300, float(value))


def another_load(logs):
    """Others change as much, and no unit does so; `valve` alone is as if it were in another unit."""
    for column in ("T", "level"):
        logs[4][column] = 5000 + logs[4][column] * 7.3
    logs[4]["valve"] = logs[4]["valve"] * 10


def very_short(logs):
    logs[2]["flow"] /= 60
    logs[2] = {name: values[:9] for name, values in logs[2].items()}


@pytest.mark.parametrize("change", [lambda logs: None, levels, another_noise, set_points, another_load, very_short])
def test_files_that_differ_otherwise(tmp_path, change):
    logs = weeks()
    change(logs)
    assert found(tmp_path, logs) == []


def test_one_file_has_nothing_to_be_compared_with(tmp_path):
    logs = weeks(2)
    logs[1]["flow"] /= 60
    write_csv(tmp_path / "all.csv", {name: np.concatenate([log[name] for log in logs]) for name in logs[0]})
    findings = examine(read_dataset(str(tmp_path / "all.csv"), options=OPTIONS))
    assert "unit-change" not in [finding.code for finding in findings]


@pytest.mark.parametrize("make", [doctor_files.two_loads, doctor_files.batches, doctor_files.pair])
def test_honest_folders(make):
    assert [doctor_files.named(doctor_files.folder(make(generator(seed)))) for seed in range(3)] == [set()] * 3
