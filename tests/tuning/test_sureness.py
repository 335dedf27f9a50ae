"""What a study says of its best trial: against the config's own values, and by which seeds."""

from dataclasses import replace

import numpy as np
import pytest

from rl_training.analysis.aggregates import aggregate
from rl_training.output import prose
from rl_training.report.facts import NOTHING, number
from rl_training.tuning.folder import StudyFolder
from rl_training.tuning.page import section
from rl_training.tuning.scores import Result
from rl_training.tuning.showing import study_lines, summary, sureness
from rl_training.tuning.tuner import Confirmed
from tests.tuning.fake import run_study, task

GOOD, BAD = [-10.0, -11.0, -12.0, -13.0, -14.0], [-20.0, -21.0, -22.0, -23.0, -24.0]
LOST = [None, *GOOD[1:]]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("studies") / "study"
    run_study(path)
    return summary(StudyFolder(path), task())


def with_new_seeds(found, seeds):
    """The study after its trials have reached these scores with new seeds; None is a seed that diverged."""
    results = {trial: Result([aggregate(own, "iqm")], own, {}) for trial, own in seeds.items() if None not in own}
    for trial in seeds.keys() - results.keys():
        lost, own = seeds[trial].count(None), seeds[trial]
        results[trial] = Result(None, own, {}, why_failed=f"{lost} of {len(own)} seeds diverged")
    rows = [Confirmed(trial, results[trial]) for trial in seeds]
    return replace(found, confirmed=sorted(rows, key=lambda one: -(one.result.values or [float("-inf")])[0]))


def test_new_seeds_that_diverged_are_told(found):
    first, second = found.order[:2]
    assert 0 not in (first, second)
    lost = "1 of 5 seeds diverged"
    none_left = f"no confirmed trial has a score with new seeds (trial 0: {lost}; trial {first}: {lost})"
    for seeds, told in (
        ({first: GOOD, second: BAD, 0: LOST}, f"the config's own values (trial 0) failed with new seeds: {lost}"),
        (
            {first: LOST, 0: BAD},
            f"the config's own values are the best: no confirmed trial was better with new seeds (trial {first}: {lost})",
        ),
        (
            {first: BAD, 0: GOOD},
            "the config's own values are the best: no confirmed trial was better with new seeds",
        ),
        ({first: LOST, 0: LOST}, f"{none_left}, so trial {first} is the best only by the seeds it was chosen by"),
    ):
        judged = with_new_seeds(found, seeds)
        assert sureness(judged)[0] == told
        assert f"<p>{prose(told)}</p>" in section(judged)
    assert f"trial 0 with new seeds: failed: {lost} (- -11 -12 -13 -14)" in study_lines(judged, 3)
    assert f"{NOTHING} {' '.join(map(number, LOST[1:]))}: {lost}" in section(judged)
    assert sureness(judged)[1:] == []  # no figure with new seeds is there to be fair


def test_a_trial_0_that_still_trains_is_not_called_worse(found):
    rows = [replace(found.rows[0], status="running", values=None), *found.rows[1:]]
    going_on = replace(found, rows=rows, order=[trial for trial in found.order if trial])
    assert sureness(going_on)[0] == (
        "the config's own values (trial 0) have no score yet, so nothing says whether the best is better"
    )


@pytest.mark.parametrize("trials", [1, 3, 10])
def test_trials_that_are_all_alike_are_seldom_called_better(found, trials):
    """The best of several is chosen by the seeds that it is tested by: uncorrected, the shares are 0.05, 0.11 and 0.19."""
    random, numbers = np.random.default_rng(0), [0, *[trial for trial in found.order if trial][:trials]]
    drawn = [dict(zip(numbers, random.normal(size=(len(numbers), 5)).tolist(), strict=True)) for _ in range(600)]
    called = ["is with new seeds better" in sureness(with_new_seeds(found, seeds))[0] for seeds in drawn]
    assert 0.0 < np.mean(called) <= 0.05


def test_the_chance_counts_every_trial_that_was_confirmed(found):
    first, second, third = found.order[:3]
    alone, several = ({first: GOOD, 0: BAD}, {first: GOOD, second: BAD, third: LOST, 0: BAD})
    better = f"trial {first} is with new seeds better than the config's own values: -12 against -22"
    fair = "the figures with new seeds (5 each) are fair: nothing was chosen by them before; that of the best of "
    assert sureness(with_new_seeds(found, alone)) == [f"{better} (p = 0.004)", f"{fair}2 is a little optimistic"]
    corrected = f"{better} (p = 0.012, corrected for the choice among 3 trials)"
    assert sureness(with_new_seeds(found, several)) == [corrected, f"{fair}3 is a little optimistic"]
    close = {first: [*GOOD[:4], -22.5], second: BAD, third: BAD, 0: BAD}
    assert (
        "may be chance (p = 0.083 by the ranks of 5 seeds each, corrected for the choice among 3 trials)"
        in (sureness(with_new_seeds(found, close))[0])
    )


def test_a_leader_that_came_after_the_confirmation_is_told(found):
    first, second, third = found.order[:3]
    told = (
        f"trial {first} is ahead by the seeds that trials are chosen by, but was not trained with new seeds: the same command"
    )
    for seeds, count in (
        ({third: GOOD, 0: BAD}, 3),  # the best three hold both the leader and the one confirmed trial
        ({second: BAD, third: BAD, 0: GOOD}, 2),
        ({0: GOOD}, 1),
        ({second: LOST, 0: LOST}, 1),
    ):
        judged = with_new_seeds(found, seeds)
        assert sureness(judged)[1] == f"{told} with --confirm {count} compares it with the confirmed ones"
        assert told in section(judged)
    assert sureness(with_new_seeds(found, {0: GOOD}))[0] == (
        "the config's own values are the best: no other trial was confirmed"
    )
    assert told not in " ".join(sureness(with_new_seeds(found, {first: BAD, 0: GOOD})))


def test_the_advice_confirms_the_leader(tmp_path):
    path = tmp_path / "study"
    run_study(path, trials=2, confirm=1)
    run_study(path, trials=12)
    found = summary(StudyFolder(path), task())
    leader, before = found.order[0], found.best.number
    assert leader != before
    count = int(sureness(found)[1].split("--confirm ")[1].split()[0])
    run_study(path, trials=12, confirm=count)
    after = summary(StudyFolder(path), task())
    assert {leader, before} <= after.fresh.keys()
    assert not any("ahead by the seeds" in line for line in sureness(after))
