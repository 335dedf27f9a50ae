"""The search: an Optuna study whose trials are asked for in batches and told when their population has ended.

A trial is written in one piece with its parameters, and these are a function of the study's seed, the number of the trial and
what was told before: they are sampled in a copy in memory, by a sampler that is made for this one trial. So a process that
is killed leaves either a whole trial or none, and the next one asks for the same.
"""

import fcntl
import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rl_training.errors import CheckpointError, ConfigError
from rl_training.faults import fault_point
from rl_training.tuning.space import Choices, Range, Space

Sampler = Literal["tpe", "random", "grid", "nsga2"]
JOURNAL = "journal.log"
_GRID_POINTS = 5  # of a range in a grid


def optuna() -> Any:
    """Return the library behind the search, or raise one line that names the extra."""
    try:
        import optuna as found
    except ImportError:
        raise ConfigError("a study of `rl-training tune` needs Optuna: pip install 'rl-training[sweep]'") from None
    found.logging.set_verbosity(found.logging.ERROR)
    warnings.filterwarnings("ignore", category=found.exceptions.ExperimentalWarning)
    return found


class _KernelLock:
    """A lock of the journal that the kernel releases when its holder dies; those of Optuna are files that outlive it."""

    def __init__(self, path: Path) -> None:
        self._path, self._handle = path, -1

    def acquire(self) -> bool:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        os.close(self._handle)


def journal(path: Path, *, write: bool) -> Any:
    """Return the storage in a file; a CheckpointError if it is damaged.

    What a killed writer left of its last line is removed before anything is added.
    """
    library = optuna()
    if write and path.exists():
        text = path.read_bytes()
        if not text.endswith(b"\n") and text:
            os.truncate(path, text.rfind(b"\n") + 1)
    lock = _KernelLock(path.with_suffix(".lock"))
    try:
        return library.storages.JournalStorage(library.storages.journal.JournalFileBackend(str(path), lock_obj=lock))
    except (ValueError, LookupError, TypeError) as error:  # a line that is no JSON, or none of a journal
        raise CheckpointError(f"{path}: is damaged ({error!r}); use another copy of the study") from None


def database(url: str) -> Any:
    """Return the storage in a database; a ConfigError if there is none at the URL."""
    library = optuna()
    try:
        return library.storages.RDBStorage(url)
    except Exception as error:  # of whichever driver the URL names
        raise ConfigError(f"--storage {url}: cannot be opened: {str(error).splitlines()[0]}") from None


