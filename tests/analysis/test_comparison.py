"""From scores to a verdict: what is concluded, what is not, and how tasks are put on one scale."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import rl_training
from rl_training.analysis.bootstrap import Interval, difference_interval, improvement_interval, interval
from rl_training.analysis.comparison import compare
from rl_training.analysis.planning import can_be_shown, least_seeds, seeds_to_rank, seeds_to_show
from rl_training.analysis.verdict import bounds, digits, shown, verdict
from rl_training.errors import ConfigError
from tests.analysis.known_scores import BAD, FIRST, GOOD, SECOND
from tests.helpers import environment
from tests.test_docs import code_block


def test_a_clear_difference():
    found = rl_training.compare({"iql": GOOD, "bc": BAD})
    (pair,) = found.pairs
    assert (pair.first, pair.second, pair.verdict, pair.seeds_needed) == ("iql", "bc", "better", None)
    assert pair.difference == difference_interval(GOOD, BAD)
    assert pair.improvement == improvement_interval(GOOD, BAD)
    assert found.overall["iql"].iqm == found.cells["iql"]["scores"].iqm == interval(GOOD)
    assert (found.overall["iql"].mean, found.overall["iql"].median) == (pytest.approx(61.15), 61.25)
    assert str(found) == (
        f"iql is better than bc: probability of improvement {shown(pair.improvement, 2)}, "
        f"difference of IQM {shown(pair.difference)} for iql less bc; with 10 seeds each."
    )
    assert shown(pair.difference).startswith("20.0 [")
    assert compare({"bc": BAD, "iql": GOOD}).pairs[0].verdict == "worse"


def test_lower_is_better_turns_the_verdict_and_keeps_the_numbers():
    found = compare({"iql": GOOD, "bc": BAD}, lower_is_better=True)
    assert found.pairs[0].verdict == "worse"
    assert found.pairs[0].difference.estimate == pytest.approx(20.0)
    assert found.pairs[0].improvement.estimate == 0.0
    assert found.profiles["bc"][-1] == 1.0  # all runs are below the highest score of all
    assert found.profiles["iql"][0] == 0.0
    plain = compare({"iql": GOOD, "bc": BAD})
    assert (plain.thresholds[0], plain.thresholds[-1]) == (38.0, 64.0)
    assert (plain.profiles["iql"][0], plain.profiles["bc"][0], plain.profiles["iql"][-1]) == (1.0, 0.9, 0.0)


def test_the_example_of_the_guide(capsys):
    exec(code_block("guide.md", "rl_training.compare("), {})  # noqa: S102 - the documentation is our own
    assert capsys.readouterr().out == code_block("guide.md", "iql is better than td3_bc", "text")


def test_no_difference():
    found = compare({"a": GOOD, "b": [value + 0.5 for value in GOOD]})
    (pair,) = found.pairs
    assert pair.verdict == "unclear"
    assert 10 < pair.seeds_needed < 1000
    assert found.conclusion.startswith("Nothing can be concluded about a and b: the interval of the difference [")
    assert f"about {pair.seeds_needed} seeds each would show it in four of five experiments." in found.conclusion
    tiny = compare({"a": GOOD, "b": [value + 1e-3 for value in GOOD]})
    assert tiny.conclusion.endswith("A difference as small as this one would need more than 1,000 seeds each to be seen.")
    same = compare({"a": GOOD, "b": GOOD})
    assert same.pairs[0].seeds_needed is None


def test_the_advised_number_of_seeds_shows_the_difference_in_four_of_five_experiments():
    regular = stats.norm.ppf((np.arange(16) + 0.5) / 16)
    needed = compare({"a": regular + 0.6, "b": regular}).pairs[0].seeds_needed
    draw, shown_in = np.random.default_rng(0), 0
    for _ in range(300):
        runs = {"a": draw.normal(0.6, 1.0, needed), "b": draw.normal(0.0, 1.0, needed)}
        shown_in += compare(runs, resamples=500).pairs[0].verdict == "better"
    assert shown_in / 300 == pytest.approx(0.8, abs=0.08)


def test_too_few_seeds_are_said_out_loud():
    few = compare({"a": [100.0, 101.0, 102.0], "b": [1.0, 2.0, 3.0]})
    assert few.conclusion.startswith(
        "Nothing can be concluded about a and b: the IQM differs, but the interval of the probability of improvement "
        "[0.50, 1.00] contains 0.5 ("
    )
    found = compare({"a": [100.0, 101.0, 102.0, 103.0], "b": [1.0, 2.0, 3.0, 4.0]})
    assert found.pairs[0].verdict == "better"
    assert found.conclusion.endswith("Fewer than 5 seeds are too few to rely on: train 5 or more, better 10.")
    assert "too few" in compare({"a": [1.0, 2.0], "b": [1.5, 2.0]}).conclusion
    assert "too few" not in compare({"a": GOOD, "b": BAD}).conclusion


def test_a_single_seed_has_no_interval_and_no_verdict():
    found = compare({"a": [5.0], "b": GOOD})
    assert not found.overall["a"].iqm.known
    assert found.pairs[0].verdict == "unclear"
    assert found.conclusion.startswith(
        "Nothing can be concluded about a and b with 1 seed of a and 10 seeds of b: a single run says nothing about the "
        "spread over seeds, so there is no interval."
    )
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["overall"]["a"]["iqm"] == {"estimate": 5.0, "low": None, "high": None}
    assert plain["pairs"][0]["difference"]["low"] is None


def test_several_groups_are_compared_with_the_first_and_intervals_are_corrected():
    groups = {"a": GOOD, "b": BAD, "c": [value + 0.5 for value in GOOD]}
    found = compare(groups)
    assert [(pair.first, pair.second) for pair in found.pairs] == [("a", "b"), ("a", "c")]
    assert found.pair_confidence == pytest.approx(0.975)
    assert found.pairs[0].improvement == improvement_interval(GOOD, BAD, confidence=0.975)
    assert found.conclusion.endswith("(Bonferroni: 2 comparisons), so that the verdicts hold together at 95%.")
    every = compare(groups, against="all")
    assert [(pair.first, pair.second) for pair in every.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    chosen = compare(groups, against="b")
    assert [(pair.first, pair.second, pair.verdict) for pair in chosen.pairs] == [("a", "b", "better"), ("c", "b", "better")]
    with pytest.raises(ConfigError, match="--against d: is no group. There are a, b, c, and `all`"):
        compare(groups, against="d")


def test_tasks_of_given_scores_are_taken_as_they_are():
    tasks = ("x", "y", "z")
    found = compare({"a": dict(zip(tasks, FIRST, strict=True)), "b": dict(zip(tasks, SECOND, strict=True))})
    assert (found.metric, found.by, found.normalization, found.warnings) == (None, None, None, [])
    assert found.overall["a"].iqm == interval(FIRST)
    assert (found.overall["a"].runs, found.overall["b"].runs) == (7, 5)
    assert [pair.improvement for pairs in found.pairs_by_task.values() for pair in pairs] == [
        improvement_interval(first, second, confidence=1 - 0.05 / 3) for first, second in zip(FIRST, SECOND, strict=True)
    ]
    assert found.conclusion.endswith(
        "By task: unclear on x, y, z. By task, intervals are widened (Bonferroni: 3 comparisons), so that those verdicts "
        "hold together at 95%; the overall one is a single comparison."
    )
    assert found.pairs[0].improvement == improvement_interval(FIRST, SECOND)  # not widened
    mixed = compare({"a": {"x": GOOD, "y": BAD, "z": GOOD}, "b": {"x": BAD, "y": GOOD, "z": GOOD}})
    assert mixed.pairs[0].verdict == "unclear"
    assert "By task: better on x; worse on y; unclear on z." in mixed.conclusion
    several = compare({name: {"x": scores, "y": scores} for name, scores in {"a": GOOD, "b": BAD, "c": BAD}.items()})
    assert several.conclusion.endswith(
        "Intervals are widened (Bonferroni: 2 comparisons overall, 4 by task), so that the verdicts hold together at 95% "
        "within each of the two, not across both."
    )
    single = compare({"a": {"x": [1.0], "y": GOOD}, "b": {"x": [2.0], "y": BAD}})
    assert "widened" not in single.conclusion  # no interval is named


def test_tasks_of_different_scale_are_warned_of_and_can_be_normalised():
    groups = {"a": {"small": [1.0, 1.2, 1.1], "large": [500.0, 700.0, 600.0]}}
    groups["b"] = {"small": [0.0, 0.2, 0.1], "large": [400.0, 300.0, 500.0]}
    assert "large and small differ in scale" in compare(groups).warnings[0]
    found = compare(groups, normalize="min-max")
    assert found.normalization == "min-max"
    assert found.overall["a"].mean == pytest.approx((1.1 / 1.2 + 0.75) / 2)
    assert found.cells["a"]["large"].mean == 600.0  # single tasks keep their unit
    assert found.pairs[0].difference is None  # it would mean nothing outside of this comparison
    assert "relative to the lowest and the highest score" in found.warnings[0]
    with pytest.raises(ConfigError, match="--normalize reference: needs reference returns, and there are none for small"):
        compare(groups, normalize="reference")
    with pytest.raises(ConfigError, match="--normalize 'rank': must be one of auto, reference, min-max, none"):
        compare(groups, normalize="rank")


def test_the_scale_of_a_single_task_decides_nothing():
    groups = {"a": [9.0, 1.0, 8.0, 7.0], "b": [0.0, 2.0, 0.0, 0.0]}
    plain, scaled = (compare(groups, normalize=normalize).pairs[0] for normalize in ("none", "min-max"))
    assert scaled.difference == pytest.approx([value / 9.0 for value in plain.difference])
    assert (scaled.verdict, scaled.improvement) == (plain.verdict, plain.improvement)


def test_reference_returns():
    groups = {name: {"hopper-medium-v2": [-20.272305, 3234.3], "Walker2d-v5": [1.629008] * 2} for name in "ab"}
    found = compare(groups, normalize="reference")
    assert found.overall["a"].mean == pytest.approx(25.0)
    assert found.optimality_gap == {"a": pytest.approx(75.0), "b": pytest.approx(75.0)}


def test_only_common_tasks_are_compared():
    found = compare({"a": {"x": GOOD, "y": GOOD}, "b": {"x": BAD}})
    assert found.tasks == ["x"]
    assert found.warnings == ["y: only some groups have it, so it is left out (here of a)"]
    with pytest.raises(ConfigError, match=r"no task in common \(a: x; b: y\)"):
        compare({"a": {"x": GOOD}, "b": {"y": BAD}})


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({}, "only one group (none)"),
        ({"a": GOOD}, "only one group (a)"),
        ({"a": GOOD, "b": []}, "b, scores: every task needs at least one score"),
        ({"a": GOOD, "b": {}}, "b has no task"),
        ({"a": GOOD, "b": [1.0, float("nan")]}, "b, scores: scores must be finite"),
        ({"a": GOOD, "b": [[1.0], [2.0]]}, "b, scores: must be a list of numbers"),
        ({"a": GOOD, "b": {"scores": ["high"]}}, "b, scores: scores must be numbers"),
        ({"a": GOOD, "b": 3.0}, "b, scores: scores must be numbers"),
        ([GOOD, BAD], "groups must be a mapping from names to scores or runs, or a list of paths"),
        (None, "groups must be a mapping"),
    ],
)
def test_wrong_groups(groups, words):
    with pytest.raises(ConfigError) as error:
        compare(groups)
    assert words in str(error.value)


def test_options_of_runs_do_not_fit_given_scores():
    for options in ({"metric": "train/loss"}, {"by": "best"}):
        with pytest.raises(ConfigError, match="these are scores already"):
            compare({"a": GOOD, "b": BAD}, **options)
    with pytest.raises(ConfigError, match="--by 'worst': must be `last` or `best`"):
        compare({"a": GOOD, "b": BAD}, by="worst")


def test_files_of_scores(tmp_path):
    values = {"a": {"x": GOOD, "y": GOOD}, "b": {"x": BAD, "y": BAD}}
    (tmp_path / "s.json").write_text(json.dumps(values))
    rows = [f"{name},{task},{score}" for name, tasks in values.items() for task, scores in tasks.items() for score in scores]
    (tmp_path / "s.csv").write_text("\n".join(["Algo,env,score", *rows]))
    expected = compare(values).as_dict()
    assert compare([tmp_path / "s.json"]).as_dict() == expected
    assert compare(tmp_path / "s.csv").as_dict() == expected
    (tmp_path / "short.csv").write_text("group,seed,score\na,0,1.5\na,1,2.5\nb,0,3\nb,1,4\n")
    assert compare([str(tmp_path / "short.csv")]).overall["a"].mean == 2.0
    (tmp_path / "more.json").write_text(json.dumps({"c": {"x": BAD}}))
    assert list(compare([tmp_path / "s.json", tmp_path / "more.json"]).overall) == ["a", "b", "c"]


def test_the_confidence_of_intervals_by_task_is_told():
    found = compare({name: {"x": GOOD, "y": BAD} for name in "abc"}, against="all").as_dict()
    assert (found["pair_confidence"], found["pair_confidence_by_task"]) == (1 - 0.05 / 3, 1 - 0.05 / 6)


def test_huge_scores():
    found = compare({"a": [1e20 * value for value in GOOD], "b": [1e20 * value for value in BAD]})
    assert re.search(r"difference of IQM \d\.\d{3}e\+21 \[\d\.\d{3}e\+\d\d, ", found.conclusion)
    largest = compare({"a": [1e67 * value for value in GOOD], "b": [1e67 * value for value in BAD]})
    assert largest.pairs[0].difference.known
    with pytest.raises(ConfigError, match=r"b, scores: scores must not exceed 1e\+70"):
        compare({"a": GOOD, "b": [1e200, 2e200]})


@pytest.mark.parametrize(
    ("difference", "improvement", "expected"),
    [
        ((5, 1, 9), (0.9, 0.7, 1.0), "better"),
        ((-5, -9, -1), (0.1, 0.0, 0.3), "worse"),
        ((5, -1, 9), (0.9, 0.7, 1.0), "unclear"),
        ((5, 1, 9), (0.6, 0.4, 0.8), "unclear"),
        ((5, 1, 9), (0.3, 0.2, 0.4), "unclear"),  # they contradict each other
        (None, (0.9, 0.7, 1.0), "better"),
        (None, (0.6, 0.4, 0.8), "unclear"),
    ],
)
def test_a_verdict_needs_every_interval(difference, improvement, expected):
    assert verdict(difference and Interval(*difference), Interval(*improvement)) == expected


def test_numbers_have_as_many_digits_as_their_interval_justifies():
    assert shown(Interval(1234.567, 1200.1, 1260.9)) == "1,235 [1,200, 1,261]"
    assert shown(Interval(0.12345, 0.1, 0.15)) == "0.123 [0.100, 0.150]"
    assert bounds(Interval(3.0, float("nan"), float("nan"))) == ""
    assert shown(Interval(30.0, float("nan"), float("nan"))) == "30"
    assert digits(Interval(0.0, 0.0, 0.0)) == 1
    assert shown(Interval(0.0, 0.0, 0.0)) == "0.0 [0.0, 0.0]"
    assert shown(Interval(-0.01, -3.0, 2.0)) == "0.0 [-3.0, 2.0]"


def test_tiny_numbers_are_powers_of_ten():
    assert shown(Interval(-4e-8, -5.6e-8, -2.4e-8)) == "-4.0e-08 [-5.6e-08, -2.4e-08]"
    assert shown(Interval(0.0, -1.23e-30, 2.5e-29)) == "0 [-1e-30, 2.5e-29]"
    assert shown(Interval(1.0, 1.0 - 2e-8, 1.0 + 2e-8)) == "1.000000000 [0.999999980, 1.000000020]"
    found = compare({"a": [1e-8, 2e-8, 3e-8, 4e-8], "b": [5e-8, 6e-8, 7e-8, 8e-8]})
    assert "difference of IQM -4.0e-08 [-" in found.conclusion


def test_an_interval_is_shown_without_what_it_does_not_contain():
    assert shown(Interval(0.0, 0.0, 0.4968), 2, null=0.5) == "0.000 [0.000, 0.497]"
    assert shown(Interval(0.0, 0.0, 0.4968), 2) == "0.00 [0.00, 0.50]"
    assert shown(Interval(0.0, 0.0, 0.5), 2, null=0.5) == "0.00 [0.00, 0.50]"
    assert shown(Interval(12.0, 0.04, 25.0), null=0.0) == "12.00 [0.04, 25.00]"


def test_a_comparison_needs_no_torch():
    code = "import sys, rl_training as r; r.compare({'a': [1, 2], 'b': [3, 4]}); print({'torch', 'scipy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_bounds_show_on_which_side_of_a_value_they_are():
    """An interval that contains 0 by little is not printed as one that begins there."""
    assert bounds(Interval(1.0, -0.02, 2.3), null=0.0) == "[-0.02, 2.30]"
    assert bounds(Interval(1.0, 0.0, 2.3), null=0.0) == "[0.0, 2.3]"
    assert shown(Interval(0.9, 0.499, 1.0), 2, null=0.5) == "0.900 [0.499, 1.000]"


def test_another_confidence_is_told_with_the_verdict():
    assert "a is better than b at a confidence of 50%: " in compare({"a": GOOD, "b": BAD}, confidence=0.5).conclusion
    assert "confidence of" not in compare({"a": GOOD, "b": BAD}).conclusion


def test_seeds_that_ranks_need():
    """Noether's example: (1.960 + 0.842)^2 / (6 * 0.2^2) = 32.7 runs show 0.7; with the variance of 0.7 itself it is less."""
    assert seeds_to_rank(0.7, 0.95, tasks=1) == seeds_to_rank(0.3, 0.95, tasks=1) == 32
    assert seeds_to_rank(0.7, 0.95, tasks=3) == 11
    assert seeds_to_rank(0.5 + 1e-9, 0.95, tasks=1) == 1001  # more than are told


