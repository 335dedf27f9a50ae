"""The interface of a phase: a part of a run that counts in one unit."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from rl_training.algorithms.learner import Metrics
from rl_training.config.environment import EnvSource
from rl_training.config.finetune import Rhythm
from rl_training.config.schedules import CONSTANT, ScheduleConfig
from rl_training.errors import ConfigError
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.execution.steps import Executor, GradientSteps
from rl_training.runtime.metrics import Stopwatch
from rl_training.runtime.phases.schedules import schedule_factor


class Phase(ABC):
    """Advances a learner by gradient steps or by environment steps; methods count in that unit from the phase's beginning.

    A run is a sequence of phases; each covers the run's positions from `first` to `last`. Intervals count from a phase's
    beginning, and its end is always evaluated and saved.
    """

    unit = "step"  # name of the unit in messages
    environment: EnvSource | None = None  # in which the phase is evaluated
    rhythm: Rhythm  # in which that and more is done

    def __init__(self, steps: GradientSteps, schedules: Mapping[str, ScheduleConfig], length: int) -> None:
        self.steps, self.length, self.first = steps, length, 0
        self.watch = Stopwatch()  # the loop's, while it runs
        self.busy_cores = 0 if steps.learner.model.device.type == "cuda" else 1  # of steps, to be left alone by others
        self._span = length  # of the schedules, also if `length` is reduced later
        self._schedules = {group: schedules.get(group, CONSTANT) for group in steps.learner.model.trained.groups}

    def execute_with(self, executor: Executor) -> None:
        """Use an executor for all gradient steps; called once, before the first."""
        self.steps.execute_with(executor)

    @property
    def last(self) -> int:
        """The run's position at which the phase ends."""
        return self.first + self.length

    @property
    @abstractmethod
    def chunk(self) -> int:
        """The maximum number of units between two checks of the watchdog and the signals."""

    @property
    def gradient_steps(self) -> int:
        """The gradient steps of the whole phase."""
        return self.length

    def rates(self, done: int) -> dict[str, float]:
        """Return the learning-rate factor of each group."""
        return {group: schedule_factor(schedule, done, self._span) for group, schedule in self._schedules.items()}

    @property
    def moved_rates(self) -> set[str]:
        """The groups whose learning-rate factor is not always 1; it moves in one direction, so the ends of the phase tell."""
        return {group for end in (0, self.length) for group, rate in self.rates(end).items() if rate != 1.0}

    def prepare(self, done: int, count: int) -> None:
        """Do what can fail outside the learner, before `run` is called with the same arguments."""
        del done, count

    @abstractmethod
    def run(self, done: int, count: int) -> Metrics:
        """Advance by `count` units; return the metrics of the last gradient step, empty if there was none."""

    @abstractmethod
    def counters(self, done: int) -> dict[str, int]:
        """Return the counters shown in metric rows and in the names of checkpoints."""

    def label(self, done: int) -> str:
        """Return a label such as `step 120`."""
        return f"{self.unit} {done}"

    def member_metrics(self, member: int) -> dict[str, float]:
        """Return a member's metrics for a log row, in addition to the learner's."""
        del member
        return {}

    def summary(self, members: Sequence[int]) -> dict[str, float]:
        """Return what the progress bar shows of the phase: the last return with exploration, long before an evaluation."""
        found = [self.member_metrics(member).get("data/episode_return") for member in members]
        known = [value for value in found if value is not None]
        return {"exploring": sum(known) / len(known)} if known else {}

    def freeze(self, members: Collection[int]) -> None:
        """Freeze these members, which have stopped."""
        del members

    def tensors(self) -> dict[str, Tensor]:
        """Return tensors for a checkpoint in addition to the learner's, under names that begin with `online/`."""
        return {}

    def write_files(self) -> dict[str, Any]:
        """Write the files that a checkpoint refers to, and return the references."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return {}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore what `tensors`, `write_files` and `state` saved."""
        del checkpoint

    def prune_files(self, referenced: Callable[[], Collection[str] | None]) -> None:
        """Remove files that no checkpoint refers to by name; `referenced` is None when a checkpoint cannot be read."""
        del referenced

    def close(self) -> None:
        """Release threads, files and environments."""
        self.steps.batches.close()


def in_sequence(phases: list[Phase]) -> list[Phase]:
    """Return the phases, with each set to begin where the previous one ends."""
    for before, after in pairwise(phases):
        after.first = before.last
    return phases


def position_of(phases: Sequence[Phase], checkpoint: Checkpoint) -> int:
    """Return the position of a checkpoint in the run; raise a ConfigError for one that does not fit the phases."""
    phase = phases[0] if checkpoint.env_step is None else phases[-1]
    if phase is not phases[-1] and checkpoint.position > phase.length:
        raise ConfigError(
            f"the online phase begins at step {phase.length}, before the {checkpoint.position} of {checkpoint.path}"
        )
    if phase.counters(checkpoint.position)["step"] != checkpoint.step:
        raise ConfigError(f"{checkpoint.path}: was written with an online phase that begins at another step")
    return phase.first + checkpoint.position