class Study:
    """Trials, asked for and told; everything in it survives the process."""

    def __init__(
        self, storage: Any, name: str, space: Space, sampler: Sampler, seed: int, directions: Sequence[str], *, write: bool
    ) -> None:
        self._optuna = optuna()
        self.space, self._kind, self._seed, self._directions = space, sampler, seed, list(directions)
        self._distributions = {name: _distribution(self._optuna, knob) for name, knob in space.knobs.items()}
        self._storage = storage
        named = {"storage": storage, "study_name": name, "sampler": self._random(0)}
        if not write:  # creating writes also where the study is there already
            self.optuna_study = _present(self._optuna, named)
        else:
            self.optuna_study = self._optuna.create_study(**named, directions=self._directions, load_if_exists=True)

    @property
    def trials(self) -> list[Any]:
        """All trials, in the order of their numbers."""
        found: list[Any] = self.optuna_study.get_trials(deepcopy=False)
        return found

    @property
    def open_trials(self) -> list[Any]:
        """The trials that were asked for and not told yet: those of one batch."""
        return [trial for trial in self.trials if not trial.state.is_finished()]

    def ask_batch(self, size: int, first: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the trials of the batch under way, asking for those that are missing; or those of a new one.

        `first` are the parameters of trial 0.
        """
        under_way, known = self.open_trials, len(self.trials)
        begin = min((trial.user_attrs["begin"] for trial in under_way), default=known)
        size = next((trial.user_attrs["size"] for trial in under_way), size)
        given = [] if first is None else [dict(first)]
        if self._kind == "grid":
            given += [point for point in self._grid() if point != first]
        end = min(begin + size, len(given)) if self._kind == "grid" else begin + size
        copy = self._copy()
        for number in range(known, end):
            self._add(copy, number, {"begin": begin, "size": size}, given[number] if number < len(given) else None)
        return self.open_trials

    def _copy(self) -> Any:
        copy = self._optuna.create_study(directions=self._directions, sampler=self._random(0))
        copy.add_trials(self.trials)
        return copy

    def _add(self, copy: Any, number: int, notes: Mapping[str, Any], given: dict[str, Any] | None) -> None:
        """Sample a trial in the copy, and write it in one piece."""
        copy.sampler = self._sampler(number)
        if given is not None:
            copy.enqueue_trial(given)
        fault_point("tune:ask")
        asked = copy.ask(self._distributions)
        found = copy.get_trials(deepcopy=False)[asked.number]
        self.optuna_study.add_trial(
            self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.RUNNING,
                params=found.params,
                distributions=found.distributions,
                system_attrs=found.system_attrs,
                user_attrs=dict(notes),
            )
        )

    def _sampler(self, number: int) -> Any:
        """The sampler of one trial; its seed is that of the study and the trial's number."""
        samplers, seed = self._optuna.samplers, (self._seed * 1_000_003 + number) % 2**32
        if self._kind == "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        if self._kind == "nsga2":
            return samplers.NSGAIISampler(seed=seed)
        return self._random(seed)

    def _random(self, seed: int) -> Any:
        return self._optuna.samplers.RandomSampler(seed=seed)

    def _grid(self) -> list[dict[str, Any]]:
        """Every combination of the points of all knobs, the first knob slowest."""
        points = {name: _points(knob) for name, knob in self.space.knobs.items()}
        return [dict(zip(points, values, strict=True)) for values in itertools.product(*points.values())]

    def settings(self, trial: Any) -> dict[str, Any]:
        """Return the values of a trial's knobs."""
        return {name: self.space.value(name, trial.params[name]) for name in self.space.knobs}

    def tell(
        self,
        number: int,
        values: Sequence[float] | None,
        *,
        curve: Mapping[int, float] | None = None,
        pruned: bool = False,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the result of a trial: its values, or None if it failed; one that was told before stays as it is."""
        frozen = self.trials[number]
        if frozen.state.is_finished():
            return
        trial = self._optuna.trial.Trial(self.optuna_study, frozen._trial_id)
        for name, value in (notes or {}).items():
            trial.set_user_attr(name, value)
        if len(self._directions) == 1:
            for position in sorted(set(curve or {}) - set(frozen.intermediate_values)):
                trial.report((curve or {})[position], position)
        states = self._optuna.trial.TrialState
        state = states.FAIL if values is None else states.PRUNED if pruned else states.COMPLETE
        self.optuna_study.tell(number, None if pruned or values is None else list(values), state=state)


def _present(library: Any, named: Mapping[str, Any]) -> Any:
    """The study of a name in a storage, which is only read; a CheckpointError if it has another name there."""
    try:
        return library.load_study(**named)
    except KeyError:
        renamed = "if its directory was renamed, give it its old name"
        raise CheckpointError(f"the trials of study {named['study_name']!r} are not in its storage; {renamed}") from None


def _distribution(library: Any, knob: Range | Choices) -> Any:
    if isinstance(knob, Choices):
        return library.distributions.CategoricalDistribution(knob.labels)
    kind = library.distributions.IntDistribution if knob.whole else library.distributions.FloatDistribution
    return kind(knob.low, knob.high, log=knob.log)


def _points(knob: Range | Choices) -> list[Any]:
    """The values of a knob in a grid: evenly spaced ones of a range, or evenly in their logarithm."""
    if isinstance(knob, Choices):
        return knob.labels
    shares = [place / (_GRID_POINTS - 1) for place in range(_GRID_POINTS)]
    low, high = knob.low, knob.high
    found = [low * (high / low) ** share if knob.log else low + (high - low) * share for share in shares]
    if knob.whole:
        return sorted({round(value) for value in found})
    return [low, *found[1:-1], high]
