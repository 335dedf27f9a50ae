"""What makes a comparison of runs unfair, a line for each thing."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rl_training.analysis.scores.directions import measures_quality
from rl_training.analysis.scores.groups import Choice
from rl_training.analysis.scores.paired import in_sequence, is_switch_of
from rl_training.analysis.scores.scored_run import ScoredRun, different, pooled
from rl_training.analysis.scores.tasks import by_group


def warnings_of_runs(runs: Sequence[ScoredRun], choice: Choice) -> Iterator[str]:
    """What is to be known of single runs."""
    if choice.by == "best":
        yield "the best evaluation of each run is compared, which is optimistic: it was chosen by the returns that it reports"
    states = {"running": "has not finished", "DivergedError": "diverged in every member", "StoppedBySignal": "was stopped"}
    for part in runs:
        run, status = part.run, part.run.record["status"]
        if status != "finished" and part.reached.any():
            first = int(part.reached[part.reached > 0].min(initial=part.steps))
            after = f"{first:,} to {part.steps:,}" if first < part.steps else f"{part.steps:,}"
            how = "has not finished, and its process is gone" if part.is_gone else states.get(status, f"failed ({status})")
            yield f"{run.path}: {how}; its scores are those after {after} steps"
        yield from _without_score(part, choice)
        for event, why in (("diverged", "diverged"), ("stopped", "stopped early")):
            who = run.members_with(event).intersection(part.members)
            if count := len(who - part.unscored):
                yield f"{part.group}: {count} {_of(part)} {why}; their {choice.by} evaluation counts"
        yield from _cut_short(part, choice)


def _of(part: ScoredRun) -> str:
    return f"of {len(part.members)} members of {part.run.path}"


def _without_score(part: ScoredRun, choice: Choice) -> Iterator[str]:
    """Which members have no score, and whether they count nevertheless."""
    failed = part.unscored if measures_quality(choice.metric) else set()
    if failed:
        worst = "highest" if choice.lower_is_better else "lowest"
        who = f"{part.group}: {len(failed)} {_of(part)} diverged before any evaluation"
        yield f"{who}; they count with the {worst} score of their task"
    if missing := int(np.isnan(part.values).sum()) - len(failed):
        yield f"{part.group}: {missing} {_of(part)} have no score, which may flatter it"


def _cut_short(part: ScoredRun, choice: Choice) -> Iterator[str]:
    """Whose last value is not of the end: its file of metrics was cut, or what was measured there is no finite number."""
    if not choice.metric.startswith(("eval/", "validation/")):
        return
    ended = part.run.members_with("diverged") | part.run.members_with("stopped")
    last = part.steps if part.run.end is None else part.run.end
    early = {member: int(at) for member, at in zip(part.members, part.reached, strict=True) if 0 < at < last}
    there = part.run.measured_at(last, choice.metric.partition("/")[0])
    for what, why, members in (
        ("evaluation", "the end of its metrics.jsonl is missing", early.keys() - ended - there),
        (
            "finite value",
            "what was measured there is NaN or infinite, so an earlier value counts",
            (early.keys() - ended) & there,
        ),
    ):
        if members:
            at = " and ".join(f"{place:,}" for place in sorted({early[member] for member in members}))
            yield f"{part.group}: {len(members)} {_of(part)} have no {what} at step {last:,}, only up to {at}: {why}"


def unequal(runs: Sequence[ScoredRun], tasks: Sequence[str], choice: Choice) -> Iterator[str]:
    """In what the runs of a task differ that ought to be equal."""
    for task in dict.fromkeys(tasks):
        here = [part for part, own in zip(runs, tasks, strict=True) if own == task]
        episodes = {part: str(part.run.config.final_rhythm.eval_episodes) for part in here}
        yield from _differing(task, "evaluated in unequal numbers of episodes", episodes)
        yield from _differing(task, "environments are made differently", {part: part.making for part in here})
        if choice.by == "best":
            how = "the best of unequal numbers of evaluations, and the best of more is higher"
            yield from _differing(task, how, {part: str(part.evaluations) for part in here})
    told: set[tuple[str, str]] = set()
    for task, part, other in pooled(runs, tasks):
        if (keys := different(part, other)) and (part.group, task) not in told:
            told.add((part.group, task))
            yield f"{part.group}: runs on {task} are pooled though they differ in {', '.join(keys[:5])}"


def continued(runs: Sequence[ScoredRun]) -> Iterator[str]:
    """Where a group went on from policies of another: then they are not independent."""
    for part, other in in_sequence(runs):
        sure = "goes on from" if is_switch_of(part, other) else "seems to go on from"
        why = "" if is_switch_of(part, other) else " (the same settings, data, seeds, steps)"
        yield (
            f"{part.group}: {sure} {other.group}{why}; verdicts take them for independent, so a gain that every seed has may "
            "stay unseen there: what is said seed by seed, of two seeds or more, shows it"
        )


def _differing(task: str, how: str, values: Mapping[ScoredRun, str]) -> Iterator[str]:
    """One line if not all runs of a task have the same value, with those of each group."""
    if len(set(values.values())) > 1:
        yield f"{task}: {how}: {by_group((part.group, value) for part, value in values.items())}"
