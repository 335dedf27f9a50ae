"""Shifted rewards where rare penalties are a thousand times the usual cost: none imagined, none missed."""

import numpy as np
import pytest
from benchmarks.doctor_faults import rewards_ahead, rewards_early, rewards_late, rewards_on_arrival
from benchmarks.doctor_kinds import cooler
from benchmarks.doctor_matrix import findings

from rl_training.doctor.alignment import _in_most
from tests.helpers import generator


def shifts(log):
    return [finding for finding in findings(log) if finding.code == "shifted-rewards"]


@pytest.mark.parametrize("seed", range(12))
def test_rare_penalties_are_no_shift(seed):
    log = cooler(seed)
    rewards = log.arrays["rewards"]
    assert rewards.min() < 1000.0 * np.median(rewards)
    assert shifts(log) == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("fault", "seen", "fix"),
    [
        (rewards_late, "one row late", "--reward-lag 1"),
        (rewards_on_arrival, "one row late", "--reward-lag 1"),
        (rewards_early, "one row early", "--reward-lag -1"),
        (rewards_ahead, "one row early", "--reward-lag -1"),
    ],
)
def test_a_true_shift_beside_rare_penalties_is_found(fault, seen, fix, seed):
    log = cooler(seed)
    fault(log, generator(seed))
    (found,) = shifts(log)
    assert seen in found.evidence
    assert fix in found.fix


@pytest.mark.parametrize(
    ("agreed", "seams", "enough"),
    [(8, 8, True), (7, 8, False), (11, 12, True), (10, 12, False), (20, 24, True), (19, 24, False), (1200, 2000, False)],
)
def test_most_seams_agree_and_not_by_chance(agreed, seams, enough):
    assert _in_most(np.arange(seams) < agreed) is enough
