"""Whether the scores of new seeds are worse than recorded ones: a test of ranks, and what may be said of it."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb, inf, isfinite
from typing import Any

from rl_training.analysis.aggregates import aggregate
from rl_training.analysis.ranks import chance_of_ranking_lower, is_exact
from rl_training.config.expectation import Expectation
from rl_training.output import return_text

LEVEL = 0.01  # a faithful replication fails this often, at most
TOLERANCE = 0.02  # of the recorded mean: a loss that matters to nobody, whatever a test may say of it
DEFAULT_SEEDS = 5


def largest_loss(found: Sequence[float], recorded: Sequence[float], level: float = LEVEL) -> float:
    """Return how much worse than `recorded` the source of `found` may be, at most, with a confidence of 1 - `level`.

    The bound inverts the test: if the loss were larger, `found` would rank too high by that test. It is inf if no loss can be
    excluded, and negative where `found` is better.
    """
    steps = sorted({old - new for old in recorded for new in found if isfinite(new) and isfinite(old)})
    # one loss beyond each step: ranks change at the steps alone
    beyond = [(loss + after) / 2 for loss, after in pairwise(steps)] + [loss + 1.0 for loss in steps[-1:]]

    def excluded(loss: float) -> bool:
        return chance_of_ranking_lower([-(score + loss) for score in found], [-score for score in recorded]) <= level

    return [*steps, inf][bisect_left(beyond, True, key=excluded)]


def fewest_seeds(recorded: int, level: float = LEVEL) -> int:
    """Return with how many new seeds the test can fail at all: if they all rank below every recorded one."""
    return next(count for count in range(1, 10**4) if level * comb(recorded + count, count) >= 1.0)


def new_seeds(recorded: Sequence[int]) -> list[int]:
    """Return the seeds to replicate with: those after the recorded ones, since the same ones would only repeat."""
    first = max(recorded) + 1
    return list(range(first, first + max(DEFAULT_SEEDS, fewest_seeds(len(recorded)))))


def known_scores(expectation: Expectation) -> list[float]:
    """Return the recorded scores, -inf for a seed that diverged."""
    return [-inf if score is None else score for score in expectation.scores]


@dataclass(frozen=True)
class Verdict:
    """What new seeds of a config say about what was recorded of it."""

    expectation: Expectation
    seeds: tuple[int, ...]
    scores: tuple[float, ...]  # of the new seeds; -inf for one that diverged

    @property
    def iqm(self) -> float | None:
        """Interquartile mean of the new seeds; None if one diverged."""
        return aggregate(self.scores) if all(isfinite(score) for score in self.scores) else None

    @property
    def tolerated(self) -> float:
        """The loss that is not held against the new seeds."""
        return TOLERANCE * abs(self.expectation.iqm or 0.0)

    @property
    def p(self) -> float:
        """The chance that new seeds rank this low if their loss is at most the tolerated one."""
        return chance_of_ranking_lower([score + self.tolerated for score in self.scores], known_scores(self.expectation))

    @property
    def exact(self) -> bool:
        """Whether the test counts all choices; the normal distribution stands in for them where there are many scores."""
        return is_exact([(len(self.scores), len(self.expectation.scores))])

    @property
    def passed(self) -> bool:
        """Whether the new seeds are not worse than the recorded ones by more than is tolerated, beyond chance."""
        return self.p > LEVEL

    @property
    def better(self) -> bool:
        """Whether the new seeds are better than the recorded ones by more than that, beyond chance."""
        recorded = [-score for score in known_scores(self.expectation)]
        return chance_of_ranking_lower([self.tolerated - score for score in self.scores], recorded) <= LEVEL

    @property
    def largest_loss(self) -> float:
        """How much worse the new seeds may be, at most, with the confidence of the test."""
        return largest_loss(self.scores, known_scores(self.expectation))

    @property
    def behind(self) -> float:
        """By how much the interquartile mean of the new seeds is below the recorded one; 0 where either is not known."""
        return 0.0 if self.iqm is None or self.expectation.iqm is None else max(0.0, self.expectation.iqm - self.iqm)

    def remarks(self) -> list[str]:
        """Return what else should be known about the comparison."""
        found = [] if self.expectation.weak is None else [f"passing proves little here: {self.expectation.weak}"]
        if lost := sum(score == -inf for score in self.scores):
            found.append(f"{lost} of {len(self.seeds)} seeds diverged; they count as the worst")
        if shared := set(self.seeds) & set(self.expectation.seeds):
            found.append(
                f"{len(shared)} of the seeds are recorded ones: where these repeat bit for bit, they prove nothing new"
            )
        if self.passed and (behind := self.behind) > self.tolerated:
            share = f"{behind / abs(self.expectation.iqm or 1.0):.0%}"
            found.append(
                f"their IQM is {return_text(behind)} below the recorded one ({share}): so few seeds do not tell whether by "
                "chance; more of them (--seeds) would"
            )
        if self.better:
            found.append("the new seeds are better than the recorded ones beyond chance; the record may be out of date")
        return found

    def record(self) -> dict[str, Any]:
        """Return plain values; null stands for a score of a seed that diverged, and for what such scores leave open."""
        known = self.expectation
        return {
            "verdict": "PASS" if self.passed else "FAIL",
            "p": self.p,
            "exact": self.exact,
            "level": LEVEL,
            "tolerated_loss": self.tolerated,
            "largest_loss": _finite(self.largest_loss),
            "recorded": {"iqm": known.iqm, "interval": known.interval, "seeds": known.seeds, "scores": known.scores},
            "found": {
                "iqm": self.iqm,
                "seeds": self.seeds,
                "scores": [_finite(score) for score in self.scores],
            },
        }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
