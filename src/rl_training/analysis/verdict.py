"""Sentences: what may be concluded from a comparison, and what not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING

from rl_training.analysis.bootstrap import Interval
from rl_training.analysis.logged_run import DISTANCE
from rl_training.analysis.planning import MOST_SEEDS
from rl_training.analysis.scores.directions import SCORE, Direction, measures_quality
from rl_training.analysis.scores.groups import TASK, Scored

if TYPE_CHECKING:
    from rl_training.analysis.comparison import Pair

USUAL_CONFIDENCE = 0.95
FEW = 5  # seeds: with fewer, one lucky run decides
_LARGEST = 1e12  # from here on numbers are written as powers of ten
_MOST_DECIMALS = 5  # beyond this, tiny numbers are written as powers of ten


@dataclass(frozen=True)
class Wording:
    """What is compared: how good policies are, or a metric that does not tell, of which nothing is better or worse."""

    metric: str
    direction: Direction

    @property
    def is_quality(self) -> bool:
        """Whether the metric tells how good a policy is."""
        return measures_quality(self.metric)

    @property
    def leading(self) -> str:
        """What a value on the side that counts as better is called."""
        return "smaller" if self.direction == "lower" else "larger"

    def word(self, found: str) -> str:
        """Return a verdict in words that claim no more than the metric tells."""
        other = "larger" if self.leading == "smaller" else "smaller"
        return found if self.is_quality else {"better": self.leading, "worse": other}.get(found, found)

    def compared(self, pair: "Pair") -> str:
        """Return what is said of a pair that differs, such as `iql is better than bc`."""
        if self.is_quality:
            return f"{pair.first} is {pair.verdict} than {pair.second}"
        if self.metric == DISTANCE:
            near = "closer to" if pair.verdict == "smaller" else "farther from"
            return f"{pair.first} is {near} the logged actions than {pair.second}"
        return f"{self.metric} of {pair.first} is {pair.verdict} than that of {pair.second}"

    @property
    def chance(self) -> str:
        """What the probability is of, that a run of one group is above one of the other."""
        return "probability of improvement" if self.is_quality else f"probability of a {self.leading} value"

    @property
    def caution(self) -> str:
        """What the metric does not tell; empty where it tells how good policies are."""
        if self.metric == SCORE:
            return f"{SCORE} is an estimate from data (`select_by: fqe`), not a measured return."
        if self.is_quality:
            return ""
        if self.direction == "none":
            return f"{self.metric} is no score: neither a larger nor a smaller value makes a better policy."
        if self.metric.partition("/")[2].startswith("action_distance"):
            return "Closer to the logged actions is not better: a policy that improves on them has to leave them."
        return f"{self.metric} tells how well networks fit rows, not how good a policy is."


def verdict(difference: Interval | None, improvement: Interval, *, lower_is_better: bool = False) -> str:
    """Return `better` or `worse` only if every interval says so: that of the difference, and that of the probability."""
    sides = [_side(improvement, 0.5)]
    if difference is not None:
        sides.append(_side(difference, 0.0) * (-1 if lower_is_better else 1))
    return "better" if min(sides) > 0 else "worse" if max(sides) < 0 else "unclear"


def _side(found: Interval, null: float) -> int:
    """Whether an interval lies above (1) or below (-1) a value, or not clearly on one side (0)."""
    return (1 if found.low > null else -1) if found.excludes(null) else 0


def conclusion(
    pairs: Sequence["Pair"],
    by_task: Mapping[str, Sequence["Pair"]],
    scores: Scored,
    wording: Wording,
    reservations: Sequence[str] = (),
    *,
    confidence: float,
    lucky: bool = False,
) -> str:
    """Return what is said of each pair, overall and by task, on a line of its own, then what holds for all of them.

    With `lucky`, a spread over seeds is mostly that of few episodes, so that equal ones may tell what more seeds would.
    """
    sentences = []
    for number, pair in enumerate(pairs):
        sentences.append(_sentence(pair, scores, wording, confidence, lucky=lucky))
        if len(by_task) > 1 and pair.improvement.known:
            sentences[-1] += f" {_task_by_task({task: found[number].verdict for task, found in by_task.items()})}"
    sentences += [*([wording.caution] if wording.caution else []), *reservations]
    if len(pairs) * len(by_task) > 1 and any(pair.improvement.known for pair in pairs):
        sentences.append(_correction(len(pairs), len(by_task), f"{100 * confidence:g}%") + _impossible(by_task))
    if min(len(found) for group in scores.values() for found in group.values()) < FEW:
        sentences.append(f"Fewer than {FEW} seeds are too few to rely on: train {FEW} or more, better 10.")
    return ("\n" if len(pairs) > 1 else " ").join(sentences)


def _sentence(pair: "Pair", scores: Scored, wording: Wording, confidence: float, *, lucky: bool) -> str:
    tasks = list(scores[pair.first])
    where = "" if tasks == [TASK] else f" on {tasks[0]}" if len(tasks) == 1 else f" over {len(tasks)} tasks"
    both = f"{pair.first} and {pair.second}{where}"
    runs = _runs({name: [len(found) for found in scores[name].values()] for name in (pair.first, pair.second)})
    if not pair.improvement.known:
        why = "a single run says nothing about the spread over seeds, so there is no interval"
        return f"Nothing can be concluded about {both} {runs}: {why}."
    if pair.verdict != "unclear":
        sure = "" if confidence == USUAL_CONFIDENCE else f" at a confidence of {100 * confidence:g}%"
        return f"{wording.compared(pair)}{where}{sure}: {_numbers(pair, wording)}; {runs}."
    why = f"{_reason(pair, wording)} ({_numbers(pair, wording)}; {runs})"
    return f"Nothing can be concluded about {both}: {why}.{_advice(pair, lucky=lucky)}"


def _task_by_task(verdicts: Mapping[str, str]) -> str:
    """On which single tasks a group is better or worse, or larger or smaller."""
    parts = [
        f"{kind} on {', '.join(task for task, found in verdicts.items() if found == kind)}"
        for kind in ("better", "worse", "larger", "smaller", "unclear")
        if kind in verdicts.values()
    ]
    return f"By task: {'; '.join(parts)}."


def _correction(pairs: int, tasks: int, confidence: str) -> str:
    """Which intervals are widened; those over all tasks and those by task are two families, each corrected for itself."""
    if tasks == 1:
        return f"Intervals are widened (Bonferroni: {pairs} comparisons), so that the verdicts hold together at {confidence}."
    if pairs == 1:
        what = f"By task, intervals are widened (Bonferroni: {tasks} comparisons), so that those verdicts hold together"
        return f"{what} at {confidence}; the overall one is a single comparison."
    counts = f"{pairs} comparisons overall, {pairs * tasks} by task"
    what = f"Intervals are widened (Bonferroni: {counts}), so that the verdicts hold together"
    return f"{what} at {confidence} within each of the two, not across both."


def _impossible(by_task: Mapping[str, Sequence["Pair"]]) -> str:
    """Which verdicts by task need more seeds, however large a difference is; empty where there are enough of all."""
    pairs = [(task, pair) for task, found in by_task.items() for pair in found]
    lacking = [(task, pair) for task, pair in pairs if pair.least_seeds]
    if not lacking:
        return ""
    where = " by task" if len(by_task) > 1 else ""
    if len(lacking) < len(pairs):
        whole = [task for task, found in by_task.items() if all(pair.least_seeds for pair in found)]
        single = [
            f"{pair.first} and {pair.second}" + f" on {task}" * (len(by_task) > 1)
            for task, pair in lacking
            if task not in whole
        ]
        parts = [f"on {', '.join(whole)}"] * bool(whole) + [f"between {', '.join(single)}"] * bool(single)
        where = f" {' and '.join(parts)}"
    least = max(pair.least_seeds or 0 for _, pair in lacking)
    return f" No difference can be shown{where} with so few seeds, however large: that takes {least} each."


def _numbers(pair: "Pair", wording: Wording) -> str:
    chance = f"{wording.chance} {shown(pair.improvement, 2, null=0.5)}"
    if pair.difference is None:
        return chance
    return f"{chance}, difference of IQM {shown(pair.difference, null=0.0)} for {pair.first} less {pair.second}"


def _reason(pair: "Pair", wording: Wording) -> str:
    difference, chance = pair.difference, pair.improvement
    if difference is not None and not difference.excludes(0.0):
        return f"the interval of the difference {bounds(difference, null=0.0)} contains 0"
    clear = "" if difference is None else "the IQM differs, but "
    if not chance.excludes(0.5):
        return f"{clear}the interval of the {wording.chance} {bounds(chance, 2, null=0.5)} contains 0.5"
    return f"{clear}the {wording.chance} points in the opposite direction"


def _advice(pair: "Pair", *, lucky: bool) -> str:
    """How many seeds would probably suffice, if that can be said, and whether fewer might."""
    if pair.seeds_needed is None:
        return ""
    if pair.seeds_needed > MOST_SEEDS:
        return f" A difference as small as this one would need more than {MOST_SEEDS:,} seeds each to be seen."
    enough = f"about {pair.seeds_needed:,} seeds each would show it in four of five experiments"
    fewer = "; with more and equal episodes (see the warning) fewer may" if lucky else ""
    return f" If the difference is as large as it looks, {enough}{fewer}."


def _runs(counts: Mapping[str, Sequence[int]]) -> str:
    spans = {name: (min(found), max(found)) for name, found in counts.items()}
    texts = {name: str(low) if low == high else f"{low} to {high}" for name, (low, high) in spans.items()}
    if len(set(texts.values())) == 1:
        text = next(iter(texts.values()))
        return f"with {text} seed{'' if text == '1' else 's'} each"
    return "with " + " and ".join(f"{text} seed{'' if text == '1' else 's'} of {name}" for name, text in texts.items())


def shown(found: Interval, places: int | None = None, *, null: float | None = None) -> str:
    """Return an estimate with its interval, such as `35 [12, 60]`; without one, the estimate alone.

    There are as many decimals as it takes to see on which side of `null` each bound is.
    """
    places = _places(found, places, null)
    return f"{number(found.estimate, places)} {bounds(found, places)}".strip()


def bounds(found: Interval, places: int | None = None, *, null: float | None = None) -> str:
    """Return the interval, such as `[12, 60]`, with decimals as in `shown`; nothing if there is none."""
    places = _places(found, places, null)
    return f"[{number(found.low, places)}, {number(found.high, places)}]" if found.known else ""


def _places(found: Interval, places: int | None, null: float | None) -> int:
    places = digits(found) if places is None else places
    if null is not None and found.known:
        while any(_sign(round(bound, places) - null) != _sign(bound - null) for bound in (found.low, found.high)):
            places += 1
    return places


def _sign(value: float) -> int:
    return (value > 0.0) - (value < 0.0)


def number(value: float, places: int) -> str:
    """Return a number with so many decimals, without the sign of a zero; a tiny or huge one as a power of ten."""
    if abs(value) >= _LARGEST:
        return f"{value:.3e}"
    if places > _MOST_DECIMALS and abs(value) < 1e-3:
        return f"{value:.{max(0, floor(log10(abs(value))) + places)}e}" if value else "0"
    return f"{value:z,.{places}f}"


def digits(found: Interval) -> int:
    """Return how many decimals an interval justifies: its width has two digits with them, or more before the point."""
    width = found.high - found.low if found.known and found.high > found.low else abs(found.estimate)
    return next((places for places in range(300) if width * 10**places >= 20), 300) if width else 1