@pytest.mark.parametrize(
    ("first", "second"),
    [([0.0, 5.0, 20.0], [4.0, 5.0, 6.0]), ([0.0, 1.0, 2.0, 2.5, 100.0, 120.0, 3.0], [4.0, 5.0, 6.0, 7.0, 8.0, 4.5, 5.0])],
    ids=["even ranks", "ranks that contradict"],
)
@pytest.mark.parametrize("lower_is_better", [False, True])
def test_no_number_of_seeds_is_advised_where_ranks_do_not_agree_with_the_difference(first, second, lower_is_better):
    found = compare({"a": first, "b": second}, lower_is_better=lower_is_better)
    assert found.pairs[0].difference.estimate > 0.0
    assert found.pairs[0].seeds_needed is None
    assert "seeds each would show it" not in found.conclusion


def test_too_few_seeds_for_so_many_comparisons_are_told():
    """Five seeds of four groups cannot show one of six differences, however large; six can, and are advised."""
    far = {name: [1000.0 * place + seed for seed in range(5)] for place, name in enumerate("abcd")}
    found = compare(far, against="all")
    assert {(pair.verdict, pair.least_seeds) for pair in found.pairs} == {("unclear", 6)}
    assert found.pairs[0].seeds_needed == 6
    assert "contains 0.5 (" in found.conclusion
    assert "about 6 seeds each would show it" in found.conclusion
    assert "No difference can be shown with so few seeds, however large: that takes 6 each." in found.conclusion
    six = {name: [*scores, scores[0] + 5.0] for name, scores in far.items()}
    assert {(pair.verdict, pair.least_seeds) for pair in compare(six, against="all").pairs} == {("worse", None)}
    tasks = {name: {"x": scores, "y": scores} for name, scores in far.items()}
    by_task = compare(tasks, against="all")
    assert {pair.verdict for pair in by_task.pairs} == {"worse"}
    assert "No difference can be shown by task with so few seeds, however large: that takes 6 each." in by_task.conclusion
    assert least_seeds(1, 0.95) == 4
    assert can_be_shown([np.zeros(3)], [np.zeros(30)], 0.95)


