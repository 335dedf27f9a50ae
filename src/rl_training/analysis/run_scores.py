"""The scores of runs: one for each member, by task, with a warning for everything that makes a comparison unfair."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.aggregates import Values
from rl_training.analysis.directions import refuse_unlike_scores
from rl_training.analysis.groups import Choice, Groups, Scored, combination_name, differently_made
from rl_training.analysis.logged_run import DISTANCE, RETURN, RETURN_STD, LoggedRun, without
from rl_training.config.base import flat
from rl_training.config.shared_knobs import CriticKnobs
from rl_training.errors import ConfigError

# settings in which runs of one group may differ: they say who runs where and what is kept, not what is learned
_FREE = (
    *("seed", "seeds", "sweep", "trials", "run_name", "device", "workers", "engine", "env_imports", "env_timeout", "env_id"),
    *("eval_mode", "select_by", "keep_checkpoints", "checkpoint_interval", "log_interval", "algo_kwargs.dataset"),
    *("finetune.checkpoint_interval", "finetune.log_interval"),
)
_DATA = "data"  # the task of runs without an environment
_OF_CRITICS = ("q_", "v_", "advantage_", "critic_", "value", "start_", "possible_", "reached_")  # what only critics have
_MOSTLY = 0.5  # share of a spread from which on it is said where it comes from
_SEEDS_WITH_SPREAD = 3  # of fewer nothing can be said
_OFFLINE, _ONLINE = "gradient steps on data", "environment steps"


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """The members of a run that belong to one group: all, or those of one combination of a sweep."""

    group: str
    run: LoggedRun
    members: Sequence[int]
    values: Values  # one for each member, NaN where it has none
    steps: int  # up to the last evaluation
    evaluations: int
    reached: NDArray[np.int64]  # the position of each member's last evaluation, 0 where it has none
    noise: Values  # variance of each member's last return that its episodes explain, NaN where it is not known

    @property
    def env(self) -> str:
        """The environment in which the run was evaluated; that of its data if there was none."""
        return self.run.config.final_env_id or _DATA

    @property
    def making(self) -> str:
        """The arguments, time limit and wrappers of that environment."""
        source = self.run.config.final_environment
        return "as registered" if source is None else source.making

    @property
    def training(self) -> dict[str, int]:
        """The steps up to the last evaluation, by what they were taken on."""
        switch = self.run.switch
        if switch is not None and self.steps > switch:
            return {_OFFLINE: switch, _ONLINE: self.steps - switch}
        return {_ONLINE if switch is None and "env_step" in self.run.history else _OFFLINE: self.steps}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that should be equal in all runs of a group and task."""
        return without(flat(self.run.config.record()), _FREE)


def read_runs(arguments: Sequence[tuple[str | None, Sequence[Path]]], choice: Choice) -> Groups:
    """Return the scores of named or unnamed lists of run directories."""
    grouped = _grouped(arguments)
    _refuse_lacking([run for _, run in grouped], choice.metric)
    refuse_unlike_scores([run for _, run in grouped], choice.metric)
    runs = [part for group, run in grouped for part in _scored(group, run, choice)]
    tasks = _tasks(runs)
    scores: Scored = {}
    for part, task in zip(runs, tasks, strict=True):
        present = part.values[~np.isnan(part.values)]
        scores.setdefault(part.group, {})
        if len(present):
            scores[part.group][task] = np.concatenate([scores[part.group].get(task, np.zeros(0)), present])
    empty = [name for name, found in scores.items() if not found]
    if len(empty) == len(scores):
        raise ConfigError(f"{empty[0]}: no member has any {choice.metric}, so there is nothing to compare")
    _refuse_repeated_seeds(runs, tasks)
    left_out = [f"{name}: no member has any {choice.metric}{_lost(name, runs)}, so it is left out" for name in empty]
    counted = [(part, task) for part, task in zip(runs, tasks, strict=True) if part.group not in empty]
    runs, tasks = [part for part, _ in counted], [task for _, task in counted]
    fair = (*_unequal(runs, tasks, choice), *_continued(runs), *_lucky(runs, tasks, choice))
    found = [*left_out, *_own_warnings(runs, choice), *fair]
    kept = {name: own for name, own in scores.items() if own}
    return Groups(
        kept,
        list(dict.fromkeys(found)),
        of_runs=True,
        any_runs=True,
        by_data=all(part.env == _DATA for part in runs),
        left_out=left_out,
        reservations=[*differently_made(_unlike_environments(runs, tasks)), *_all_diverged(runs)],
    )


