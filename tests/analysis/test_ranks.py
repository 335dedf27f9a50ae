"""The test of ranks: by hand, against scipy, over several tasks, and for many scores."""

from itertools import combinations
from math import inf

import pytest
from scipy.stats import mannwhitneyu

from rl_training.analysis.ranks import chance_of_ranking_apart, chance_of_ranking_lower, is_exact
from tests.helpers import generator


@pytest.mark.parametrize(
    ("found", "recorded", "choices", "of"),
    [
        ([1.0, 2.0], [3.0, 4.0, 5.0], 1, 10),  # below all: one of the ten pairs of ranks
        ([1.0, 3.0], [2.0, 4.0, 5.0], 2, 10),  # a sum of 4 or less: 1+2, 1+3
        ([4.0, 5.0], [1.0, 2.0, 3.0], 10, 10),
        ([1.0, 1.0], [1.0, 1.0], 6, 6),  # nothing but ties
        ([1.0, 2.0], [2.0, 3.0], 2, 6),  # ranks 1, 2.5, 2.5, 4: two sums are 3.5, the others 5 or more
        ([-inf, 5.0], [1.0, 2.0], 4, 6),  # one diverged, the other the best: sums 3, 4, 5, 5 of at most 5
        ([-inf, -inf, -inf, -inf], [1.0, 2.0, 3.0, 4.0, 5.0], 1, 126),
    ],
)
def test_the_chance_by_hand(found, recorded, choices, of):
    assert chance_of_ranking_lower(found, recorded) == pytest.approx(choices / of)


def test_the_chance_is_that_of_the_exact_test_of_mann_and_whitney():
    draw = generator(1)
    for new, old in ((5, 8), (4, 5), (12, 10), (3, 30)):
        found, recorded = draw.normal(size=new), draw.normal(size=old)
        assert is_exact([(new, old)])
        exact = [mannwhitneyu(found, recorded, alternative=side, method="exact").pvalue for side in ("less", "two-sided")]
        assert chance_of_ranking_lower(found, recorded) == pytest.approx(exact[0], rel=1e-9)
        assert chance_of_ranking_apart([(found, recorded)]) == pytest.approx(exact[1], rel=1e-9)


def test_over_tasks_by_hand():
    """Wins of 2 against 2 are 0, 1, 2, 2, 3, 4 in the six orders; those of 1 against 2 are 0, 1, 2 in three."""
    two, one = ([1.0, 2.0], [3.0, 4.0]), ([1.0], [2.0, 3.0])
    assert chance_of_ranking_apart([two, two]) == pytest.approx(2 / 36)
    assert chance_of_ranking_apart([two, one]) == pytest.approx(2 / 18)  # of quarters 0 and of halves 0
    # a share of 1/4 + 0 or less: (0, 0), (1, 0)
    assert chance_of_ranking_apart([([1.0, 3.0], [2.0, 4.0]), one]) == pytest.approx(2 * 2 / 18)
    # a share of 0 + 1/2 or less: (0, 0), (1, 0), (2, 0) twice, (0, 1)
    assert chance_of_ranking_apart([two, ([2.0], [1.0, 3.0])]) == pytest.approx(2 * 5 / 18)
    assert chance_of_ranking_apart([([1.0], [1.0]), two]) == pytest.approx(2 * 2 / 12)  # the tie has one outcome, twice


def test_over_tasks_of_unequal_size_every_choice_counts():
    draw = generator(3)
    tasks = [(draw.normal(size=3), draw.normal(size=2)), (draw.normal(size=2), draw.normal(size=3))]

    def share(scores, chosen):
        rest = [score for place, score in enumerate(scores) if place not in chosen]
        return sum(scores[place] > other for place in chosen for other in rest)  # six pairs on both tasks

    joined = [[*first, *second] for first, second in tasks]
    own = sum(share(scores, range(len(first))) for scores, (first, _) in zip(joined, tasks, strict=True))
    all_shares = [
        share(joined[0], one) + share(joined[1], other)
        for one in combinations(range(5), 3)
        for other in combinations(range(5), 2)
    ]
    sides = [sum(found <= own for found in all_shares), sum(found >= own for found in all_shares)]
    assert chance_of_ranking_apart(tasks) == pytest.approx(min(1.0, 2 * min(sides) / len(all_shares)))


def test_many_scores_are_judged_by_the_normal_distribution():
    draw = generator(4)
    assert is_exact([(50, 50)])
    assert not is_exact([(200, 200)])
    for new, old in ((200, 200), (60, 120)):
        found, recorded = (draw.integers(0, 40, size) for size in (new, old))  # with ties
        expected = mannwhitneyu(found, recorded, alternative="less", method="asymptotic").pvalue
        assert chance_of_ranking_lower(found, recorded) == pytest.approx(expected, rel=1e-9)
    assert chance_of_ranking_lower([1.0] * 200, [1.0] * 200) == 1.0


def test_both_ways_agree_where_one_takes_over():
    draw = generator(5)
    found, recorded = draw.normal(size=50) - 0.4, draw.normal(size=50)
    exact, normal = (mannwhitneyu(found, recorded, method=way).pvalue for way in ("exact", "asymptotic"))
    assert chance_of_ranking_apart([(found, recorded)]) == pytest.approx(exact, rel=1e-9)
    assert normal == pytest.approx(exact, rel=0.02)