def test_the_number_of_seeds_is_the_smallest_that_suffices():
    for difference in (0.15, 0.2, 0.3, 1.0):
        reached = [
            n
            for n in range(5, 1001)
            if n * difference**2 >= 2.0 * (stats.t.ppf(0.975, 2.0 * (n - 1)) + stats.norm.ppf(0.8)) ** 2
        ]
        assert seeds_to_show(difference, 2.0, 0.95, freedom=2.0, runs=3) == reached[0]
        assert seeds_to_show(difference, 2.0, 0.95, freedom=2.0, runs=3, most=reached[0]) == reached[0]
        assert seeds_to_show(difference, 2.0, 0.95, freedom=2.0, runs=3, most=reached[0] - 1) >= reached[0]


def test_more_seeds_are_needed_where_one_group_alone_spreads():
    alike = seeds_to_show(1.0, 1.0, 0.95, freedom=2.0, runs=4)
    assert seeds_to_show(1.0, 1.0, 0.95, freedom=1.0, runs=4) > alike
    assert alike == 9  # Student's quantile with 16 degrees is 2.120: (2.120 + 0.842)^2 = 8.77; with 14 it is 8.92, above 8


def test_one_failed_run_of_ten_needs_no_thousand_seeds():
    """In 120 simulated experiments with 40 seeds each, drawn from these, the verdict came in 89."""
    failed = [1000.0, 1050.0, 1100.0, 1075.0, 1025.0, 980.0, 1010.0, 1040.0, 1060.0, -20000.0]
    found = compare({"a": failed, "b": [900.0, 950.0, 920.0, 880.0, 910.0, 930.0, 940.0, 905.0, 915.0, 925.0]})
    assert found.pairs[0].verdict == "unclear"
    assert 25 <= found.pairs[0].seeds_needed <= 60


