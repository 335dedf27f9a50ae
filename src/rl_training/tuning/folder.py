"""The directory of a study: `study.json` (what is searched, and how), the journal of trials, and a run per population."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config.base import flat
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.run_record import run_status
from rl_training.registry import get_spec
from rl_training.storage import canonical_json, parse_json, replace_file
from rl_training.tuning.scores import Rule, check_rule
from rl_training.tuning.space import Space, make_space
from rl_training.tuning.study import JOURNAL, Sampler, Study, database, journal

STUDY_FILE = "study.json"
_BEGUN = ("run.lock", JOURNAL, "journal.lock", "slurm")  # what a study that was killed before its first file may leave
_FORMAT = 1
_FREE = ("device", "workers", "env_timeout", "env_imports", "log", "keep_checkpoints", "algo_kwargs.max_dataset_bytes")


@dataclass(frozen=True)
class Task:
    """What a study searches and how: all that its trials depend on."""

    name: str  # of the config, as it was given
    config: RunConfig[Any]
    space: Space
    rule: Rule = field(default_factory=Rule)
    sampler: Sampler = "tpe"
    seed: int = 0
    batch: int = 16
    pruning: Mapping[str, Any] | None = None
    storage: str | None = None  # the URL of a database; None is a journal in the directory
    options: tuple[str, ...] = ()  # of `rl-training train` that make the config of `name`
    population: int | None = None  # trials of one population at most; None: all of a batch

    def check(self) -> None:
        """Raise a ConfigError for what cannot work together."""
        if self.config.sweep or self.config.trials or self.config.pruning:
            raise ConfigError(f"{self.name}: has several settings already; leave out sweep, trials and pruning")
        if get_spec(self.config.algo).takes_data and not self.config.algo_kwargs.dataset:
            raise ConfigError(f"{self.name}: needs data to learn from: pass --dataset, or a recipe in a config file")
        check_rule(self.rule, self.config)
        if self.rule.also is not None and self.pruning is not None:
            raise ConfigError("--prune stops trials by one number; leave out --also")
        if self.pruning is not None and (self.config.early_stopping or self.config.finetune):
            raise ConfigError("--prune excludes `early_stopping` and `finetune` of the config")
        if self.sampler == "nsga2" and self.rule.also is None:
            raise ConfigError("--sampler nsga2 is for two numbers: pass --also spread or --also action_distance")

    def without_effect(self) -> list[str]:
        """Return a line for every option that does nothing with this config."""
        found = []
        if self.pruning is not None and self.config.eval_interval >= self.config.total_timesteps:
            found.append("--prune does nothing: there is one evaluation, at the end; lower eval_interval")
        if self.rule.statistic == "lower" and len(self.config.seeds or (0,)) == 1:
            found.append("--score lower does nothing with one seed, which has no standard error; give more --seeds")
        if self.rule.also == self.config.select_by == "action_distance":
            found.append("--also action_distance does nothing: it is the score already (select_by=action_distance)")
        return found

    def record(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "config": self.config.record(),
            "space": [{name: knob} for name, knob in self.space.plain().items()],  # in order, which a JSON object has not
            "score": asdict(self.rule),
            "search": {
                **{"sampler": self.sampler, "seed": self.seed, "storage": self.storage},
                **{"batch": self.batch, "population": self.population},
            },
            "pruning": None if self.pruning is None else dict(self.pruning),
            "options": list(self.options),
        }


class StudyFolder:
    """A directory that holds a study."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.populations = self.path / "populations"

    @staticmethod
    def is_one(path: str | Path) -> bool:
        """Whether a directory holds a study."""
        return (Path(path) / STUDY_FILE).is_file()

    def refuse_foreign(self) -> None:
        """Raise a ConfigError, having touched nothing, for a directory with files of something else and no study."""
        if self.is_one(self.path) or not self.path.is_dir():
            return
        if run_status(self.path) is not None:
            raise ConfigError(f"{self.path}: holds a training run and no study; choose another --run-dir")
        names = sorted(entry.name for entry in self.path.iterdir())
        foreign = [name for name in names if name not in _BEGUN and not name.startswith(f".{STUDY_FILE}.tmp-")]
        if foreign:
            shown = ", ".join(foreign[:3]) + (" and more" if len(foreign) > 3 else "")
            raise ConfigError(f"{self.path}: holds {shown} and no study; choose another --run-dir")

    def read(self) -> Task:
        """Return the task of the study; nothing in its file is executed."""
        where = self.path / STUDY_FILE
        try:
            found = parse_json(where.read_bytes(), str(where))
        except OSError:
            raise CheckpointError(f"{self.path}: holds no study (no {STUDY_FILE}); pass the --run-dir of a `tune`") from None
        try:
            if found["format"] != _FORMAT:
                raise CheckpointError(
                    f"{where}: has format {found['format']!r}, not {_FORMAT}; use the version that wrote it"
                )
            config = make_config(found["config"], str(where))
            entries = {name: entry for part in found["space"] for name, entry in part.items()}
            space = make_space(entries, config, str(where))
            more = {"pruning": found["pruning"], "options": tuple(found["options"]), **found["search"]}
            return Task(found["name"], config, space, Rule(**found["score"]), **more)
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{where}: is damaged ({error!r})") from None

    def begin(self, task: Task) -> Study:
        """Return the trials of a new study, or of the one here after checking that it is the same."""
        if self.is_one(self.path):
            if changes := _differences(self.read().record(), task.record()):
                shown = "; ".join(f"{key} was {old}, is {new}" for key, old, new in changes[:5])
                raise ConfigError(f"{self.path}: holds another study: {shown}; choose another --run-dir")
            return self.open(task, write=True)
        study = self.open(task, write=True)
        if study.trials:
            where = task.storage or self.path / JOURNAL
            name = self.path.resolve().name
            raise ConfigError(f"{where}: already holds a study {name!r} of another directory; rename this one")
        replace_file(self.path / STUDY_FILE, canonical_json(task.record()))
        return study

    def open(self, task: Task, *, write: bool = False) -> Study:
        """Return the trials."""
        file = self.path / JOURNAL
        if task.storage is None and not write and not file.exists():
            raise CheckpointError(f"{file}: is missing, so nothing is known of the trials")
        storage = journal(file, write=write) if task.storage is None else database(task.storage)
        named = storage, self.path.resolve().name, task.space, task.sampler, task.seed, task.rule.directions
        return Study(*named, write=write)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The settings in which two studies differ, except those that change no result."""
    before, after = flat(_numbered(old)), flat(_numbered(new))
    free = {"options", *(f"config.{key}" for key in _FREE)}  # the config that the options made is compared
    keys = [key for key in {**before, **after} if key not in free and before.get(key) != after.get(key)]
    return [(key, json.dumps(before.get(key)), json.dumps(after.get(key))) for key in sorted(keys)]


def _numbered(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the parts of its dataset by number, so that a difference in one setting is named alone."""
    kwargs = record["config"]["algo_kwargs"]
    parts = {"dataset": {str(place): part for place, part in enumerate(kwargs.get("dataset") or ())}}
    return {**record, "config": {**record["config"], "algo_kwargs": {**kwargs, **parts}}}
