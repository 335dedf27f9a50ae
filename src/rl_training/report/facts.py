"""What a report says of a run in numbers: members, the switch to online, time, dataset, settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from rl_training.analysis.endings import ended_early, furthest, kept_bests, position_text, taken_elsewhere
from rl_training.analysis.logged_run import DISTANCE, RETURN, Curve, LoggedRun
from rl_training.config.blocks import DatasetConfig
from rl_training.config.differences import differing, setting_text
from rl_training.output import duration
from rl_training.registry import get_spec
from rl_training.report.bands import MANY, Group, Numbers, few_names, groups_of, member_knobs, summarize
from rl_training.report.timing import Timing

_MOST_FILES = 3  # of a source of data that are named
_STEPS = {"step": "gradient steps", "env_step": "environment steps"}
_LEAST = (1e4, 1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3)  # of numbers with 0, 1, 2, ... decimals, which have four digits or more
NOTHING = "\N{EN DASH}"  # for a number that is not known
GONE = "ProcessGone"  # the status of a run that was killed, and so could not write how it ended


@dataclass(frozen=True)
class MemberFacts:
    """How one member ended; its returns are None where it was never evaluated."""

    member: int
    seed: int
    knobs: dict[str, float]
    status: str
    final: float | None
    best: float | None
    best_at: int | None  # position
    best_text: str  # the same in words: `gradient step 1,500`; of a run with both phases with the phase
    distance: float | None  # to the logged actions of held-out rows, as a share of the range

    @property
    def diverged(self) -> bool:
        """Whether its training ended in NaN or inf; it counts with its last evaluation."""
        return _has_diverged(self.status)


def member_facts(run: LoggedRun) -> list[MemberFacts]:
    """Return how each member ended, or where it is."""
    curve = run.curve() if RETURN in run.history else None
    measured = run.curve(DISTANCE).last().tolist() if DISTANCE in run.history else [np.nan] * len(run.seeds)
    distances = [None if np.isnan(value) else value for value in measured]
    ended, status, kept, facts = ended_early(run), status_of(run), kept_bests(run), []
    for column, (member, seed) in enumerate(run.seeds.items()):
        final, best, best_at = (None, None, None) if curve is None else _final_and_best(curve, column)
        if member in kept and (best is None or kept[member][0] >= best):
            best, best_at = kept[member]
        own = member_knobs(run, member), ended.get(member, status)
        at = NOTHING if best_at is None else position_text(run, best_at)
        facts.append(MemberFacts(member, seed, *own, final, best, best_at, at, distances[column]))
    return facts


def _final_and_best(curve: Curve, column: int) -> tuple[float | None, float | None, int | None]:
    values = curve.values[:, column]
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return None, None, None
    best = known[np.argmax(values[known])]
    return float(values[known[-1]]), float(values[best]), int(curve.positions[best])


def status_of(run: LoggedRun) -> str:
    """Return the status of a run in words; an error is named by its kind."""
    status = str(run.record["status"])
    known = {"StoppedBySignal": "stopped by a signal", "DivergedError": "diverged", GONE: "failed: its process is gone"}
    return known.get(status, status if status.islower() else f"failed: {status}")


def outcome_of(run: LoggedRun) -> str:
    """Return the status of a run in words, and how many of its members diverged where others did not."""
    status, lost = status_of(run), lost_members(run)
    return f"{status}, {lost} of {len(run.seeds)} members diverged" if 0 < lost < len(run.seeds) else status


def lost_members(run: LoggedRun) -> int:
    """Return how many members of a run diverged."""
    return sum(_has_diverged(text) for text in ended_early(run).values())


def _has_diverged(status: str) -> bool:
    return status.startswith("diverged")


def returns_of(facts: Sequence[MemberFacts], which: str) -> Numbers:
    """Return `final` or `best` of the members that were evaluated, those that diverged among them."""
    return np.array([value for one in facts if (value := getattr(one, which)) is not None], dtype=np.float64)


def count_text(facts: Sequence[MemberFacts]) -> str:
    """Return the number of members, such as `5 (4 diverged)`."""
    lost = sum(one.diverged for one in facts)
    return f"{len(facts)} ({lost} diverged)" if lost else str(len(facts))


COMBINATIONS = ("combination", "members", "final return", "best return")
COMBINATIONS_NOTE = (
    "The highest final return first, in brackets the lowest and the highest seed. The order may be chance: "
    "`rl-training compare RUN --against all` tells."
)


def combinations(groups: Sequence[Group]) -> list[tuple[Group, list[MemberFacts]]]:
    """Return the combinations of sweeps with their members: the fewest diverged first, then the highest final return.

    Those of runs without an environment, which have no returns, are left out.
    """
    swept = [group for group in groups if group.knobs and group.run.config.final_env_id is not None]
    return sorted(_with_facts(swept), key=_rank)


def best_groups(groups: Sequence[Group], most: int) -> list[Group]:
    """Return at most so many groups, in their order: those with fewest diverged members, then the highest final return.

    Returns of different environments cannot be compared, so they take turns: the best of each, then the second of each.
    """
    if len(groups) <= most:
        return list(groups)
    by_env: dict[str | None, list[Group]] = {}
    for group, _ in sorted(_with_facts(groups), key=_rank):
        by_env.setdefault(group.run.config.final_env_id, []).append(group)
    turns = [group for turn in zip_longest(*by_env.values()) for group in turn if group is not None]
    return [group for group in groups if group in turns[:most]]


def best_or_first(groups: Sequence[Group]) -> str:
    """Return which groups are chosen where not all are shown: without returns none is best, but the first are taken."""
    returned = [group.run for group in groups if RETURN in group.run.history]
    envs = {run.config.final_env_id for run in returned}
    return "best of each environment, in turns:" if len(envs) > 1 else "best" if returned else "first"


def _with_facts(groups: Sequence[Group]) -> list[tuple[Group, list[MemberFacts]]]:
    known = {run.path: member_facts(run) for run in {group.run.path: group.run for group in groups}.values()}
    return [(group, [known[group.run.path][column] for column in group.members]) for group in groups]


def _rank(pair: tuple[Group, Sequence[MemberFacts]]) -> tuple[int, float]:
    final = summarize(returns_of(pair[1], "final"))[0]
    return sum(one.diverged for one in pair[1]), np.inf if np.isnan(final) else -final


def combination_cells(group: Group, found: Sequence[MemberFacts]) -> list[str]:
    """Return the row of a combination under `COMBINATIONS`."""
    returns = [_returns_text(group.run, returns_of(found, which)) for which in ("final", "best")]
    return [group.label, count_text(found), *returns]


def spread_text(values: Numbers) -> str:
    """Return the middle of some values with their range, such as `-210.8 (-335.1 to -156.1)`."""
    if not len(values):
        return "none yet"
    middle, ends = number(summarize(values)[0]), range_text(values)
    return middle if ends == middle else f"{middle} ({ends})"


def range_text(values: Numbers) -> str:
    """Return from where to where some values reach, such as `-335.1 to -156.1`; one number if they do not differ."""
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"


def number(value: float | None) -> str:
    """Return a number for people: four digits, thousands separated; a dash for none."""
    if value is None or np.isnan(value):
        return NOTHING
    size = abs(value)
    if size >= 1e7 or 0.0 < size < 1e-3:
        return f"{value:.3e}"
    digits = next((count for count, least in enumerate(_LEAST) if size >= least), 4)
    return f"{value + 0.0:,.{digits}f}"


def time_text(timing: Timing) -> str:
    """Return the time that a run took; a dash where it ended before any was written."""
    return duration(timing.seconds, exact=True) if timing.positions else NOTHING


def speed_text(timing: Timing) -> str:
    """Return the steps per second of each phase, such as `340 environment steps per second`; empty where not known."""
    phases = {"step": "offline", "env_step": "online"} if len(timing.speeds) > 1 else {}
    texts = [
        f"{f'{speed:,.0f}' if speed >= 10 else number(speed)} {_STEPS[counter]} per second {phases.get(counter, '')}"
        for counter, speed in timing.speeds.items()
    ]
    return ", ".join(map(str.strip, texts))


def steps_taken(run: LoggedRun) -> int:
    """Return how many steps a run took in its own directory, those of both phases together."""
    elsewhere = taken_elsewhere(run)
    return sum((furthest(run, counter) or 0) - elsewhere.get(counter, 0) for counter in _STEPS)


def steps_text(run: LoggedRun) -> str:
    """Return the steps that a run took, such as `6,000 gradient steps, 3,000 environment steps`.

    As its time, they are those in its own directory; what a finetune in a directory of its own begins with is told beside.
    """
    elsewhere, texts = taken_elsewhere(run), []
    for counter, unit in _STEPS.items():
        count, before = furthest(run, counter), elsewhere.get(counter, 0)
        if count is not None:
            own = f"{count - before:,} {unit if count - before != 1 else unit.removesuffix('s')}"
            texts.append(f"{own} (after {before:,} in another run)" if before else own)
    return ", ".join(texts) or "no steps yet"


OVERVIEW = (
    *("run", "final return", "best return", "from logged actions", "status"),
    *("algorithm", "learned on", "members", "steps", "time"),
)


def as_of_now(text: str, runs: Sequence[LoggedRun]) -> str:
    """Return a text that calls the latest return of runs `final`, or `last` where one of them has not finished."""
    return text.replace("final return", "last return") if any(run.record["status"] != "finished" for run in runs) else text


def overview_cells(run: LoggedRun, name: str, timing: Timing, progress: str = "") -> list[str]:
    """Return the row of a run under `OVERVIEW`; a dash for what a run of its kind never has."""
    found, counted = member_facts(run), counted_members(run)
    results = [_returns_text(run, returns_of(counted, which)) for which in ("final", "best")] + [_distance_text(run)]
    where = [run.config.algo, source_of(run), count_text(found), steps_text(run), time_text(timing)]
    return [name, *results, ", ".join(filter(None, (outcome_of(run), progress))), *where]


def counted_members(run: LoggedRun) -> list[MemberFacts]:
    """Return the members whose returns a table has for a run: all, or of a sweep those of its best combination."""
    ranked = combinations(groups_of([run]))
    return ranked[0][1] if ranked else member_facts(run)


def _returns_text(run: LoggedRun, values: Numbers) -> str:
    if len(values):
        return spread_text(values)
    if run.config.final_env_id is None:
        return NOTHING
    return "none yet" if run.record["status"] == "running" else "not evaluated"


def _distance_text(run: LoggedRun) -> str:
    """How far a policy without an environment is from the logged actions; a dash for one that has returns."""
    distances = held_out_distances(run) if run.config.final_env_id is None else None
    return NOTHING if distances is None else f"{distances[0]:.1%} (best constant {distances[1]:.1%})"


def held_out_distances(run: LoggedRun) -> tuple[float, float] | None:
    """Return how far the policy and the best constant action are from held-out actions, as shares of the range."""
    metrics = (DISTANCE, "validation/constant_distance")
    if not {*metrics} <= set(run.history):
        return None
    own, constant = (summarize(run.curve(name).last())[0] for name in metrics)
    return own, constant


def filled_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns in which at least one row has more than a dash."""
    return [column for column, cells in enumerate(zip(*rows, strict=True)) if any(cell != NOTHING for cell in cells)]


