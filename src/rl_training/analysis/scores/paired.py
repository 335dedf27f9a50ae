"""Groups that went on from the policies of others: seed by seed, what was gained."""

from collections.abc import Iterator, Sequence

import numpy as np

from rl_training.analysis.bootstrap import Interval, student_quantile
from rl_training.analysis.scores.scored_run import SWITCH, ScoredRun
from rl_training.analysis.verdict import shown

_CONFIDENCE = 0.95


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


def seed_by_seed(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> list[str]:
    """Return a sentence for each group that went on from another: how much each seed gained, with a paired interval."""
    places = {id(part): task for part, task in zip(runs, tasks, strict=True)}
    return [told for part, other in in_sequence(runs) if (told := _gain(part, other, places[id(part)])) is not None]


def _gain(part: ScoredRun, other: ScoredRun, task: str) -> str | None:
    before, after = other.by_seed, part.by_seed
    gains = np.array([after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())])
    if len(gains) < 2:
        return None
    mean = float(gains.mean())
    reach = student_quantile(_CONFIDENCE, len(gains) - 1) * float(gains.std(ddof=1)) / len(gains) ** 0.5
    told = shown(Interval(mean, mean - reach, mean + reach), null=0.0)
    return (
        f"Seed by seed on {task}, {part.group} less {other.group} is {told} on average "
        f"(paired, {len(gains)} seeds, {int((gains > 0).sum())} of them higher)."
    )
