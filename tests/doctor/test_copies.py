"""Columns that are copies, payouts that were left out, rare penalties, and units that change midway."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine, quick_findings
from tests.helpers import generator

ROWS, LENGTH = 3000, 100


def log(seed=0, columns=3, rewards=None):
    """Slow random walks of a few columns in short episodes, without next observations."""
    draw = generator(seed)
    walks = draw.normal(size=(ROWS // LENGTH, LENGTH, columns)).cumsum(axis=1).reshape(ROWS, columns)
    observations = (10.0 + walks).astype(np.float32)
    return {
        "observations": observations,
        "actions": draw.uniform(-1, 1, (ROWS, 1)).astype(np.float32),
        "rewards": -np.abs(observations[:, 0] - 10.0) if rewards is None else rewards.astype(np.float32),
        "terminals": np.zeros(ROWS, dtype=bool),
        "timeouts": np.arange(ROWS) % LENGTH == LENGTH - 1,
    }


def with_sensor(values, sensor):
    return {**values, "observations": np.column_stack((values["observations"], sensor)).astype(np.float32)}


def findings(values, code):
    return [finding for finding in examine(read_dataset(values)) if finding.code == code]


def test_a_column_that_is_there_twice_is_named_in_every_run():
    values = log()
    twice = with_sensor(values, values["observations"][:, 1])
    (finding,) = findings(twice, "duplicate-column")
    assert finding.evidence == "observation column 3 is observation column 1 again, in every row"
    assert "duplicate-column" in [f.code for f in quick_findings(load_dataset(twice))]
    assert not findings(values, "duplicate-column")


def test_columns_that_differ_somewhere_or_hardly_move_are_no_copies():
    values = log()
    almost, alarm = values["observations"][:, 1].copy(), np.zeros(ROWS)
    almost[1234] += 0.5
    alarm[1500] = 1.0
    assert not findings(with_sensor(values, almost), "duplicate-column")
    assert not findings(with_sensor(with_sensor(values, alarm), alarm), "duplicate-column")


def test_a_reward_among_the_observations_is_named_and_one_of_the_row_before_is_not():
    values = log()
    (finding,) = findings(with_sensor(values, values["rewards"]), "reward-in-observations")
    assert finding.evidence == "observation column 3 is the reward of its row, in every row"
    assert not findings(with_sensor(values, np.roll(values["rewards"], 1)), "reward-in-observations")


def last_row_pays(payouts, otherwise):
    rewards = np.where(np.arange(ROWS) % LENGTH == LENGTH - 1, payouts, otherwise)
    return log(rewards=rewards)


def test_payouts_on_rows_that_are_left_out_are_named_instead_of_a_constant_reward():
    values = last_row_pays(7.0, 0.0)
    (finding,) = findings(values, "lost-payouts")
    assert finding.evidence.startswith("30 non-zero rewards of 7 stand in last rows of cut episodes, which are left out")
    assert "mark these rows in `terminals`" in finding.fix
    assert not findings(values, "constant-column")
    assert [f.code for f in quick_findings(load_dataset(values))] == ["lost-payouts"]
    ended = {**values, "terminals": values["timeouts"], "timeouts": np.zeros(ROWS, dtype=bool)}
    assert not findings(ended, "lost-payouts")
    assert findings(last_row_pays(0.0, 0.0), "constant-column")


def test_payouts_among_other_rewards_are_named_and_usual_last_rewards_are_not():
    usual = generator(3).uniform(-1.0, 0.0, ROWS)
    assert findings(last_row_pays(50.0, usual), "lost-payouts")
    assert not findings(last_row_pays(usual, usual), "lost-payouts")
    assert not findings(last_row_pays(-0.5, usual), "lost-payouts")


def test_a_single_payout_is_told_as_one_and_a_few_rows_have_no_usual_reward():
    values = log(rewards=np.where(np.arange(ROWS) == ROWS - 1, 5.0, 0.0))
    (finding,) = findings(values, "lost-payouts")
    assert finding.evidence.startswith("1 non-zero reward of 5 stands in the last row of a cut episode, which is left out")
    assert finding.evidence.endswith("all that is left is 0")
    few = {name: array[-15:] for name, array in values.items()}
    assert not findings(few, "lost-payouts")


def test_rewards_that_are_all_missing_are_not_called_constant():
    values = log(rewards=np.full(ROWS, np.nan))
    assert findings(values, "not-finite")
    assert not findings(values, "constant-column")


def test_rare_penalties_at_extremes_are_right_and_others_may_be():
    values = log(columns=2)
    highest = values["observations"][:, 1] > np.sort(values["observations"][:, 1])[-5]
    values["rewards"] = np.where(highest, -1e7, values["rewards"]).astype(np.float32)
    assert not findings(values, "outlier-rows")
    values["rewards"] = np.where(np.isin(np.arange(ROWS), (150, 1540, 2330)), -1e7, log()["rewards"]).astype(np.float32)
    (finding,) = findings(values, "outlier-rows")
    assert finding.fix.startswith(
        "rare penalties and payouts are right, and must stay; only if it stands for a missing value"
    )
    assert not findings(values, "huge-column")


@pytest.mark.parametrize("factor", [60.0, 1e6, 1e-5])
def test_a_unit_that_changes_midway_in_one_file_is_named(factor):
    values = log()
    values["observations"] = values["observations"].astype(np.float64)
    values["observations"][1700:, 2] *= factor
    (finding,) = findings(values, "unit-change")
    assert finding.evidence.startswith("observation column 2 is ")
    assert "up to about row 1" in finding.evidence
    assert "convert one part" in finding.fix


def test_a_plant_that_changes_its_load_for_a_while_or_for_good_is_no_unit():
    values = log()
    values["observations"][1000:1500, 2] *= 60.0
    assert not findings(values, "unit-change")
    loaded = log()
    loaded["observations"][1500:] *= (2.0, 7.0, 31.0)
    assert not findings(loaded, "unit-change")
    assert not findings(log(), "unit-change")


@pytest.mark.parametrize("factor", [3.6, 10.0, 60.0])
@pytest.mark.parametrize("wide_first", [False, True])
def test_commands_of_another_amplitude_that_move_the_plant_more_are_in_no_other_unit(factor, wide_first):
    values, draw = log(), generator(5)
    wide = (np.arange(ROWS) < 1300) == wide_first
    commands = draw.uniform(-0.1, 0.1, ROWS) * np.where(wide, factor, 1.0)
    speed, place = np.zeros(ROWS), 0.0
    for row in range(1, ROWS):
        place = 0.9 * place + 0.4 * commands[row - 1] + 0.01 * draw.normal()
        speed[row] = place
    excited = with_sensor({**values, "actions": commands[:, None].astype(np.float32)}, speed)
    assert not findings(excited, "unit-change")
    alone = {**values, "actions": commands[:, None].astype(np.float32)}
    (finding,) = findings(alone, "unit-change")
    assert finding.evidence.startswith("action column 0 is ")
