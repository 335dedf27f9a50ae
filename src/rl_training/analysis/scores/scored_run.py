"""A run of which some members belong to a group, and what is compared of it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.aggregates import Values
from rl_training.analysis.logged_run import LoggedRun, without
from rl_training.analysis.scores.directions import measures_quality
from rl_training.analysis.scores.tasks import DATA, OFFLINE, ONLINE, Source
from rl_training.config.base import flat
from rl_training.errors import DivergedError
from rl_training.runtime.checkpoints.lock import is_in_use, was_locked

# settings in which runs of one group may differ: they say who runs where and what is kept, not what is learned
_FREE = (
    *("seed", "seeds", "sweep", "trials", "run_name", "device", "workers", "engine", "env_imports", "env_timeout", "env_id"),
    *("eval_mode", "select_by", "keep_checkpoints", "checkpoint_interval", "log_interval", "algo_kwargs.dataset"),
    *("finetune.checkpoint_interval", "finetune.log_interval"),
)
SWITCH = "@switch"  # after a path: the run as it was when its online phase began


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

    def counted(self, metric: str) -> Values:
        """Return the scores that count: NaN for members that diverged before they had any, nothing for others without one.

        A failure must not drop out of what it failed at. A metric that does not tell how good a policy is knows no worst.
        """
        failed = self.unscored if measures_quality(metric) else set()
        chosen = ~np.isnan(self.values) | np.isin(self.members, sorted(failed))
        return np.asarray(self.values[chosen])

    @property
    def diverged(self) -> set[int]:
        """The members that diverged."""
        if self.run.record["status"] == DivergedError.__name__:  # that is said of a run once all of its members have
            return set(self.members)
        return self.run.members_with("diverged").intersection(self.members)

    @property
    def unscored(self) -> set[int]:
        """The members that diverged before they had a score."""
        return self.diverged.difference(np.asarray(self.members)[~np.isnan(self.values)].tolist())

    @property
    def is_gone(self) -> bool:
        """Whether its process was killed, so that its record still says that it runs."""
        return is_gone(self.run)

    @property
    def by_seed(self) -> dict[int, float]:
        """The score of each seed that has one."""
        pairs = zip(self.members, self.values.tolist(), strict=True)
        return {self.run.seeds[member]: value for member, value in pairs if not math.isnan(value)}

    @property
    def source(self) -> Source:
        """Where its policies were evaluated and what they learned from."""
        return Source(self.group, self.env, self.run.data, self.run.fingerprint, steps=self.training)

    @property
    def env(self) -> str:
        """The environment in which the run was evaluated; that of its data if there was none."""
        return self.run.config.final_env_id or DATA

    @property
    def making(self) -> str:
        """The arguments, time limit and wrappers of that environment."""
        source = self.run.config.final_environment
        return "as registered" if source is None else source.making

    @property
    def training(self) -> dict[str, int | None]:
        """The steps up to the last evaluation, by what they were taken on."""
        switch = self.run.switch
        if switch is not None and self.steps > switch:
            return {OFFLINE: switch, ONLINE: self.steps - switch}
        return {ONLINE if switch is None and "env_step" in self.run.history else OFFLINE: self.steps}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that should be equal in all runs of a group and task."""
        return without(flat(self.run.config.record()), _FREE)


def different(part: ScoredRun, other: ScoredRun) -> list[str]:
    """The settings in which two runs differ though they should not."""
    keys = {*part.settings, *other.settings}
    return sorted(key for key in keys if part.settings.get(key) != other.settings.get(key))


def pooled(runs: Sequence[ScoredRun], tasks: Sequence[str]) -> Iterator[tuple[str, ScoredRun, ScoredRun]]:
    """Each run of a group and task with every later one."""
    for number, part in enumerate(runs):
        for later in range(number + 1, len(runs)):
            if (runs[later].group, tasks[later]) == (part.group, tasks[number]):
                yield tasks[number], part, runs[later]


def is_gone(run: LoggedRun) -> bool:
    """Return whether the process of a run was killed on this machine, so that its record still says that it runs."""
    return run.record["status"] == "running" and was_locked(run.path) and is_in_use(run.path) is False


def load_run(path: Path) -> LoggedRun:
    """Return a run as its directory tells of it, or with `@switch` after its path as it was when it went online."""
    if not path.name.endswith(SWITCH) or path.exists():
        return LoggedRun.load(path)
    return LoggedRun.load(str(path).removesuffix(SWITCH)).before_switch(path)
