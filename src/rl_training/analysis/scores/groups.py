"""Groups of scores that are compared: what a user names on the command line or passes in Python, read into plain arrays."""

import csv
import glob
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rl_training.analysis.aggregates import Values, strata
from rl_training.analysis.logged_run import RETURN, runs_in, why_no_run
from rl_training.config.sweep import value_text
from rl_training.errors import CheckpointError, ConfigError, DatasetError
from rl_training.output import printable
from rl_training.storage import parse_json, read_regular_file

TASK = "scores"  # what the one task is called where nobody named it
_LARGEST_FILE = 100_000_000
_COLUMNS = {
    "group": ("group", "algo", "algorithm", "method"),
    "task": ("task", "env", "dataset"),
    "score": ("score", "value"),
}

Scored: TypeAlias = dict[str, dict[str, Values]]
"""group -> task -> one score for each run."""


@dataclass(frozen=True)
class Choice:
    """Which number of a run is its score."""

    metric: str = RETURN
    by: str = "last"
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        if self.by not in ("last", "best"):
            raise ConfigError(f"--by {self.by!r}: must be `last` or `best`")


class Evaluated(NamedTuple):
    """How the policies of a group were evaluated on a task, by runs or by `evaluate --json`; None where it is not told."""

    group: str
    task: str
    episodes: Any
    seed: Any
    environment: Any


@dataclass
class Groups:
    """Scores by group and task, and what must be known of where they come from."""

    scores: Scored
    warnings: list[str] = field(default_factory=list)
    of_runs: bool = False  # of runs and evaluations alone, so that the unit of the scores is known
    any_runs: bool = False
    by_data: bool = False  # of runs without an environment alone, whose tasks are their data
    left_out: list[str] = field(default_factory=list)  # the warnings that say which groups have no score
    reservations: list[str] = field(default_factory=list)  # sentences without which a verdict would claim too much
    evaluated: list[Evaluated] = field(default_factory=list)  # of files of evaluations, and of runs beside files
    lucky: bool = False  # whether the spread over seeds is mostly luck of episodes
    origins: dict[str, Path] = field(default_factory=dict)  # the file of each group, or its first run

    @property
    def from_files(self) -> list[str]:
        """The groups that were read from files of scores."""
        return [name for name, path in self.origins.items() if _is_score_file(str(path)) and name in self.scores]


def read_groups(sources: Any, choice: Choice) -> Groups:
    """Return the groups of a mapping (name -> scores, tasks with scores, or paths), or of arguments as in the shell."""
    found = _read(sources, choice)
    if found.from_files:
        found.warnings += unequal_evaluations(found.evaluated)
        unlike = differently_made(_unlike_environments(found.evaluated))
        found.reservations = list(dict.fromkeys((*found.reservations, *unlike)))  # of runs alone it has been told
    if not found.any_runs and (choice.metric, choice.by) != (RETURN, "last"):
        raise ConfigError("a metric, and the last or best evaluation, can be chosen of runs; these are scores already")
    return found


def _read(sources: Any, choice: Choice) -> Groups:
    if isinstance(sources, Mapping):
        given = {str(name): value for name, value in sources.items() if not _is_path(value)}
        named = [(str(name), _parts(value)) for name, value in sources.items() if _is_path(value)]
        found = _merged([Groups(scored(given, "the scores")), *_read_named(named, choice)])
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
    return [Path(part)] if _is_score_file(part) else _paths(part)


def _read_named(named: Sequence[tuple[str | None, list[str]]], choice: Choice) -> list[Groups]:
    """The groups of runs, then those of files of scores, each with its name if it has one."""
    runs: list[tuple[str | None, list[Path]]] = []
    files: list[Groups] = []
    for name, parts in named:
        scores = [Path(part) for part in parts if _is_score_file(part)]
        if scores and len(scores) < len(parts):
            raise ConfigError(f"{name}: names runs and files of scores; a group is one or the other")
        if scores:
            files.append(read_score_file(scores[0]) if name is None else _joined(name, scores))
        else:
            runs.append((name, [path for part in parts for path in _paths(part)]))
    return [_read_runs(runs, choice), *files]


