"""Opinions: intervals, verdicts, and what several say together, by hand."""

import math

import pytest

from rl_training.ope.opinions import Doubts, Opinion, joint, opinion, possible, precise


def test_an_interval_is_wider_where_few_networks_were_asked():
    many, few = opinion(10.0, 2.0, 0, 50.0, Doubts()), opinion(10.0, 2.0, 4, 50.0, Doubts())
    assert many.interval == pytest.approx((10.0 - 2.0 * 1.645, 10.0 + 2.0 * 1.645))
    assert few.interval == pytest.approx((10.0 - 2.0 * 2.353, 10.0 + 2.0 * 2.353))


def test_the_worst_reason_decides():
    doubts = Doubts().if_(True, "cannot tell", "a").if_(True, "doubt", "b").if_(False, "cannot tell", "c")
    assert (doubts.verdict, doubts.reasons) == ("cannot tell", ["a", "b"])
    assert Doubts().verdict == "trust"
    late = (
        Doubts().if_(True, "doubt", "a").if_(True, "doubt", "b").if_(True, "cannot tell", "c").if_(True, "cannot tell", "d")
    )
    assert late.reasons == ["c", "a", "b", "d"]  # what decided comes first


def test_what_is_not_finite_is_no_estimate():
    found = opinion(math.nan, 1.0, 4, 3.0, Doubts())
    assert (found.value, found.verdict, found.usable) == (None, "cannot tell", False)
    assert found.plain()["interval"] == [None, None]
    assert found.plain()["std"] is None


def test_opinions_that_agree_have_one_vote_each():
    """1 +- 1 and 2 +- 2: their mean, and sqrt((1 + 4) / 2): the same rows tell nothing twice."""
    given = {"fqe": opinion(1.0, 1.0, 0, 5.0, Doubts()), "model": opinion(2.0, 2.0, 0, 9.0, Doubts())}
    found = joint(given, 0, Doubts())
    assert found.value == pytest.approx(1.5)
    assert found.std == pytest.approx(2.5**0.5)
    assert (found.verdict, found.effective_episodes) == ("trust", 9.0)


def test_opinions_that_disagree_are_less_sure():
    """0 +- 1 and 10 +- 1: the variance between is 50."""
    given = {"fqe": opinion(0.0, 1.0, 0, 5.0, Doubts()), "model": opinion(10.0, 1.0, 0, 9.0, Doubts())}
    found = joint(given, 0, Doubts())
    assert (found.value, found.std) == (pytest.approx(5.0), pytest.approx(50.0**0.5))
    assert found.verdict == "doubt"
    assert "disagree: 0 and 10" in found.reasons[0]


def test_an_opinion_that_cannot_tell_does_not_count():
    lost = opinion(99.0, 0.1, 0, 1.0, Doubts().if_(True, "cannot tell", "lost"))
    found = joint({"fqe": lost, "model": opinion(1.0, 1.0, 0, 2.0, Doubts())}, 0, Doubts())
    assert (found.value, found.verdict) == (1.0, "doubt")
    assert found.reasons == ("its value is that of model alone", "fqe: lost")
    none = joint({"fqe": lost}, 0, Doubts())
    assert (none.value, none.verdict) == (99.0, "cannot tell")  # shown, but not to be believed


def test_a_doubt_of_a_part_is_a_doubt_of_the_whole():
    part = Opinion(1.0, 1.0, (0.0, 2.0), 3.0, "doubt", ("it leaves the data",))
    found = joint({"fqe": part, "model": opinion(1.0, 1.0, 0, 2.0, Doubts())}, 0, Doubts())
    assert found.verdict == "doubt"
    assert found.reasons == ("fqe: it leaves the data",)


def test_nothing_said_is_nothing_known():
    assert joint({"fqe": opinion(math.nan, 1.0, 0, 0.0, Doubts())}, 0, Doubts()).value is None


@pytest.mark.parametrize(("std", "verdict"), [(1.0, "trust"), (3.0, "doubt"), (11.0, "cannot tell")])
def test_a_value_must_be_known_better_than_logged_episodes_differ(std, verdict):
    found = precise(opinion(5.0, std, 0, 9.0, Doubts()), spread=10.0)
    assert found.verdict == verdict
    assert bool(found.reasons) == (verdict != "trust")
    part = precise(opinion(5.0, std, 0, 9.0, Doubts().if_(True, "doubt", "a part")), spread=10.0)
    assert (part.reasons[0] == "a part") == (verdict != "cannot tell")  # alone it would not have decided
    worst = precise(opinion(5.0, std, 0, 9.0, Doubts().if_(True, "cannot tell", "lost")), spread=10.0)
    assert worst.verdict == "cannot tell"


def test_a_deviation_is_called_one_beside_an_interval_that_is_wider():
    """4 networks: 2.353 times 3 to either side, so `+-3` beside that would be another kind of number."""
    found = precise(opinion(5.0, 3.0, 4, 9.0, Doubts()), spread=10.0)
    assert found.interval == pytest.approx((5.0 - 2.353 * 3.0, 5.0 + 2.353 * 3.0))
    assert found.reasons == ("its value has a standard deviation of 3, and what logged episodes earned one of 10",)


def test_an_interval_ends_where_the_rewards_end():
    found = possible(opinion(-1.0, 2.0, 0, 9.0, Doubts()), -100.0, 0.0)
    assert found.interval == (pytest.approx(-1.0 - 2.0 * 1.645), 0.0)
    assert found.verdict == "trust"
    lost = possible(opinion(3.0, 2.0, 0, 9.0, Doubts()), -100.0, 0.0)
    assert lost.verdict == "cannot tell"
    assert "the rewards allow -100 to 0" in lost.reasons[0]


def test_a_reason_that_all_share_is_said_once():
    shared = {name: opinion(1.0, 1.0, 0, 5.0, Doubts().if_(True, "doubt", "far away")) for name in ("fqe", "model")}
    found = joint(shared, 0, Doubts().if_(True, "doubt", "far away"))
    assert (found.verdict, found.reasons) == ("doubt", ("far away",))
