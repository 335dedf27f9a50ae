"""Groups of scores that are compared, and what must be known of where they come from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rl_training.analysis.aggregates import Values, strata
from rl_training.analysis.logged_run import RETURN
from rl_training.analysis.scores.tasks import Source
from rl_training.config.sweep import value_text
from rl_training.errors import ConfigError
from rl_training.output import printable

TASK = "scores"  # what the one task is called where nobody named it
LAST_GOOD = "their last good policies count"  # members that diverged, here and in `evaluate`

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
    seed: Any  # None if each member had its own
    environment: Any
    means: Values  # one for each member
    noise: Values  # the variance of each mean that its episodes explain, NaN where it is not known


class Gains(NamedTuple):
    """How much higher each seed of a group scored on a task than in another group, from whose policies it went on."""

    first: str
    second: str
    task: str
    values: Values


@dataclass
class Groups:
    """Scores by group and task, and what must be known of where they come from."""

    scores: Scored  # NaN for a member that diverged before it had any
    warnings: list[str] = field(default_factory=list)
    given: frozenset[str] = frozenset()  # groups of plain scores, whose unit nobody told
    any_runs: bool = False
    by_data: bool = False  # of runs without an environment alone, whose tasks are their data
    left_out: list[str] = field(default_factory=list)  # the warnings that say which groups have no score
    reservations: list[str] = field(default_factory=list)  # sentences without which a verdict would claim too much
    sources: list[Source] = field(default_factory=list)  # of runs and evaluations
    tasks: list[str] = field(default_factory=list)  # that of each source
    evaluated: list[Evaluated] = field(default_factory=list)  # of files of evaluations, and of runs beside files
    gains: list[Gains] = field(default_factory=list)  # of groups of runs that went on from others
    lucky: bool = False  # whether the spread over seeds is mostly luck of episodes
    origins: dict[str, Path] = field(default_factory=dict)  # the file of each group, or its first run

    @property
    def from_files(self) -> list[str]:
        """The groups that were read from files of scores."""
        return [name for name, path in self.origins.items() if is_score_file(str(path)) and name in self.scores]


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


def is_score_file(argument: str) -> bool:
    """Return whether an argument means a file of scores, by its name, and not a run."""
    path = Path(argument)
    return path.suffix.lower() in (".json", ".csv") and not path.is_dir() and ("=" not in argument or path.exists())


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


def unlike_environments(evaluated: Sequence[Evaluated]) -> Iterator[str]:
    """Yield the tasks on which evaluations tell of more than one environment."""
    for task in dict.fromkeys(one.task for one in evaluated):
        if len({str(one.environment) for one in evaluated if one.task == task}) > 1:
            yield task


def all_diverged(group: str) -> str:
    """Return the reservation for a group without a member that lasted."""
    return f"Every member of {group} diverged, so its scores are of policies before that."


def combination_name(group: str, knobs: Any) -> str:
    """Return the name of a group for one combination of its sweep; knobs that are no numbers name nothing."""
    named = knobs.items() if isinstance(knobs, Mapping) else ()
    return " ".join([group, *(f"{knob}={value_text(value)}" for knob, value in named if isinstance(value, int | float))])