def _joined(name: str, files: Sequence[Path]) -> Groups:
    """One group of files that have a group each, such as evaluations on several tasks."""
    parts = [read_score_file(path) for path in files]
    tasks: dict[str, Values] = {}
    for path, part in zip(files, parts, strict=True):
        if len(part.scores) != 1:
            own = f"has the groups {', '.join(part.scores)}; pass it without a name" if part.scores else "has no group"
            raise ConfigError(f"{path}: {own}")
        for task, values in next(iter(part.scores.values())).items():
            if task in tasks:
                raise ConfigError(f"{name}: {task} is in {path} too; a group has one file for each task")
            tasks[task] = values
    joined = _merged([replace(part, scores={str(path): {}}) for path, part in zip(files, parts, strict=True)])
    evaluated = [one._replace(group=name) for one in joined.evaluated]
    return replace(joined, scores={name: tasks}, evaluated=evaluated, origins={name: files[0].resolve()})


def _read_runs(named: Sequence[tuple[str | None, list[Path]]], choice: Choice) -> Groups:
    from rl_training.analysis.scores.run_scores import read_runs

    return read_runs(named, choice) if named else Groups({})


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
        all(part.of_runs for part in parts if part.scores),
        any(part.any_runs for part in parts),
        all(part.by_data for part in parts if part.scores),
        [told for part in parts for told in part.left_out],
        [told for part in parts for told in part.reservations],
        [one._replace(group=printable(one.group)) for part in parts for one in part.evaluated],
        any(part.lucky for part in parts),
        {printable(name): path for part in parts for name, path in part.origins.items()},
    )


def _printable_tasks(tasks: dict[str, Values]) -> dict[str, Values]:
    found = {printable(task): scores for task, scores in tasks.items()}
    if len(found) < len(tasks):
        raise ConfigError(f"two tasks look the same once they are printed ({', '.join(found)}); give each its own name")
    return found


def scored(values: Mapping[str, Any], where: str) -> Scored:
    """Return checked scores of `{group: {task: [scores]}}` or `{group: [scores]}`."""
    found: Scored = {}
    for name, tasks in values.items():
        by_task = tasks if isinstance(tasks, Mapping) else {TASK: tasks}
        if not by_task:
            raise ConfigError(f"{where}: {name} has no task")
        found[str(name)] = {str(task): _runs(scores, f"{where}: {name}, {task}") for task, scores in by_task.items()}
    return found


def _runs(scores: Any, where: str) -> Values:
    """The scores of one task."""
    try:
        (found,) = strata(scores)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValueError:
        raise ConfigError(f"{where}: must be a list of numbers, one for each run; give tasks their names") from None
    return found


def _is_path(value: Any) -> bool:
    paths = [value] if isinstance(value, str | Path) else value
    return isinstance(paths, Sequence) and bool(paths) and all(isinstance(one, str | Path) for one in paths)


def _is_score_file(argument: str) -> bool:
    path = Path(argument)
    return path.suffix.lower() in (".json", ".csv") and not path.is_dir() and ("=" not in argument or path.exists())


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
    """The run directories of a path, a folder of runs or a glob."""
    plain = Path(text).exists() or not glob.has_magic(text)
    found = [Path(text)] if plain else [Path(path) for path in sorted(glob.glob(text)) if Path(path).is_dir()]
    if not found:
        raise ConfigError(f"{text}: matches no directory")
    return [run for path in found for run in _runs_in(path)]


def _runs_in(path: Path) -> list[Path]:
    """The path itself, or every run in a folder that is not one."""
    if (path / "manifest.json").exists():
        raise ConfigError(f"{path}: is a checkpoint or a dataset; whole runs are compared, so name a run directory")
    if not path.is_dir() or (path / "run.json").exists():
        return [path]
    if not (found := runs_in(path)):
        raise CheckpointError(f"{path}: {why_no_run(path)}")
    return found


def read_score_file(path: Path) -> Groups:
    """Return the scores of a file: JSON `{group: {task: [scores]}}`, or CSV with the columns group, task and score.

    What `evaluate --json` prints is a file too: a group with the name of the file, and a score for each member; of a sweep a
    group for each combination.
    """
    data = read_regular_file(path.resolve(), _LARGEST_FILE, DatasetError)
    try:
        groups = _groups_in(data, path)
        return replace(groups, origins=dict.fromkeys(groups.scores, path.resolve()))
    except ConfigError as error:
        raise DatasetError(str(error)) from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path}: is not text") from None
    except csv.Error as error:
        raise DatasetError(f"{path}: is no table of scores: {error}") from None


