"""Groups of members, and the bands of their curves."""

import warnings

import numpy as np
import pytest

from rl_training.analysis.logged_run import RETURN, Curve, LoggedRun
from rl_training.report.bands import band, distinct_names, groups_of, summarize
from rl_training.report.facts import best_groups
from tests.report.run_files import population, rows_of, write_run

NAN = np.nan


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([3.0], (3.0, 3.0, 3.0)),
        ([1.0, 2.0, 6.0], (3.0, 1.0, 6.0)),  # few: mean, lowest, highest
        ([1.0, NAN, 5.0], (3.0, 1.0, 5.0)),
        ([8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], (4.5, 2.75, 6.25)),  # many: mean of 3, 4, 5, 6, and the quartiles
        ([0.0, 1.0, 2.0, 3.0, 1000.0], (2.0, 1.0, 3.0)),  # one of each end is left out
    ],
)
def test_the_middle_of_some_members_and_their_band(values, wanted):
    assert summarize(np.array(values)) == pytest.approx(wanted)


def test_infinite_values_are_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert summarize(np.array([1.0, np.inf, np.inf]))[0] == np.inf


def test_no_value_has_no_middle():
    assert all(np.isnan(summarize(np.array([NAN, NAN]))))


def test_a_band_has_the_positions_at_which_a_chosen_member_has_a_value():
    curve = Curve(np.array([10, 20, 30]), np.array([[1.0, 9.0, 3.0], [2.0, 9.0, NAN], [NAN, 9.0, NAN]]))
    found = band(curve, [0, 2])
    assert found.positions.tolist() == [10, 20]
    assert found.middle.tolist() == [2.0, 2.0]
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 2.0], [3.0, 2.0])


def test_thinning_keeps_both_ends_and_widens_the_band_to_what_is_left_out():
    values = np.array([0.0, 7.0, 1.0, -5.0, 2.0])[:, None]
    thin = band(Curve(np.arange(5) * 10, values), [0]).thinned(3)
    assert thin.positions.tolist() == [0, 20, 40]
    assert thin.middle.tolist() == [0.0, 1.0, 2.0]
    assert (thin.low.tolist(), thin.high.tolist()) == ([0.0, -5.0, 2.0], [7.0, 1.0, 2.0])


def test_a_sweep_has_a_group_for_each_combination(tmp_path):
    rows = []
    for member, (beta, seed) in enumerate([(1.0, 4), (1.0, 5), (3.0, 4), (3.0, 5)]):
        rows.append({"step": 10, "member": member, "seed": seed, "knob/beta": beta, RETURN: float(member)})
    run = LoggedRun.load(write_run(tmp_path / "run", rows, sweep={"beta": [1.0, 3.0]}))
    groups = groups_of([run])
    assert [(group.label, group.members) for group in groups] == [("beta=1", (0, 1)), ("beta=3", (2, 3))]
    assert [group.label for group in best_groups(groups, 1)] == ["beta=3"]


def test_runs_of_one_name_are_told_apart_by_their_path(tmp_path):
    runs = [LoggedRun.load(population(tmp_path / folder / "run", 1, 1)) for folder in ("a", "b")]
    other = LoggedRun.load(population(tmp_path / "c" / "other", 1, 1))
    assert distinct_names([*runs, other]) == ["a/run", "b/run", "other"]


def test_what_line_and_band_are_is_said(tmp_path):
    texts = [band(LoggedRun.load(population(tmp_path / str(n), n, 1)).curve(), range(n)).text for n in (1, 3, 5)]
    assert texts == [
        "one member",
        "mean of 3 members, band from the lowest to the highest",
        "interquartile mean of 5 members, band over the middle half",
    ]


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((3, 1), "interquartile mean of 3 to 1 of 5 members, band over the middle half"),
        ((2, 2), "interquartile mean of 2 of 5 members, band over the middle half"),
        ((1, 1), "one of 5 members"),
        ((5, 4), "interquartile mean of 5 to 4 of 5 members, band over the middle half"),
    ],
)
def test_a_band_says_of_how_many_members_it_is_where_some_ended(counts, text):
    values = np.array([[1.0] * count + [np.nan] * (5 - count) for count in counts])
    assert band(Curve(np.array([10, 20]), values), range(5)).text == text


def test_a_curve_that_loses_a_member_stays_what_it_is_and_knows_where():
    values = np.array([[0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0, NAN], [0.0, 1.0, 2.0, 3.0, NAN]])
    found = band(Curve(np.array([10, 20, 30]), values), range(5))
    assert (found.low[1], found.high[1]) == (0.75, 2.25), "the middle half of four, not the lowest and the highest"
    assert found.middle[1] == 1.5
    assert found.counts.tolist() == [5, 4, 4]
    assert found.ends == (10,)
    assert found.thinned(2).ends == (10,)


def test_members_that_end_together_are_marked_where_others_go_on():
    values = np.array([[0.0, 1.0], [NAN, 1.0]])
    curve = Curve(np.array([10, 20]), values)
    assert band(curve, [0]).ends == (10,)
    assert band(curve, [1]).ends == ()


def test_members_that_wrote_nothing_of_a_metric_have_no_line(tmp_path):
    run = LoggedRun.load(write_run(tmp_path / "run", rows_of(RETURN, [[1.0, 2.0], [3.0, None]])))
    assert band(run.curve(), [1]).positions.tolist() == [10]