def test_the_advice_of_groups_that_are_far_apart_is_what_their_own_test_needs():
    """Three against three all on one side are too few, four against four enough: that is what is advised."""
    (pair,) = compare({"a": [100, 101, 102], "b": [0, 1, 2]}).pairs
    assert (pair.verdict, pair.least_seeds, pair.seeds_needed) == ("unclear", 4, 4)
    assert compare({"a": [100, 101, 102, 103], "b": [0, 1, 2, 3]}).pairs[0].verdict == "better"


@pytest.mark.parametrize("improvement", [0.8, 0.9, 0.95])
def test_the_seeds_that_ranks_need_show_it_in_four_of_five_experiments(improvement):
    draw, shift = np.random.default_rng(0), stats.norm.ppf(improvement) * 2**0.5
    runs = max(seeds_to_rank(improvement, 0.95, tasks=1), least_seeds(1, 0.95))
    shown_in = sum(
        improvement_interval(draw.normal(shift, 1, runs), draw.normal(0, 1, runs)).excludes(0.5) for _ in range(400)
    )
    assert shown_in / 400 == pytest.approx(0.8, abs=0.06)


def test_what_needs_more_seeds_is_named_where_other_tasks_have_enough():
    """Five seeds on x show a difference there, so it is not said that none can be shown."""
    found = compare({"a": {"x": GOOD[:5], "y": GOOD[:4]}, "b": {"x": BAD[:5], "y": BAD[:4]}})
    assert "By task: better on x; unclear on y." in found.conclusion
    assert "No difference can be shown on y with so few seeds, however large: that takes 5 each." in found.conclusion
    several = compare({"a": GOOD[:3], "b": BAD[:4], "c": BAD}, confidence=0.9)
    assert "No difference can be shown between a and b with so few seeds" in several.conclusion