def _groups_in(data: bytes, path: Path) -> Groups:
    """The groups in the bytes of a file."""
    if path.suffix.lower() != ".json":
        return Groups(scored(_table(data.decode("utf-8-sig"), path), str(path)))
    found = parse_json(data, str(path), DatasetError)
    return _evaluation(found, path) or Groups(scored(found, str(path)))


def _evaluation(found: Any, path: Path) -> Groups | None:
    """The scores of the members in what `evaluate --json` prints; None for any other content."""
    rows = found.get("members") if isinstance(found, Mapping) and "env_id" in found else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and "return_mean" in row for row in rows):
        return None
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_group.setdefault(combination_name(path.stem, row.get("knobs")), []).append(row)
    task = str(found["env_id"])
    scores = scored({name: {task: [row["return_mean"] for row in own]} for name, own in by_group.items()}, str(path))
    warnings = []
    for name, own in by_group.items():
        if lost := sum(row.get("diverged_at") is not None for row in own):
            warnings.append(f"{name}: {lost} of {len(own)} members in {path} diverged; their last good policies count")
    how = printable(task), found.get("episodes"), found.get("seed", "not told"), found.get("environment")
    return Groups(scores, warnings, of_runs=True, evaluated=[Evaluated(name, *how) for name in scores])


def unequal_evaluations(evaluated: Sequence[Evaluated]) -> Iterator[str]:
    """Return how the evaluations of a task differ that ought to be equal."""
    kinds = (
        ("unequal numbers of episodes", "episodes"),
        ("different episodes (--seed)", "seed"),
        ("environments that are made differently", "environment"),
    )
    unknown = {"seed": "each member its own"}  # what null means in such a file
    for task in dict.fromkeys(one.task for one in evaluated):
        for what, key in kinds:
            found = {one.group: getattr(one, key) for one in evaluated if one.task == task}
            if len({str(value) for value in found.values()}) > 1:
                none = unknown.get(key, "not told")
                shown = "; ".join(f"{name} {none if value is None else value}" for name, value in found.items())
                yield printable(f"{task}: evaluated in {what}: {shown}")


def differently_made(tasks: Iterable[str]) -> list[str]:
    """Return a reservation for every task whose environment is not the same for all groups."""
    why = "so what differs may be their rewards or dynamics and not the policies"
    return [f"On {task} the environments are made differently, {why}." for task in dict.fromkeys(tasks)]


def _unlike_environments(evaluated: Sequence[Evaluated]) -> Iterator[str]:
    """The tasks on which evaluations tell of more than one environment."""
    for task in dict.fromkeys(one.task for one in evaluated):
        if len({str(one.environment) for one in evaluated if one.task == task}) > 1:
            yield task


def combination_name(group: str, knobs: Any) -> str:
    """Return the name of a group for one combination of its sweep; knobs that are no numbers name nothing."""
    named = knobs.items() if isinstance(knobs, Mapping) else ()
    return " ".join([group, *(f"{knob}={value_text(value)}" for knob, value in named if isinstance(value, int | float))])


def _table(text: str, path: Path) -> dict[str, dict[str, list[str]]]:
    """The rows of a CSV file by group and task; a table without tasks has one."""
    rows = csv.DictReader(io.StringIO(text, newline=None), delimiter=_separator(text))
    header = {name.strip().lower(): name for name in rows.fieldnames or ()}
    columns = {what: next((header[name] for name in names if name in header), None) for what, names in _COLUMNS.items()}
    if columns["group"] is None or columns["score"] is None:
        raise ConfigError(
            f"{path}: needs the columns group and score (and task, where there are several); it has {[*header]}"
        )
    found: dict[str, dict[str, list[str]]] = {}
    for number, row in enumerate(rows, start=2):
        group, task, score = (row.get(columns[what] or "") or "" for what in ("group", "task", "score"))
        if not (group and score.strip()) or (columns["task"] and not task):
            raise ConfigError(f"{path}: line {number} has an empty field")
        if not _is_number(score):
            raise ConfigError(f"{path}: line {number}: {score.strip()!r} is no score, which must be a finite number")
        found.setdefault(group.strip(), {}).setdefault((task or TASK).strip(), []).append(score)
    if not found:
        raise ConfigError(f"{path}: has no rows")
    return found


def _separator(text: str) -> str:
    """What stands between the fields of the header most often."""
    header = text.splitlines()[0] if text else ""
    return max(",;\t", key=header.count)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