def returns_note(runs: Sequence[LoggedRun], names: Sequence[str]) -> str:
    """Return what the returns in a table of runs are; empty where there are none."""
    by_count: dict[str, list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        if RETURN in run.history:
            by_count.setdefault(_episodes_text(run), []).append(name)
    if not by_count:
        return ""
    shown = [f"{count} ({few_names(own)})" if len(by_count) > 1 else count for count, own in by_count.items()]
    places = " or ".join(dict.fromkeys(str(run.config.final_env_id) for run in runs if RETURN in run.history))
    which = " Which run is better, and how sure that is, tells `rl-training compare`." if len(runs) > 1 else ""
    swept = (
        " Of a sweep it is that of its best combination."
        if any(run.config.sweep or run.config.trials for run in runs)
        else ""
    )
    lost = " A member that diverged counts with its last evaluation, if it had any." if any(map(lost_members, runs)) else ""
    return (
        f"A return is the mean over the {' or '.join(shown)} episodes of an evaluation in {places}. Of several members it is "
        f"their mean, of {MANY} or more the interquartile mean; in brackets the lowest and the highest member."
        f"{swept}{lost}{which}"
    )


def episodes_of(run: LoggedRun) -> int:
    """Return how many episodes the latest evaluations of a run have, of each member."""
    return run.config.final_rhythm.eval_episodes


def _episodes_text(run: LoggedRun) -> str:
    """The number of episodes of the evaluations in a run's directory: two where it changed at the switch to online."""
    before, now = run.config.rhythm.eval_episodes, episodes_of(run)
    changed = run.switch is not None and before != now and bool((run.curve().positions <= run.switch).any())
    return f"{before} (before the switch) or {now} (after it)" if changed else str(now)


def differences(runs: Sequence[LoggedRun]) -> dict[str, list[str]]:
    """Return the settings in which runs differ, each as text for every run; a dash where a run has no such setting."""
    found = differing([run.config.record() for run in runs])
    return {key: [NOTHING if value is None else setting_text(value) for value in row] for key, row in found.items()}


def setup_of(run: LoggedRun) -> dict[str, str]:
    """Return versions and hardware of a run, by name."""
    found = {**run.record.get("versions", {}), **run.record.get("hardware", {})}
    return {str(name): "none" if value is None else str(value) for name, value in found.items()}


def source_of(run: LoggedRun) -> str:
    """Return what a run learned from: its data, its environment, or the one and then the other."""
    kind, env = get_spec(run.config.algo).kind, run.config.final_env_id
    if kind == "online":
        return str(env)
    data = ", ".join(_part_text(part, run.config.env_id) for part in getattr(run.config.algo_kwargs, "dataset", None) or ())
    went = " and online in {}" if kind == "online, from data" else ", then online in {}" if run.switch is not None else ""
    return (data or "data") + went.format(env)


def _part_text(part: DatasetConfig, env: str | None) -> str:
    """A source of data: the names of its files, the run whose replay it is, or the recipe with its environment."""
    if part.kind is not None:
        return f"{part.kind} data of {env}"
    if part.run is not None:
        return f"replay of {Path(part.run).name}"
    names = [Path(path).name for path in ([part.path] if isinstance(part.path, str) else part.path or ())]
    return f"{names[0]} and {len(names) - 1} more" if len(names) > _MOST_FILES else ", ".join(names)
