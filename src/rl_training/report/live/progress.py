"""Where a run is: its phase, how far, how fast, how long still, and whether it goes on."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rl_training import errors
from rl_training.analysis.endings import furthest
from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.blocks import OnlineKwargs
from rl_training.config.run import RunConfig
from rl_training.output import duration
from rl_training.report.facts import GONE, outcome_of
from rl_training.report.live.follow import last_written
from rl_training.report.timing import phase_rows, recent, rows_that_count, speed
from rl_training.runtime.checkpoints.lock import was_locked

_PATIENCE = 5.0  # times the longest usual wait for a row after which a run does not move
_SHORTEST_PATIENCE = 60.0  # seconds
_FIRST_PATIENCE = 300.0  # seconds that a run may take to read its data and compile before its first row
_GRACE = 10.0  # seconds in which new rows prove that a run without a lock goes on, such as a copy that is kept up to date

Kind = Literal["starting", "running", "not moving", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Progress:
    """How far a run is in its phase; steps are gradient steps offline and environment steps online."""

    phase: Literal["offline", "online"]
    done: int
    total: int | None  # None where it cannot be told from the config
    speed: float | None  # steps per second, of late while the run goes on
    usual_wait: float | None  # the longest of late between two rows, in seconds
    then: int  # environment steps of an online phase that follows

    @property
    def unit(self) -> str:
        """What a step is: one of learning from data, or one in the environment."""
        return "gradient step" if self.phase == "offline" else "environment step"

    def text(self) -> str:
        """Return it for people, such as `offline: step 2,500 of 6,000 (42 %)`."""
        unit = "step" if self.phase == "offline" else self.unit
        of = f" of {self.total:,} ({min(100.0, 100 * self.done / self.total):.0f} %)" if self.total else ""
        later = f", then {self.then:,} environment steps" if self.then else ""
        return f"{self.phase}: {unit} {self.done:,}{of}{later}"

    def seconds_left(self, waited: float) -> float | None:
        """Return how long the phase still takes, `waited` seconds after its last row; None if that is not known."""
        if self.total is None or not self.speed:
            return None
        return max(0.0, (self.total - self.done) / self.speed - waited)

    def left_text(self, waited: float, *, may_stop_early: bool) -> str:
        """Return how long the phase still takes, for people, such as `27.0 s left`; empty if that is not known."""
        left = self.seconds_left(waited)  # 0 where the run waited longer than the rest should take, so it is not known
        return f"{'at most ' * may_stop_early}{duration(left)} left{' offline' * bool(self.then)}" if left else ""


@dataclass(frozen=True)
class State:
    """Whether a run goes on; the code is that of a command that ends with it."""

    kind: Kind
    text: str
    code: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come."""
        return self.kind in ("finished", "stopped", "failed")


def progress_of(run: LoggedRun) -> Progress:
    """Return where a run is, by its last rows."""
    offline_total, online_total = totals(run.config, run.record)
    online = "env_step" in run.history or any("env_step" in row for row in run.timings[-1:])
    online |= not offline_total or _began_online(run, offline_total)
    counter = "env_step" if online else "step"
    rows = phase_rows(run.timings, counter)
    done = max([furthest(run, counter) or 0, *(int(row[counter]) for row in rows)])
    waits = _longest_wait([float(row.get("seconds", 0.0)) for row in recent(rows)])
    pace = speed(rows_that_count(run, counter), counter), waits
    if online:
        return Progress("online", done, online_total, *pace, 0)
    return Progress("offline", done, offline_total, *pace, online_total or 0)


def progress_text(run: LoggedRun) -> str:
    """Return how far a run is that has not finished, and how long one under way still takes; empty for a finished one."""
    if run.record["status"] == "finished":
        return ""
    progress, waited = progress_of(run), max(0.0, time.time() - last_written(run.path))
    if run.record["status"] != "running":
        return progress.text()
    left = progress.left_text(waited, may_stop_early=run.config.early_stopping is not None)
    return ", ".join(filter(None, (progress.text(), left)))


def _began_online(run: LoggedRun, switch: int) -> bool:
    """Whether the process that works on a run began with its finetune."""
    phases = run.record.get("phases") or [{}]
    return bool(phases[-1].get("name") == "finetune" and phases[-1].get("from_step") == switch)


def totals(config: RunConfig[Any], record: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the gradient steps on data and the environment steps of a run; None where that is not planned."""
    kwargs = config.algo_kwargs
    if isinstance(kwargs, OnlineKwargs):
        pretraining = getattr(kwargs, "offline_pretrain_updates", 0) or None
        return pretraining, config.total_timesteps if config.max_updates is None else None
    rows = (record.get("dataset") or {}).get("rows")
    epochs = None if config.max_epochs is None or rows is None else config.max_epochs * -(-rows // kwargs.batch_size)
    budget = min(value for value in (config.total_timesteps, epochs, config.max_updates) if value is not None)
    if config.finetune is None:
        return budget, None
    return config.finetune.from_step or budget, config.finetune.env_steps


def _longest_wait(seconds: list[float]) -> float | None:
    """The longest time between two rows of a process, or until its only one; None if that is not known."""
    return float(np.diff(seconds).max()) if len(seconds) > 1 else sum(seconds) or None


def state_of(run: LoggedRun | None, alive: bool | None, waited: float, usual: float | None) -> State:
    """Return whether a run goes on, `waited` seconds after its last row, which come at least every `usual` seconds."""
    if run is None:
        return State("starting", "starting" if alive is not False else "not there yet; waiting for it to begin")
    status = str(run.record["status"])
    if status == "running" or alive:
        return _going_on(run, alive, waited, usual)
    if status == "finished":
        return State("finished", outcome_of(run))
    message = " ".join(str(run.record.get("message") or "").split())
    text = outcome_of(run) + (f": {message}" if message else "")
    if status in ("StoppedBySignal", "KeyboardInterrupt"):
        return State("stopped", text, 130)
    return State("failed", text, getattr(getattr(errors, status, None), "exit_code", 1))


def as_ended(run: LoggedRun, state: State) -> LoggedRun:
    """Return a run whose record says how it ended, also where its process was killed and could not write it."""
    if state.kind != "failed" or run.record["status"] != "running":
        return run
    return replace(run, record={**run.record, "status": GONE, "message": _go_on(run)})


def _go_on(run: LoggedRun) -> str:
    return f"go on with `{errors.suggested('resume', run.path, imports=run.config.env_imports)}`"


def _going_on(run: LoggedRun, alive: bool | None, waited: float, usual: float | None) -> State:
    if alive is False and (waited > _GRACE or was_locked(run.path)):
        return State("failed", f"failed: its process is gone; {_go_on(run)}", 1)
    if alive and run.record["status"] != "running":
        return State("starting", "a process has begun to work on it again")
    patience = _FIRST_PATIENCE if usual is None else max(_SHORTEST_PATIENCE, _PATIENCE * usual)
    if waited <= patience:
        return State("running", outcome_of(run) if len(run.history) else "running; no row has been written yet")
    process = "its process is alive" if alive else "its process is on another machine" if alive is None else ""
    rows = f", usually at most {duration(usual)}" if usual is not None else ""
    return State("not moving", f"not moving: no new row for {duration(waited)}{rows}; {process}")