def _unlike_environments(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> Iterator[str]:
    """The tasks whose runs were not all evaluated in the same environment."""
    for task in dict.fromkeys(tasks):
        if len({part.making for part, own in zip(runs, tasks, strict=True) if own == task}) > 1:
            yield task


def _all_diverged(runs: Sequence[ScoredRun]) -> Iterator[str]:
    """A reservation for every group without a member that lasted."""
    for group in dict.fromkeys(part.group for part in runs):
        own = [part for part in runs if part.group == group]
        if all(_members_with(part.run, "diverged").issuperset(part.members) for part in own):
            yield f"Every member of {group} diverged, so its scores are of policies before that."


def _lost(group: str, runs: Sequence[ScoredRun]) -> str:
    """How many members of a group diverged, if any did."""
    own = [part for part in runs if part.group == group]
    count = sum(len(_members_with(part.run, "diverged").intersection(part.members)) for part in own)
    return f" ({count} of {sum(len(part.members) for part in own)} diverged)" if count else ""


def _grouped(arguments: Sequence[tuple[str | None, Sequence[Path]]]) -> list[tuple[str, LoggedRun]]:
    """Every run with the name of its group; unnamed ones are called by algorithm, or by directory if that is not unique."""
    piles: list[tuple[tuple[str, str, str], list[LoggedRun]]] = []
    for name, paths in arguments:
        by_algo: dict[str, list[LoggedRun]] = {}
        for run in map(LoggedRun.load, paths):
            by_algo.setdefault(run.config.algo, []).append(run)
        if name is not None and len(by_algo) > 1:
            raise ConfigError(f"{name}: holds runs of {', '.join(by_algo)}; runs of one group have one algorithm")
        folder = paths[0] if len(paths) == 1 else paths[0].parent
        for algo, runs in by_algo.items():
            more = f"/{algo}" if len(by_algo) > 1 else ""
            own = (algo, f"{folder.resolve().name}{more}", f"{folder}{more}")
            piles.append(((name, name, name) if name is not None else own, runs))
    _refuse_repeated_runs([run for _, runs in piles for run in runs])
    for level in range(3):
        names = [choices[level] for choices, _ in piles]
        if len(set(names)) == len(names):
            return [(name, run) for name, (_, runs) in zip(names, piles, strict=True) for run in runs]
    raise ConfigError(f"two groups are called {max(names, key=names.count)!r}; give each its own name: NAME=PATH")


def _refuse_repeated_runs(runs: Sequence[LoggedRun]) -> None:
    seen: set[Path] = set()
    for run in runs:
        if (place := run.path.resolve()) in seen:
            raise ConfigError(f"{run.path}: is named twice; a run is evidence for one group, and once")
        seen.add(place)


def _refuse_lacking(runs: Sequence[LoggedRun], metric: str) -> None:
    """Refuse a metric that only some of the runs have: its name is right, so another one with a similar name is no advice."""
    having = [run for run in runs if metric in run.history]
    for run in runs:
        of_critics = metric.partition("/")[2].startswith(_OF_CRITICS)
        never = of_critics and not isinstance(run.config.algo_kwargs, CriticKnobs)
        waiting = run.record["status"] == "running" and not never
        if metric in run.history or not having or metric == RETURN or waiting or not run.history.rows:
            continue
        why = f"{run.config.algo} has no critics" if never else "it was not written in this run"
        shared = next((name for name in (RETURN, DISTANCE) if all(name in other.history for other in runs)), None)
        other = f"leave it out, or compare by `--metric {shared}`, which all have" if shared else "leave it out"
        raise ConfigError(f"{run.path}: has no {metric}, which {having[0].path} has: {why}; {other}")


def _scored(group: str, run: LoggedRun, choice: Choice) -> Iterator[ScoredRun]:
    """The members of a run with their scores: one group, or one for each combination of its sweep."""
    never = choice.metric == RETURN and run.config.final_env_id is None
    if choice.metric not in run.history and run.record["status"] == "running" and not never:
        raise ConfigError(f"{run.path}: has no {choice.metric} yet, and has not finished; wait for its first evaluation")
    if choice.metric in run.history and not _is_measured(run, choice.metric):
        raise ConfigError(f"--metric {choice.metric}: is no measured number; there are {', '.join(run.metrics())}")
    curve = run.curve(choice.metric)
    values = curve.last() if choice.by == "last" else curve.best(lower=choice.lower_is_better)
    members, noise = list(run.seeds), _noise(run)
    for knobs in run.config.combinations:
        own = [place for place, member in enumerate(members) if run.config.member_knobs[member] == knobs]
        steps, count = int(curve.positions[-1]), len(curve.positions)
        reached = np.where(np.isnan(curve.values), 0, curve.positions[:, None]).max(axis=0)
        name, chosen = combination_name(group, knobs), [members[place] for place in own]
        yield ScoredRun(name, run, chosen, values[own], steps, count, reached[own], noise[own])


def _noise(run: LoggedRun) -> Values:
    """The variance of each member's last mean return over its episodes."""
    episodes = run.config.final_rhythm.eval_episodes
    if RETURN_STD not in run.history or episodes < 2:
        return np.full(len(run.seeds), np.nan)
    return run.curve(RETURN_STD).last() ** 2 / (episodes - 1)  # the deviation of all episodes divides by their number


def _is_measured(run: LoggedRun, metric: str) -> bool:
    """Whether a column is a number that was measured, not a counter nor text."""
    return metric in run.metrics() and run.history[metric].dtype.kind != "U"


def _tasks(runs: Sequence[ScoredRun]) -> list[str]:
    """The task of each run: its environment, and its data too where a group has runs on several datasets in it.

    Without an environment the data alone is the task: figures on other rows cannot be compared.
    """
    kinds: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for part in runs:
        kinds[part.group, part.env].add(part.run.fingerprint)
    split = {env for (_, env), found in kinds.items() if len(found) > 1}
    labels: dict[str | None, str] = {}  # the same data may have other names elsewhere: the first is kept
    for part in runs:
        labels.setdefault(part.run.fingerprint, part.run.data)

    def task(part: ScoredRun) -> str:
        if part.env not in split and part.env != _DATA:
            return part.env
        label = labels[part.run.fingerprint]
        unclear = list(labels.values()).count(label) > 1 and part.run.fingerprint
        named = (label, f"({str(part.run.fingerprint)[:6]})" if unclear else "")
        return " ".join(filter(None, named if part.env == _DATA and label else (part.env, *named)))

    return [task(part) for part in runs]


def _refuse_repeated_seeds(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> None:
    """Seeds are pooled to one sample, so each may be there once: a repeated run is no evidence, another setting no seed."""
    for task, part, other in _pooled(runs, tasks):
        seeds = [{one.run.seeds[member] for member in one.members} for one in (part, other)]
        if both := sorted(seeds[0] & seeds[1]):
            where, keys = f"{part.run.path} and {other.run.path}", _different(part, other)
            how = f"with other settings ({', '.join(keys[:5])}); give each its own NAME=" if keys else "alike; leave one out"
            raise ConfigError(f"{part.group}: seed {both[0]} on {task} is both in {where}, {how}")


def _different(part: ScoredRun, other: ScoredRun) -> list[str]:
    """The settings in which two runs differ though they should not."""
    keys = {*part.settings, *other.settings}
    return sorted(key for key in keys if part.settings.get(key) != other.settings.get(key))


def _pooled(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> Iterator[tuple[str, ScoredRun, ScoredRun]]:
    """Each run of a group and task with every later one."""
    for number, part in enumerate(runs):
        for later in range(number + 1, len(runs)):
            if (runs[later].group, tasks[later]) == (part.group, tasks[number]):
                yield tasks[number], part, runs[later]


def _own_warnings(runs: Sequence[ScoredRun], choice: Choice) -> Iterator[str]:
    """What is to be known of single runs."""
    if choice.by == "best":
        yield "the best evaluation of each run is compared, which is optimistic: it was chosen by the returns that it reports"
    states = {"running": "has not finished", "DivergedError": "diverged in every member", "StoppedBySignal": "was stopped"}
    for part in runs:
        run, status = part.run, part.run.record["status"]
        if status != "finished":
            first = int(part.reached[part.reached > 0].min(initial=part.steps))
            after = f"{first:,} to {part.steps:,}" if first < part.steps else f"{part.steps:,}"
            yield f"{run.path}: {states.get(status, f'failed ({status})')}; its scores are those after {after} steps"
        missing = int(np.isnan(part.values).sum())
        if missing:
            yield f"{part.group}: {missing} of {len(part.members)} members of {run.path} have no score, which may flatter it"
        for event, why in (("diverged", "diverged"), ("stopped", "stopped early")):
            if count := len(_members_with(run, event).intersection(part.members)):
                who = f"{count} of {len(part.members)} members of {run.path}"
                yield f"{part.group}: {who} {why}; their {choice.by} evaluation counts"
        yield from _cut_short(part, choice)


def _cut_short(part: ScoredRun, choice: Choice) -> Iterator[str]:
    """Whose last value is not of the end: its file of metrics was cut, or what was measured there is no finite number."""
    if not choice.metric.startswith(("eval/", "validation/")):
        return
    ended = _members_with(part.run, "diverged") | _members_with(part.run, "stopped")
    last = part.steps if part.run.end is None else part.run.end
    early = {member: int(at) for member, at in zip(part.members, part.reached, strict=True) if 0 < at < last}
    there = _measured_at(part.run, choice.metric.partition("/")[0], last)
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
            who = f"{len(members)} of {len(part.members)} members of {part.run.path}"
            yield f"{part.group}: {who} have no {what} at step {last:,}, only up to {at}: {why}"


def _measured_at(run: LoggedRun, kind: str, position: int) -> set[int]:
    """The members of which anything of a kind, such as `eval`, was measured at a position."""
    columns = [run.history[name] for name in run.metrics(f"{kind}/")]
    written = (run.positions == position) & ~np.isnan(columns).all(axis=0)
    return set(run.history["member"][written].tolist())


def _members_with(run: LoggedRun, event: str) -> set[int]:
    events = run.history.get("event")
    return set() if events is None else set(run.history["member"][events == event].tolist())


def _unequal(runs: Sequence[ScoredRun], tasks: Sequence[str], choice: Choice) -> Iterator[str]:
    """In what the runs of a task differ that ought to be equal."""
    for task in dict.fromkeys(tasks):
        here = [part for part, own in zip(runs, tasks, strict=True) if own == task]
        yield from _trained_differently(task, here)
        episodes = {part: str(part.run.config.final_rhythm.eval_episodes) for part in here}
        yield from _differing(task, "evaluated in unequal numbers of episodes", episodes)
        yield from _differing(task, "environments are made differently", {part: part.making for part in here})
        if choice.by == "best":
            how = "the best of unequal numbers of evaluations, and the best of more is higher"
            yield from _differing(task, how, {part: str(part.evaluations) for part in here})
        if len({part.run.fingerprint for part in here}) > 1:
            data = {part: f"{part.run.data} {(part.run.fingerprint or '')[:6]}".strip() or "none" for part in here}
            yield from _differing(task, "trained on different data", data)
    told: set[tuple[str, str]] = set()
    for task, part, other in _pooled(runs, tasks):
        if (keys := _different(part, other)) and (part.group, task) not in told:
            told.add((part.group, task))
            yield f"{part.group}: runs on {task} are pooled though they differ in {', '.join(keys[:5])}"


def _trained_differently(task: str, here: Sequence[ScoredRun]) -> Iterator[str]:
    """Unequal numbers of steps, and steps of another kind: one in the environment is worth more than one on data."""
    kinds = {tuple(part.training) for part in here}
    if kinds in ({(_OFFLINE,)}, {(_ONLINE,)}):
        yield from _differing(task, "trained for unequal numbers of steps", {part: f"{part.steps:,}" for part in here})
        return
    how = "trained in different ways" if len(kinds) > 1 else "trained for unequal numbers of steps"
    told = {part: ", then ".join(f"{count:,} {what}" for what, count in part.training.items()) for part in here}
    yield from _differing(task, how, told)


def _continued(runs: Sequence[ScoredRun]) -> Iterator[str]:
    """Where a group went on from policies of another, by settings, seeds and steps: then they are not independent."""
    for part in runs:
        begun = part.run.config.finetune and part.run.config.finetune.from_step
        for other in runs:
            seeds = {part.run.seeds[member] for member in part.members} & {
                other.run.seeds[member] for member in other.members
            }
            if not (begun and seeds and other.group != part.group and other.run.end == begun):
                continue
            if part.run.learns_as(other.run):
                yield (
                    f"{part.group}: seems to go on from {other.group} (the same settings, data, seeds, steps); they are "
                    "compared as if independent, so a gain that every seed has may stay unseen: the report shows the switch"
                )


def _differing(task: str, how: str, values: Mapping[ScoredRun, str]) -> Iterator[str]:
    """One line if not all runs of a task have the same value, with those of each group."""
    if len(set(values.values())) > 1:
        by_group: dict[str, dict[str, None]] = defaultdict(dict)
        for part, value in values.items():
            by_group[part.group][value] = None
        shown = "; ".join(f"{group} {' and '.join(found)}" for group, found in by_group.items())
        yield f"{task}: {how}: {shown}"


def _lucky(runs: Sequence[ScoredRun], tasks: Sequence[str], choice: Choice) -> Iterator[str]:
    """Where the spread over seeds is mostly that of the few episodes in which each was evaluated."""
    if (choice.metric, choice.by) != (RETURN, "last"):
        return
    found: dict[str, dict[str, list[ScoredRun]]] = defaultdict(lambda: defaultdict(list))
    for part, task in zip(runs, tasks, strict=True):
        found[task][part.group].append(part)
    for task, groups in found.items():
        shares = {name: _share_of_luck(parts) for name, parts in groups.items()}
        if lucky := {name: share for name, share in shares.items() if share is not None and share > _MOSTLY}:
            counts = sorted({part.run.config.final_rhythm.eval_episodes for name in lucky for part in groups[name]})
            told = ", ".join(f"{share:.0%} of {name}" for name, share in lucky.items())
            few = f"{' and '.join(map(str, counts))} evaluation episodes, of which each seed has its own ({told})"
            yield f"{task}: most of the spread over seeds is luck of {few}; {_way_out(groups.values(), counts[-1])}"


def _way_out(groups: Iterable[Sequence[ScoredRun]], episodes: int) -> str:
    """How to compare with less luck of episodes than so many leave."""
    if any(len(parts) > 1 for parts in groups):
        return "more eval_episodes tell as much as more seeds would"
    more = max(100, 4 * episodes)
    return f"compare what `rl-training evaluate RUN --episodes {more} --seed 1 --json > NAME.json` gives: equal episodes"


def _share_of_luck(parts: Sequence[ScoredRun]) -> float | None:
    """The share of a variance over seeds that is expected of their episodes alone; None where either is not known."""
    values, noise = np.concatenate([part.values for part in parts]), np.concatenate([part.noise for part in parts])
    known = ~np.isnan(values + noise)
    if known.sum() < _SEEDS_WITH_SPREAD or (spread := values[known].var(ddof=1)) == 0.0:
        return None
    return min(1.0, float(noise[known].mean() / spread))
