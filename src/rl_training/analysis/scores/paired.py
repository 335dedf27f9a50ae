"""Groups that went on from the policies of others: seed by seed, what was gained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.analysis.bootstrap import Interval, student_quantile
from rl_training.analysis.scores.groups import Gains
from rl_training.analysis.scores.scored_run import SWITCH, ScoredRun
from rl_training.analysis.verdict import shown


def is_switch_of(part: ScoredRun, other: ScoredRun) -> bool:
    """Return whether `other` is the same run as it was when it went online."""
    return str(other.run.path.resolve()) == f"{part.run.path.resolve()}{SWITCH}"


def in_sequence(runs: Sequence[ScoredRun]) -> Iterator[tuple[ScoredRun, ScoredRun]]:
    """Yield runs of two groups of which the first went on from the second: as named, or by settings, seeds and steps."""
    for part in runs:
        begun = part.run.config.finetune and part.run.config.finetune.from_step
        for other in runs:
            if other.group == part.group or not _same_members(part, other):
                continue
            alike = begun and other.run.end == begun and not _is_named(part, runs) and part.run.learns_as(other.run)
            if is_switch_of(part, other) or alike:
                yield part, other


def _is_named(part: ScoredRun, runs: Sequence[ScoredRun]) -> bool:
    """Whether the run that a group went on from is among those named, by its switch."""
    return any(is_switch_of(part, other) for other in runs)


def _same_members(part: ScoredRun, other: ScoredRun) -> bool:
    """Whether two have seeds in common, with the same knobs of their own."""
    own, its = (one.run.config.member_knobs[one.members[0]] for one in (part, other))
    seeds = [{one.run.seeds[member] for member in one.members} for one in (part, other)]
    return own == its and bool(seeds[0] & seeds[1])


def gains_of(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> list[Gains]:
    """Return the gains of each group that went on from another, over all runs of the two on a task: each may be one seed."""
    found: dict[tuple[str, str, str], list[float]] = {}
    places = {id(part): task for part, task in zip(runs, tasks, strict=True)}
    for part, other in in_sequence(runs):
        if (task := places[id(part)]) == places[id(other)]:
            before, after = other.by_seed, part.by_seed
            own = found.setdefault((part.group, other.group, task), [])
            own += [after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())]
    return [Gains(*names, np.array(values)) for names, values in found.items()]


@dataclass(frozen=True)
class MeanGain:
    """How much the seeds of one group gained on average since the policies of another, with a paired interval."""

    first: str
    second: str  # from whose policies the first went on
    task: str
    seeds: int
    higher: int  # of the seeds
    gain: Interval  # Student's; not widened for the number of comparisons

    def sentence(self, confidence: float, *, turned: bool = False) -> str:
        """Return what is said of it, `turned` as the loss of the second group; `confidence` is that of the interval."""
        names, gain, side = (self.first, self.second), self.gain, "higher"
        if turned:
            names, gain, side = (self.second, self.first), Interval(-gain.estimate, -gain.high, -gain.low), "lower"
        return (
            f"Seed by seed on {self.task}, {' less '.join(names)} is {shown(gain, null=0.0)} on average "
            f"(paired {100 * confidence:g}% interval, {self.seeds} seeds, {self.higher} of them {side})."
        )


def mean_gain(found: Gains, confidence: float) -> MeanGain | None:
    """Return the mean of some gains with its interval; None for a single seed, of which no spread is known."""
    values, count = found.values, len(found.values)
    if count < 2:
        return None
    mean = float(values.mean())
    reach = student_quantile(confidence, count - 1) * float(values.std(ddof=1)) / count**0.5
    higher = int((values > 0).sum())
    return MeanGain(found.first, found.second, found.task, count, higher, Interval(mean, mean - reach, mean + reach))
