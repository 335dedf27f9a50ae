"""The scores of runs: one for each member, by task, with a warning for everything that makes a comparison unfair."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rl_training.analysis.aggregates import Values
from rl_training.analysis.logged_run import DISTANCE, RETURN, RETURN_STD, Curve, LoggedRun
from rl_training.analysis.scores.directions import refuse_unlike_scores
from rl_training.analysis.scores.fairness import continued, unequal, warnings_of_runs
from rl_training.analysis.scores.groups import (
    Choice,
    Evaluated,
    Groups,
    Scored,
    all_diverged,
    combination_name,
    differently_made,
)
from rl_training.analysis.scores.paired import gains_of
from rl_training.analysis.scores.scored_run import ScoredRun, different, is_gone, load_run, pooled
from rl_training.analysis.scores.tasks import DATA
from rl_training.config.shared_knobs import CriticKnobs
from rl_training.errors import ConfigError, DivergedError, suggested
from rl_training.registry import REGISTRY

_OF_CRITICS = ("q_", "v_", "advantage_", "critic_", "value", "start_", "possible_", "reached_")  # what only critics have


def scored_runs(arguments: Sequence[tuple[str | None, Sequence[Path]]], choice: Choice) -> list[ScoredRun]:
    """Return the members of named or unnamed lists of run directories with their scores, by the groups that they form."""
    grouped = _grouped(arguments)
    _refuse_lacking([run for _, run in grouped], choice.metric)
    refuse_unlike_scores([run for _, run in grouped], choice.metric)
    return [part for group, run in grouped for part in _scored(group, run, choice)]


def groups_of_runs(runs: Sequence[ScoredRun], tasks: Sequence[str], choice: Choice) -> Groups:
    """Return the groups of some runs, each with its task, and what must be known of them."""
    scores: Scored = {}
    for part, task in zip(runs, tasks, strict=True):
        own, counted = scores.setdefault(part.group, {}), part.counted(choice.metric)
        if len(counted):
            own[task] = np.concatenate([own.get(task, np.zeros(0)), counted])
    empty = [name for name, found in scores.items() if all(np.isnan(values).all() for values in found.values())]
    if len(empty) == len(scores):
        raise ConfigError(f"{empty[0]}: no member has any {choice.metric}, so there is nothing to compare")
    _refuse_repeated_seeds(runs, tasks)
    left_out = [f"{name}: no member has any {choice.metric}{_lost(name, runs)}, so it is left out" for name in empty]
    lasting = [(part, task) for part, task in zip(runs, tasks, strict=True) if part.group not in empty]
    runs, tasks = [part for part, _ in lasting], [task for _, task in lasting]
    found = [*left_out, *warnings_of_runs(runs, choice), *unequal(runs, tasks, choice), *continued(runs)]
    return Groups(
        {name: own for name, own in scores.items() if name not in empty},
        list(dict.fromkeys(found)),
        any_runs=True,
        by_data=all(part.env == DATA for part in runs),
        left_out=left_out,
        reservations=[*differently_made(_unlike_environments(runs, tasks)), *_all_diverged(runs)],
        sources=[part.source for part in runs],
        tasks=list(tasks),
        evaluated=_evaluated(runs, tasks) if choice.metric == RETURN else [],
        gains=gains_of(runs, tasks),
        origins={part.group: part.run.path.resolve() for part in reversed(runs)},
    )


def _evaluated(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> list[Evaluated]:
    """How runs were evaluated while they trained, each member in episodes of its own."""
    return [
        Evaluated(part.group, task, part.run.config.final_rhythm.eval_episodes, None, part.making, part.values, part.noise)
        for part, task in zip(runs, tasks, strict=True)
    ]


def _unlike_environments(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> Iterator[str]:
    """The tasks whose runs were not all evaluated in the same environment."""
    for task in dict.fromkeys(tasks):
        if len({part.making for part, own in zip(runs, tasks, strict=True) if own == task}) > 1:
            yield task


def _all_diverged(runs: Sequence[ScoredRun]) -> Iterator[str]:
    """A reservation for every group without a member that lasted."""
    for group in dict.fromkeys(part.group for part in runs):
        own = [part for part in runs if part.group == group]
        if all(part.diverged.issuperset(part.members) for part in own):
            yield all_diverged(group)


def _lost(group: str, runs: Sequence[ScoredRun]) -> str:
    """How many members of a group diverged, if any did."""
    own = [part for part in runs if part.group == group]
    count = sum(len(part.diverged) for part in own)
    return f" ({count} of {sum(len(part.members) for part in own)} diverged)" if count else ""


def _grouped(arguments: Sequence[tuple[str | None, Sequence[Path]]]) -> list[tuple[str, LoggedRun]]:
    """Every run with the name of its group; unnamed ones are called by algorithm, or by directory if that is not unique."""
    piles: list[tuple[tuple[str, str, str], list[LoggedRun]]] = []
    for name, paths in arguments:
        by_algo: dict[str, list[LoggedRun]] = {}
        for run in map(load_run, paths):
            by_algo.setdefault(_learner(run) if name is None else run.config.algo, []).append(run)
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


def _learner(run: LoggedRun) -> str:
    """What unnamed runs are called by: their algorithm, and whether an offline one went on in an environment."""
    algo = run.config.algo
    return algo if run.switch is None or REGISTRY[algo].online else f"{algo} finetuned"


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
        go_on = f"its process is gone; go on with `{suggested('resume', run.path, imports=run.config.env_imports)}`"
        wait = go_on if is_gone(run) else "wait for its first evaluation"
        raise ConfigError(f"{run.path}: has no {choice.metric} yet, and has not finished; {wait}")
    if choice.metric in run.history and not _is_measured(run, choice.metric):
        raise ConfigError(f"--metric {choice.metric}: is no measured number; there are {', '.join(run.metrics())}")
    curve = _no_curve(run) if _failed_at_once(run, choice) else run.curve(choice.metric)
    values = curve.last() if choice.by == "last" else curve.best(lower=choice.lower_is_better)
    members, noise = list(run.seeds), _noise(run)
    for knobs in run.config.combinations:
        own = [place for place, member in enumerate(members) if run.config.member_knobs[member] == knobs]
        steps, count = int(curve.positions[-1]), len(curve.positions)
        reached = np.where(np.isnan(curve.values), 0, curve.positions[:, None]).max(axis=0)
        name, chosen = combination_name(group, knobs), [members[place] for place in own]
        yield ScoredRun(name, run, chosen, values[own], steps, count, reached[own], noise[own])


def _failed_at_once(run: LoggedRun, choice: Choice) -> bool:
    """Whether a run diverged before it had any score: a result of its algorithm, not a run that cannot be compared."""
    failed = run.record["status"] == DivergedError.__name__ and run.config.final_env_id is not None
    return failed and choice.metric == RETURN and choice.metric not in run.history


def _no_curve(run: LoggedRun) -> Curve:
    """No value of any member, at the last position of a run."""
    return Curve(run.positions[-1:] if len(run.positions) else np.zeros(1, np.int64), np.full((1, len(run.seeds)), np.nan))


def _noise(run: LoggedRun) -> Values:
    """The variance of each member's last mean return over its episodes."""
    episodes = run.config.final_rhythm.eval_episodes
    if RETURN_STD not in run.history or episodes < 2:
        return np.full(len(run.seeds), np.nan)
    return run.curve(RETURN_STD).last() ** 2 / (episodes - 1)  # the deviation of all episodes divides by their number


def _is_measured(run: LoggedRun, metric: str) -> bool:
    """Whether a column is a number that was measured, not a counter nor text."""
    return metric in run.metrics() and run.history[metric].dtype.kind != "U"


def _refuse_repeated_seeds(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> None:
    """Seeds are pooled to one sample, so each may be there once: a repeated run is no evidence, another setting no seed."""
    for task, part, other in pooled(runs, tasks):
        seeds = [{one.run.seeds[member] for member in one.members} for one in (part, other)]
        if both := sorted(seeds[0] & seeds[1]):
            where, keys = f"{part.run.path} and {other.run.path}", different(part, other)
            how = f"with other settings ({', '.join(keys[:5])}); give each its own NAME=" if keys else "alike; leave one out"
            raise ConfigError(f"{part.group}: seed {both[0]} on {task} is both in {where}, {how}")
