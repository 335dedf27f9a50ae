"""What is compared: the arguments of the command line, or what is passed in Python, read into groups of scores."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.analysis.aggregates import Values
from rl_training.analysis.logged_run import RETURN, runs_in, why_no_run
from rl_training.analysis.scores.groups import (
    Choice,
    Gains,
    Groups,
    differently_made,
    is_score_file,
    scored,
    unequal_evaluations,
    unlike_environments,
)
from rl_training.analysis.scores.luck import mostly_luck
from rl_training.analysis.scores.run_scores import groups_of_runs, scored_runs
from rl_training.analysis.scores.score_files import read_score_file
from rl_training.analysis.scores.scored_run import SWITCH
from rl_training.analysis.scores.tasks import different_data, other_names, task_names, trained_differently
from rl_training.errors import CheckpointError, ConfigError
from rl_training.output import printable


def read_groups(sources: Any, choice: Choice) -> Groups:
    """Return the groups of a mapping (name -> scores, tasks with scores, or paths), or of arguments as in the shell."""
    found = _read(sources, choice)
    _call_tasks_alike(found)
    found.warnings += [*trained_differently(found.sources, found.tasks), *different_data(found.sources, found.tasks)]
    if found.from_files:
        found.warnings += unequal_evaluations(found.evaluated)
        unlike = differently_made(unlike_environments(found.evaluated))
        found.reservations = list(dict.fromkeys((*found.reservations, *unlike)))  # of runs alone it has been told
    if (choice.metric, choice.by) == (RETURN, "last"):
        luck = list(mostly_luck(found.evaluated))
        found.warnings += luck
        found.lucky = bool(luck)
    if not found.any_runs and (choice.metric, choice.by) != (RETURN, "last"):
        raise ConfigError("a metric, and the last or best evaluation, can be chosen of runs; these are scores already")
    return found


def _call_tasks_alike(found: Groups) -> None:
    """Let plain scores mean a task of runs or evaluations by its data, too."""
    names = other_names(found.sources, found.tasks)
    for group in found.given & found.scores.keys():
        tasks = found.scores[group]
        found.scores[group] = {names.get(task, task) if names.get(task) not in tasks else task: tasks[task] for task in tasks}


def _read(sources: Any, choice: Choice) -> Groups:
    if isinstance(sources, Mapping):
        given = {str(name): value for name, value in sources.items() if not _is_path(value)}
        named = [(str(name), _parts(value)) for name, value in sources.items() if _is_path(value)]
        plain = Groups(scored(given, "the scores"), given=frozenset(map(printable, given)))
        found = _merged([plain, *_read_named(named, choice)])
        given_names = [printable(str(name)) for name in sources]
        first = [name for name in given_names if name in found.scores]  # a sweep has other names than it was given
        found.scores = {name: found.scores[name] for name in dict.fromkeys((*first, *found.scores))}
        return found
    arguments = [sources] if isinstance(sources, str | Path) else sources
    if not isinstance(arguments, Sequence) or not all(isinstance(one, str | Path) for one in arguments):
        raise ConfigError("groups must be a mapping from names to scores or runs, or a list of paths")
    asked = [_named(str(argument)) for argument in arguments]
    found = _merged(_read_named(asked, choice))
    places = {path.resolve(): place for place, (_, parts) in enumerate(asked) for part in parts for path in _places(part)}
    order = sorted(found.scores, key=lambda name: places[found.origins[name]])
    found.scores = {name: found.scores[name] for name in order}  # runs are read before files
    return found


def _places(part: str) -> list[Path]:
    return [Path(part)] if is_score_file(part) else _paths(part)


def _read_named(named: Sequence[tuple[str | None, list[str]]], choice: Choice) -> list[Groups]:
    """The groups of runs, then those of files of scores, each with its name if it has one."""
    runs: list[tuple[str | None, list[Path]]] = []
    files: list[tuple[str | None, list[Groups]]] = []
    for name, parts in named:
        paths = [Path(part) for part in parts if is_score_file(part)]
        if paths and len(paths) < len(parts):
            raise ConfigError(f"{name}: names runs and files of scores; a group is one or the other")
        if paths:
            files.append((name, [read_score_file(path) if name is None else _called(name, path) for path in paths]))
        else:
            runs.append((name, [path for part in parts for path in _paths(part)]))
    members = scored_runs(runs, choice)
    sources = [source for _, read in files for part in read for source in part.sources]
    tasks = task_names([*(part.source for part in members), *sources])  # of all together: each may have a set of its own
    of_files = iter(tasks[len(members) :])
    found = [groups_of_runs(members, tasks[: len(members)], choice)] if members else []
    for name, read in files:
        own = [_on_tasks(part, [next(of_files) for _ in part.sources]) for part in read]
        found += own if name is None else [_joined(name, own)]
    return found


def _called(name: str, path: Path) -> Groups:
    """The one group of a file, under another name."""
    found = read_score_file(path)
    if len(found.scores) != 1:
        own = f"has the groups {', '.join(found.scores)}; pass it without a name" if found.scores else "has no group"
        raise ConfigError(f"{path}: {own}")
    return replace(
        found,
        scores=dict(zip([name], found.scores.values(), strict=True)),
        given=frozenset([printable(name)] if found.given else []),
        sources=[one._replace(group=name) for one in found.sources],
        evaluated=[one._replace(group=name) for one in found.evaluated],
        origins=dict.fromkeys([name], path.resolve()),
    )


def _on_tasks(part: Groups, tasks: list[str]) -> Groups:
    """An evaluation, each group of which has one task, with what its tasks are called; plain scores as they are."""
    if not part.sources:
        return part
    values = [next(iter(own.values())) for own in part.scores.values()]
    return replace(
        part,
        scores={name: {task: own} for name, task, own in zip(part.scores, tasks, values, strict=True)},
        tasks=tasks,
        evaluated=[one._replace(task=task) for one, task in zip(part.evaluated, tasks, strict=True)],
    )


def _joined(name: str, parts: Sequence[Groups]) -> Groups:
    """One group of files that have a group each, such as evaluations on several tasks."""
    tasks: dict[str, Values] = {}
    for part in parts:
        for task, values in part.scores[name].items():
            if task in tasks:
                old = "" if all(one.told for one in part.sources) else ", and this one does not tell its data: evaluate again"
                raise ConfigError(f"{name}: {task} is in {part.origins[name]} too; a group has one file for each task{old}")
            tasks[task] = values
    joined = _merged([replace(part, scores={str(place): {}}) for place, part in enumerate(parts)])
    return replace(joined, scores={name: tasks}, origins={name: parts[0].origins[name]})


def _merged(parts: Sequence[Groups]) -> Groups:
    """Join groups; their names and tasks may come from files and folders, and are made fit to be printed."""
    names = [printable(name) for part in parts for name in part.scores]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        own = (
            "NAME=PATH, or in the file of scores that has both"
            if any(part.scores and not part.any_runs for part in parts)
            else "NAME=PATH"
        )
        raise ConfigError(f"two groups are called {repeated[0]!r}; give each its own name: {own}")
    return Groups(
        {printable(name): _printable_tasks(tasks) for part in parts for name, tasks in part.scores.items()},
        [warning for part in parts for warning in part.warnings],
        given=frozenset().union(*(part.given for part in parts)),
        any_runs=any(part.any_runs for part in parts),
        by_data=all(part.by_data for part in parts if part.scores),
        left_out=[told for part in parts for told in part.left_out],
        reservations=[told for part in parts for told in part.reservations],
        sources=[
            one._replace(group=printable(one.group), data=printable(one.data)) for part in parts for one in part.sources
        ],
        tasks=[printable(task) for part in parts for task in part.tasks],
        evaluated=[one._replace(group=printable(one.group)) for part in parts for one in part.evaluated],
        gains=[_printable_gains(one) for part in parts for one in part.gains],
        origins={printable(name): path for part in parts for name, path in part.origins.items()},
    )


def _printable_tasks(tasks: dict[str, Values]) -> dict[str, Values]:
    found = {printable(task): scores for task, scores in tasks.items()}
    if len(found) < len(tasks):
        raise ConfigError(f"two tasks look the same once they are printed ({', '.join(found)}); give each its own name")
    return found


def _printable_gains(found: Gains) -> Gains:
    return Gains(printable(found.first), printable(found.second), printable(found.task), found.values)


def _is_path(value: Any) -> bool:
    paths = [value] if isinstance(value, str | Path) else value
    return isinstance(paths, Sequence) and bool(paths) and all(isinstance(one, str | Path) for one in paths)


def _named(argument: str) -> tuple[str | None, list[str]]:
    """The name that an argument gives, if any, and the paths that it means."""
    name, separator, rest = argument.partition("=")
    if not separator or Path(argument).exists():
        return None, [argument]
    if not name or not rest.strip(","):
        raise ConfigError(f"{argument!r}: must be a run directory, or NAME=PATH[,PATH...]")
    return name, [part for part in rest.split(",") if part]


def _parts(paths: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(part) for part in ([paths] if isinstance(paths, str | Path) else paths)]


def _paths(text: str) -> list[Path]:
    """The run directories of a path, a folder of runs or a glob; with `@switch` after it each as it went online."""
    at = SWITCH if text.endswith(SWITCH) and not Path(text).exists() else ""
    place = text.removesuffix(at)
    plain = Path(place).exists() or not glob.has_magic(place)
    found = [Path(place)] if plain else [Path(path) for path in sorted(glob.glob(place)) if Path(path).is_dir()]
    if not found:
        raise ConfigError(f"{text}: matches no directory")
    return [Path(f"{run}{at}") for path in found for run in _runs_in(path)]


def _runs_in(path: Path) -> list[Path]:
    """The path itself, or every run in a folder that is not one."""
    if (path / "manifest.json").exists():
        raise ConfigError(
            f"{path}: is a checkpoint or a dataset; whole runs are compared, so name a run directory (in Python run_dir)"
        )
    if not path.is_dir() or (path / "run.json").exists():
        return [path]
    if not (found := runs_in(path)):
        raise CheckpointError(f"{path}: {why_no_run(path)}")
    return found
