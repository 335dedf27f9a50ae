"""Ends that are marked one row late, and columns of ends that mark nothing."""

import numpy as np

from rl_training.config.blocks import ReadOptions
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.helpers import generator

COLUMNS = {"observations": ["x", "v"], "actions": "u", "reward": "r", "episode": "lift", "terminal": "placed"}


def lifts(lengths, seed=0):
    """Lifts that are placed in their last row."""
    draw = generator(seed)
    lift = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.append(np.diff(lift) > 0, True)
    x, v, u = draw.normal(size=(3, len(lift)))
    return {"x": x, "v": v, "u": u, "r": x + 0.1 * u, "lift": lift, "placed": ends.astype(float)}


def checked(table):
    reading = read_dataset(table, options=ReadOptions.checked({"columns": COLUMNS}))
    return reading, {finding.code: finding for finding in examine(reading)}


def test_ends_one_row_late_are_found():
    table = lifts([20 + number % 7 for number in range(12)])
    assert "ends-in-first-rows" not in checked(table)[1]
    table["placed"] = np.roll(table["placed"], 1) * (np.arange(len(table["placed"])) > 0)
    finding = checked(table)[1]["ends-in-first-rows"]
    assert "of 11 true ends these are the only row of their episode: 11 rows (first: 20, 41, 63)" in finding.evidence
    assert finding.severity == "warning"


def test_single_rows_are_no_fault_where_all_episodes_or_few_ends_are_such():
    assert "ends-in-first-rows" not in checked(lifts([1] * 60))[1]
    assert "ends-in-first-rows" not in checked(lifts([1, 30, 20, 25] * 8))[1]  # some fail at once


def test_a_column_of_ends_that_is_never_true_is_said_to_be():
    table = lifts([20] * 12)
    assert "`terminals` are true ends" in str(checked(table)[0].notes)
    table["placed"][:] = 0.0
    assert "`terminals` are never true, so there are no true ends" in str(checked(table)[0].notes)
