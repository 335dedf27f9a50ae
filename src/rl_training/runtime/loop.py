"""The one training loop: it advances in chunks up to the next due hook, and can be cut anywhere and resumed exactly.

At a boundary the order is fixed: watchdog, log row, then (unless a stop was asked for) evaluation, callbacks, checkpoint.
A checkpoint taken because of a signal records that the later hooks of its step are still to come.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.learner import Learner, Metrics, summarize
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError, DatasetError, DivergedError, StorageError
from rl_training.faults import fault_point
from rl_training.runtime.callbacks import Callback, EarlyStopping, Evaluation
from rl_training.runtime.checkpoint import Checkpoint, CheckpointStore
from rl_training.runtime.engine import Acceleration, Engine
from rl_training.runtime.evaluation import evaluate_policy
from rl_training.runtime.members import MemberRecord, Population
from rl_training.runtime.metrics import JsonLines, Stopwatch
from rl_training.runtime.progress import Reporter
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.signals import SignalWatch
from rl_training.runtime.validation import Validation


@dataclass(frozen=True)
class TrainingResult:
    """What a finished run leaves behind."""

    step: int  # gradient steps
    env_step: int | None  # environment steps of an online run
    checkpoint: Path
    members: list[MemberRecord]
    evaluation: Evaluation | None
    learner: Learner[Any, Any]
    spaces: Spaces
    transforms: Transforms


@dataclass
class LoopParts:
    """Everything the loop works with, built by a trainer."""

    settings: RunSettings
    learner: Learner[Any, Any]
    engine: Engine
    acceleration: Acceleration
    spaces: Spaces
    transforms: Transforms
    dataset_fingerprint: str | None
    validation: Validation | None
    run_dir: Path
    signals: SignalWatch
    reporter: Reporter
    callbacks: Sequence[Callback] = field(default_factory=tuple)
    resume_from: Checkpoint | None = None
    continue_metrics: bool = False


class TrainingLoop:
    """Trains a learner to its budget; see the module for the order of things."""

    def __init__(self, parts: LoopParts) -> None:
        self.parts = parts
        self.settings, self.learner, self.engine = parts.settings, parts.learner, parts.engine
        self.position = 0  # in the unit of total_timesteps
        self.total = parts.engine.total
        self.callbacks = [*self._early_stopping(), *parts.callbacks]
        self.best_mean: float | None = None
        self.evaluation: Evaluation | None = None
        self.hooks_pending = False
        self.recent: dict[str, list[float]] = {}  # metrics of the last gradient step since the last log row
        self.store = CheckpointStore(parts.run_dir / "checkpoints", self.settings.keep_checkpoints, parts.reporter.warn)
        self.store.prepare()
        self.metrics = JsonLines(parts.run_dir / "metrics.jsonl")
        self.timings = JsonLines(parts.run_dir / "timings.jsonl")
        self.population = Population(self.learner)
        if parts.resume_from is not None:
            self._restore(parts.resume_from)
        else:
            self.metrics.cut(0)
        self.last_checkpoint: Path | None = parts.resume_from.path if parts.resume_from else None

    def run(self) -> TrainingResult:
        """Train to the end of the budget, or until every member has stopped; the end is evaluated and saved."""
        reporter = self.parts.reporter
        watch = Stopwatch(self.position)
        reporter.start(self.position, self.total)
        for callback in self.callbacks:
            callback.on_start(self.learner)
        try:
            if self.parts.resume_from is not None and not self.parts.continue_metrics:
                self._save(best=False)  # a run that begins from another's checkpoint is whole from the start
            if self.hooks_pending:
                self._evaluate_and_save()
            while not self._finished():
                boundary = self._next_boundary()
                self.engine.freeze(self.population.frozen)
                self._prepare(boundary - self.position)
                metrics = summarize(self.engine.run(self.position, boundary - self.position))
                self.position = boundary
                self._after_chunk(metrics, watch)
        finally:
            self.metrics.close()
            self.timings.close()
        if self.last_checkpoint is None:
            raise CheckpointError(f"{self.parts.run_dir}: the run ended without a checkpoint")
        return TrainingResult(
            self.learner.step,
            self.engine.counters(self.position).get("env_step"),
            self.last_checkpoint,
            self.population.records,
            self.evaluation,
            self.learner,
            self.parts.spaces,
            self.parts.transforms,
        )

    def _prepare(self, count: int) -> None:
        """Have the next batches read; if the data has gone, what has been learned is saved first."""
        try:
            self.engine.prepare(self.position, count)
        except DatasetError:
            self._save(best=False)
            raise

    def _finished(self) -> bool:
        return self.position >= self.total or not self.population.active

    def _next_boundary(self) -> int:
        """The next position at which anything may happen: a function of the config and the position alone."""
        phase, settings = self.engine.phase(self.position + 1), self.settings
        intervals = (phase.chunk, settings.log_interval, settings.eval_interval, settings.checkpoint_interval)
        inside = self.position - phase.first
        return min(phase.last, *(phase.first + (inside // interval + 1) * interval for interval in intervals))

    def _due(self, interval: int) -> bool:
        phase = self.engine.phase(self.position)
        return (self.position - phase.first) % interval == 0 or self.position == phase.last or self._finished()

    def _after_chunk(self, metrics: Metrics, watch: Stopwatch) -> None:
        self._guard_against_divergence(metrics)
        self.recent = {name: value.tolist() for name, value in metrics.items()} or self.recent
        values = self.recent
        if self._due(self.settings.log_interval):
            self._log(values, watch)
            self.recent = {}
        self.parts.reporter.advance(self.position, self._summary(values))
        self.hooks_pending = True
        self._stop_if_asked()
        self._evaluate_and_save()
        self.parts.reporter.advance(self.position, self._summary(values))

    def _guard_against_divergence(self, metrics: Metrics) -> None:
        """Freeze members that met NaN or inf; give up when nobody is left."""
        self.population.restore_frozen()
        bad = self.population.diverged(metrics)
        if bad:
            seeds = [self.population.records[member].seed for member in bad]
            broken = [name for name, value in metrics.items() if not torch.isfinite(value[bad]).all()] or ["parameters"]
            text = f"seed {', '.join(map(str, seeds))} met NaN or inf in {', '.join(broken)} by {self._now}"
            self.population.freeze(bad, "diverged", self._count)
            self._write_events(bad, "diverged")
            if self.population.all_diverged:
                kept = self.last_checkpoint or "no checkpoint had been written yet"
                raise DivergedError(
                    f"training diverged: {text}; lower the learning rates or scale rewards. Last good: {kept}"
                )
            self.parts.reporter.warn(f"{text}; it is frozen at its last good state, the others go on")
        self.population.keep_good_state()

    def _log(self, values: dict[str, list[float]], watch: Stopwatch) -> None:
        rates = self.engine.rates(self.position - 1).items()
        factors = {f"train/learning_rate_factor/{group}": rate for group, rate in rates if rate != 1.0}
        rows = [
            {
                **self._row(member),
                **{f"train/{name}": column[member] for name, column in values.items()},
                **self.engine.member_metrics(member),
                **(factors if values else {}),
            }
            for member in self.population.active
        ]
        self.metrics.write(rows)
        self.timings.write([watch.lap(self.position, self.engine.counters(self.position))])
        for callback in self.callbacks:
            callback.on_log(self._count, rows)

    @property
    def _count(self) -> int:
        """The position as its phase counts: gradient steps offline, environment steps online."""
        return next(iter(self.engine.counters(self.position).values()))

    @property
    def _now(self) -> str:
        return self.engine.label(self.position)

    def _row(self, member: int) -> dict[str, Any]:
        return {**self.engine.counters(self.position), "member": member, "seed": self.population.records[member].seed}

    def _write_events(self, members: Sequence[int], event: str) -> None:
        self.metrics.write([{**self._row(member), "event": event} for member in members])

    def _summary(self, values: dict[str, list[float]]) -> dict[str, float]:
        """The losses and the last return, averaged over active members, for the bar."""
        active = self.population.active
        shown = {n.removesuffix("_loss"): c for n, c in values.items() if n.endswith("_loss")}
        summary = {name: sum(column[m] for m in active) / len(active) for name, column in shown.items() if active}
        returns = [r for m in active if (r := self.population.records[m].last_return) is not None]
        return {**summary, **({"return": sum(returns) / len(returns)} if returns else {})}

    def _evaluate_and_save(self) -> None:
        improved = False
        if self.settings.env_id is not None and self.population.active and self._due(self.settings.eval_interval):
            improved = self._evaluate(self.settings.env_id)
        if self.parts.validation is not None and self.population.active and self._due(self.settings.eval_interval):
            self._validate(self.parts.validation)
        self.hooks_pending = False
        if improved or self._due(self.settings.checkpoint_interval):
            self._save(best=improved)

    def _evaluate(self, env_id: str) -> bool:
        """Evaluate every member, tell the callbacks, and return whether the mean is the best so far."""
        evaluation = evaluate_policy(
            self.learner,
            env_id,
            episodes=self.settings.eval_episodes,
            seeds=self.learner.model.seeds,
            transforms=self.parts.transforms,
            check=self._stop_if_asked,
        )
        fault_point("evaluation:done")
        self.evaluation, active = evaluation, self.population.active
        means = evaluation.member_means
        self.metrics.write(
            {
                **self._row(member),
                "eval/return_mean": means[member],
                "eval/return_std": float(evaluation.returns[member].std()),
                "eval/length_mean": float(evaluation.lengths[member].mean()),
            }
            for member in active
        )
        self.population.record_evaluation(self._count, means)
        mean = self.population.mean_return()
        self.parts.reporter.note(f"{self._now}: mean return {mean:.1f}" + self._spread(means, active))
        for callback in self.callbacks:
            wished = callback.on_evaluation(self._count, evaluation, active)
            stopped = sorted({int(member) for member in (() if wished is None else wished)} & set(active))
            if stopped:
                self.population.freeze(stopped, "stopped", self._count)
                self._write_events(stopped, "stopped")
                active = self.population.active
        improved = self.best_mean is None or mean > self.best_mean
        self.best_mean = mean if improved else self.best_mean
        return improved

    def _validate(self, validation: Validation) -> None:
        """Log the losses on held-out data."""
        losses, active = validation.losses(self.learner), self.population.active
        rows = [
            {**self._row(member), **{f"validation/{name}": column[member] for name, column in losses.items()}}
            for member in active
        ]
        self.metrics.write(_finite(row) for row in rows)
        shown = {name: sum(column[m] for m in active) / len(active) for name, column in losses.items() if "loss" in name}
        self.parts.reporter.note(f"{self._now}: held out " + ", ".join(f"{n} {v:.4g}" for n, v in shown.items()))
        for callback in self.callbacks:
            callback.on_log(self._count, rows)

    @staticmethod
    def _spread(means: Sequence[float], active: Sequence[int]) -> str:
        shown = sorted(means[member] for member in active)
        return f" (members {shown[0]:.1f} to {shown[-1]:.1f})" if len(shown) > 1 else ""

    def _stop_if_asked(self) -> None:
        """Save and leave if a signal asked for it; save and go on for SIGUSR1."""
        signals = self.parts.signals
        if signals.save_requested:
            signals.save_requested = False
            self._save(best=False)
        if signals.stop_signal is not None:
            path = self._save(best=False)
            self.parts.reporter.note(f"stopped at {self._now}")
            signals.raise_if_stopped(f"saved {self._now} in {path}; go on with `rl-training resume {self.parts.run_dir}`")

    def _save(self, *, best: bool) -> Path:
        self.metrics.sync()
        tensors = {**self.learner.state_dict(), **self.parts.transforms.tensors(), **self.engine.tensors(self.position)}
        if not self.parts.run_dir.is_dir():
            raise StorageError(f"{self.parts.run_dir}: the run directory has disappeared; nothing can be saved")
        counters = self.engine.counters(self.position)
        self.last_checkpoint = self.store.save(counters, tensors, self._state(), best=best)
        self.engine.forget_unless(self.store.referenced_segments)
        self.parts.reporter.saved(self._now)
        for callback in self.callbacks:
            callback.on_checkpoint(self._count, str(self.last_checkpoint))
        return self.last_checkpoint

    def _state(self) -> dict[str, Any]:
        return {
            "algo": self.settings.algo,
            "config": self.settings.record(),
            "spaces": self.parts.spaces.to_json(),
            "seeds": list(self.learner.model.seeds),
            **self.engine.counters(self.position),
            "hooks_pending": self.hooks_pending,
            "recent_metrics": self.recent,
            "members": self.population.state(),
            "best_mean": self.best_mean,
            "callbacks": self._callback_states(),
            "metrics_bytes": self.metrics.length,
            "dataset_fingerprint": self.parts.dataset_fingerprint,
            "environment": self.parts.acceleration.resolved.record(),
            **self.engine.state(self.position),
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        self.learner.load_state_dict(checkpoint.learner_tensors)
        self.learner.step, self.position = checkpoint.step, self.engine.position(checkpoint)
        self.population = Population(self.learner, [MemberRecord(**record) for record in state["members"]])
        if self.settings.finetune is not None and state["config"].get("finetune") is None:
            self.population.revive()  # a run that had ended goes on online: all take part again
        self.engine.freeze(self.population.frozen)
        self.engine.restore(checkpoint)
        self.recent = state.get("recent_metrics", {})
        self.best_mean = state["best_mean"]
        self.hooks_pending = bool(state["hooks_pending"])
        self._restore_callbacks(state["callbacks"])
        if self.parts.continue_metrics:
            self.store.rewind(checkpoint.path)  # before the metrics are cut: from here on this is where the run stands
        self.metrics.cut(int(state["metrics_bytes"]) if self.parts.continue_metrics else 0)

    def _callback_states(self) -> list[dict[str, Any]]:
        states = [{"name": type(callback).__name__, "state": callback.state_dict()} for callback in self.callbacks]
        return [entry for entry in states if entry["state"]]

    def _restore_callbacks(self, saved: Sequence[dict[str, Any]]) -> None:
        """Give each callback the state of its namesake, in order; say so where a state finds no callback."""
        waiting = list(self.callbacks)
        for entry in saved:
            callback = next((c for c in waiting if type(c).__name__ == entry["name"]), None)
            if callback is None:
                self.parts.reporter.warn(f"the checkpoint holds the state of a callback {entry['name']} that was not given")
                continue
            waiting.remove(callback)
            callback.load_state_dict(entry["state"])

    def _early_stopping(self) -> list[Callback]:
        wish = self.settings.early_stopping
        return [] if wish is None else [EarlyStopping(wish.patience, wish.min_delta, wish.threshold)]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """The row without numbers that JSON cannot hold: a held-out loss may overflow where the training loss does not."""
    return {name: value for name, value in row.items() if not isinstance(value, float) or math.isfinite(value)}
