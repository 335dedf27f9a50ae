"""The verdict of `reproduce`: how often it fails, bounds, seeds."""

from itertools import combinations
from math import inf

import numpy as np
import pytest

from rl_training.analysis.ranks import chance_of_ranking_lower
from rl_training.analysis.reproduction import (
    LEVEL,
    Verdict,
    fewest_seeds,
    largest_loss,
    new_seeds,
)
from rl_training.config.expectation import Expectation
from tests.helpers import generator


def expectation(scores, iqm=None, **more):
    seeds = list(range(100, 100 + len(scores)))
    measured = {"iqm": iqm, "interval": None, "minutes": 1.0, "device": "cpu", "versions": {}, "recipe": "", "command": ""}
    return Expectation.checked({"episodes": 20, "seeds": seeds, "scores": scores, "step": 10, **measured, **more})


def test_a_faithful_replication_fails_as_rarely_as_stated():
    """Over every way to divide 5 + 5 scores, all equally likely, a share of at most 1 % fails, and some do."""
    fails = 0
    for chosen in combinations(range(10), 5):
        rest = [score for score in range(10) if score not in chosen]
        fails += chance_of_ranking_lower(chosen, rest) <= LEVEL
    assert 0 < fails <= LEVEL * 252


def test_the_largest_loss_by_hand():
    """Of 4 + 4 scores only complete separation (1 choice in 70) is rarer than 2 %: any larger loss lifts 10 above 20."""
    found, recorded = [10.0, 11.0, 12.0, 13.0], [10.5, 11.5, 12.5, 20.0]
    assert largest_loss(found, recorded, level=0.02) == 20.0 - 10.0
    assert largest_loss(found, recorded, level=0.03) == 20.0 - 11.0  # two choices in 70: all but the lowest above 20
    assert largest_loss([score + 20.0 for score in found], recorded, level=0.02) == 20.0 - 30.0
    assert largest_loss([-inf, *found[1:]], recorded, level=0.02) == inf  # no shift lifts what diverged


def test_the_largest_loss_holds_with_its_confidence():
    draw = generator(2)
    true, held = 1.0, 0
    for _ in range(400):
        found, recorded = draw.normal(size=5) - true, draw.normal(size=8)
        held += largest_loss(found.tolist(), recorded.tolist()) >= true
    assert held >= 0.98 * 400  # 99 % of them, with room for chance


def test_seeds():
    assert fewest_seeds(8) == 3  # 165 choices; of two seeds there are only 45
    assert fewest_seeds(5) == 4  # 126
    assert fewest_seeds(3) == 7  # 120
    assert new_seeds([100, 107, 103, 101, 102]) == [108, 109, 110, 111, 112]  # other seeds than the recorded ones
    assert new_seeds([0, 1, 2]) == [3, 4, 5, 6, 7, 8, 9]  # as many as the test needs


def test_verdicts():
    known = expectation([-150.0, -160.0, -155.0, -145.0, -149.0])
    same = Verdict(known, (1, 2, 3, 4), (-151.0, -152.0, -148.0, -158.0))
    assert same.passed
    assert not same.better
    assert same.remarks() == []
    worse = Verdict(known, (1, 2, 3, 4), (-250.0, -252.0, -248.0, -258.0))
    assert (worse.passed, worse.p) == (False, pytest.approx(1 / 126))
    assert worse.record()["verdict"] == "FAIL"
    better = Verdict(known, (1, 2, 3, 4), (-50.0, -52.0, -48.0, -58.0))
    assert better.passed
    assert "better than the recorded ones" in better.remarks()[0]
    lost = Verdict(known, (100, 2, 3, 4), (-inf, -inf, -inf, -inf))
    assert not lost.passed
    assert [remark.split()[0] for remark in lost.remarks()] == ["4", "1"]
    assert lost.record()["found"] == {"iqm": None, "seeds": (100, 2, 3, 4), "scores": [None] * 4}


def test_what_proves_little_is_said():
    known = expectation([-150.0, -160.0, -155.0, -145.0, -149.0], weak="it learns nothing")
    found = Verdict(known, (1, 2, 3, 4), (-151.0, -152.0, -148.0, -158.0))
    assert found.remarks() == ["passing proves little here: it learns nothing"]


def test_many_seeds_are_judged_without_counting_every_choice():
    few = Verdict(expectation([1.0, 2.0, 3.0, 4.0]), (1, 2, 3, 4), (1.5, 2.5, 3.5, 4.5))
    recorded, found = (generator(seed).normal(size=200).tolist() for seed in (3, 4))
    many = Verdict(expectation(recorded), tuple(range(200)), tuple(found))
    assert (few.record()["exact"], many.record()["exact"]) == (True, False)
    assert many.passed
    assert 0.0 < many.largest_loss < 0.5  # 2.3 deviations of a difference of such means, 0.1, and more


def test_a_loss_of_two_percent_is_tolerated():
    known = expectation([-99.0, -99.5, -100.0, -100.5, -101.0], iqm=-100.0)
    small, large = ((-101.1 - loss, -101.2 - loss, -101.3 - loss, -101.4 - loss) for loss in (0.0, 2.0))
    assert chance_of_ranking_lower(small, known.scores) <= LEVEL  # worse beyond chance, but by so little
    assert Verdict(known, (1, 2, 3, 4), small).passed
    assert not Verdict(known, (1, 2, 3, 4), large).passed
    assert not Verdict(known, (1, 2, 3, 4), (-98.0, -98.1, -98.2, -98.3)).better
    assert Verdict(known, (1, 2, 3, 4), (-96.0, -96.1, -96.2, -96.3)).better


def test_a_recorded_seed_that_diverged_is_the_worst():
    known = expectation([-150.0, None, None, -145.0, -149.0])
    assert Verdict(known, (1, 2, 3, 4), (-250.0, -252.0, -248.0, -258.0)).passed
    assert np.isfinite(Verdict(known, (1, 2, 3, 4), (-250.0, -252.0, -248.0, -258.0)).p)
