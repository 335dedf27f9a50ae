"""The training loop: it advances in chunks up to the next due hook, and can be interrupted anywhere and resumed exactly.

At a boundary the order is fixed: watchdog, log row, then (unless a stop was requested) evaluation, callbacks, checkpoint.
A checkpoint taken because of a signal records that the later hooks of its step are still pending. Members that a callback
stops, at whatever hook, are evaluated at that boundary and then frozen, before its checkpoint is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.algorithms.learner import Metrics, summarize
from rl_training.config.environment import EnvSource
from rl_training.envs.evaluation import FINAL_EPISODES, Evaluation, cut_short
from rl_training.errors import CheckpointError, ConfigError, DatasetError, DivergedError, EnvironmentFailedError
from rl_training.faults import fault_point
from rl_training.runtime.callbacks import as_callbacks, call_hook, callback_states, restore_callbacks
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.evaluating.beside import open_evaluator
from rl_training.runtime.evaluating.evaluator import Evaluated, Snapshot
from rl_training.runtime.loop_parts import LoopParts
from rl_training.runtime.metrics import Stopwatch, finite, under
from rl_training.runtime.phases.base import Phase, position_of
from rl_training.runtime.phases.place import Place
from rl_training.runtime.population import Population, new_records, restored_records, with_returns
from rl_training.runtime.progress import mean_and_range, nothing_left
from rl_training.runtime.pruning import stopping_rules
from rl_training.runtime.result import TrainingResult
from rl_training.runtime.sharing.run_files import files_of
from rl_training.runtime.validating.held_out import HeldOutReport


class TrainingLoop:
    """Trains a learner to its budget; the module docstring gives the order of the hooks."""

    def __init__(self, parts: LoopParts) -> None:
        self.parts, self.config, self.learner = parts, parts.config, parts.learner
        self.place = Place(parts.phases)
        self.callbacks = [*stopping_rules(self.config), *as_callbacks(parts.callbacks)]
        self.stopping: set[int] = set()  # members that a callback stops at this boundary
        self.best_mean: float | None = None
        self.evaluation: Evaluation | None = None
        self.hooks_pending = False
        self.recent: dict[str, list[float]] = {}  # metrics of the last gradient step since the last log row
        self.ranks = parts.ranks
        self.files = files_of(parts)
        self.watch = Stopwatch()
        for phase in parts.phases:
            phase.watch = self.watch
        records = new_records(self.config.member_seeds, self.config.member_knobs)
        self.population = Population(self.learner, records, self.ranks)
        held_out, warn = parts.validation, parts.reporter.warn
        self.held_out = None if held_out is None else HeldOutReport(held_out, warn, parts.selector, self.ranks)
        self.evaluator = open_evaluator(parts)
        self.last_checkpoint: Path | None = parts.resume_from.path if parts.resume_from else None

    def _begin(self) -> None:
        """Open the files, and restore learner and files if the run resumes."""
        self.files.open()
        if self.parts.resume_from is not None:
            self._restore(self.parts.resume_from)
        else:
            self.files.start_at(None)
        self.watch.start(self.place.position)

    def run(self) -> TrainingResult:
        """Train to the end of the budget, or until every member has stopped; the end is evaluated and saved."""
        try:
            self._begin()
            self._call("on_start", self.learner)
            if self.parts.resume_from is not None and not self.parts.continue_metrics:
                self._save(best=self.best_mean is not None)  # its own from the start, best until one beats all before
            if self.hooks_pending or self.stopping:
                self._evaluate_and_save()
            if self._finished():
                self.parts.reporter.warn(nothing_left(self.place.label, self.config, budget=self.place.spent))
            shown: Phase | None = None
            while not self._finished():
                phase = self.place.phase_to(self.place.position + 1)
                if phase is not shown:
                    self.parts.reporter.start(self.place.position - phase.first, phase.length, phase.unit)
                    shown = phase
                boundary = self.place.next_boundary(phase, (phase.chunk, *phase.rhythm.intervals))
                phase.freeze(self.population.frozen)
                self.watch.switch("gradient_steps")
                self._prepare(phase, boundary - self.place.position)
                with self._saved_if_the_environment_fails():
                    metrics = summarize(phase.run(self.place.position - phase.first, boundary - self.place.position))
                self.place.position = boundary
                self._after_chunk(metrics)
            if self.evaluator.under_way is not None:  # the run ended where no evaluation was due
                self._save(best=self._take_all(self.evaluator.rest(self._stop_if_requested)))
            final = self._final_evaluation()
        finally:
            self.evaluator.close()
            self.files.close()
        if self.last_checkpoint is None:
            raise CheckpointError(f"{self.parts.run_dir}: the run ended without a checkpoint")
        held_out = self.held_out.figures if self.held_out else []
        counts = self.learner.step, self.place.counters.get("env_step"), self.last_checkpoint
        results = self.population.records, self.evaluation, final
        return TrainingResult(*counts, *results, self.learner, self.parts.spaces, self.parts.transforms, held_out)

    def _prepare(self, phase: Phase, count: int) -> None:
        """Fetch the next batches; if the data can no longer be read, save a checkpoint before raising."""
        try:
            phase.prepare(self.place.position - phase.first, count)
        except DatasetError:
            if self.ranks.count == 1:  # otherwise the others are elsewhere, and the last checkpoint is what is left
                self._save(best=False)
            raise

    @contextmanager
    def _saved_if_the_environment_fails(self, during: str = "") -> Iterator[None]:
        """If the environment fails inside, save what was complete before that, and raise with what it was and where it is."""
        try:
            yield
        except ConfigError as error:
            if isinstance(error, EnvironmentFailedError):
                self.place.position += error.taken
                self._guard_against_divergence({})
            if not self.place.position or self.ranks.count > 1:
                raise ConfigError(f"{during}{error}") from error
            kept = f"the run is saved at {self.place.label}: {self._save(best=False)}"
            raise ConfigError(f"{during}{error}; {kept}; once the environment works, {self._how_to_go_on}") from error

    @property
    def _how_to_go_on(self) -> str:
        return f"go on with `{self.parts.go_on}`"

    def _finished(self) -> bool:
        return self.place.spent or self.stopping.issuperset(self.population.active)

    def _ends_here(self) -> bool:
        """Whether the run or a phase of it ends at this boundary."""
        return self._finished() or self.place.ends_phase

    def _due(self, interval: int) -> bool:
        return self._ends_here() or bool(self.stopping) or (self.place.inside) % interval == 0

    def _after_chunk(self, metrics: Metrics) -> None:
        self.parts.executor.wait()
        self.parts.executor.agree(self.ranks)
        self._guard_against_divergence(metrics)
        self.watch.switch("rest")
        found = self.population.of_active(self.ranks.columns({name: value.tolist() for name, value in metrics.items()}))
        values = self.recent = found or self.recent
        if logged := self._due(self.place.phase.rhythm.log_interval):
            self._log(values)
            self.recent = {}
        self.parts.reporter.advance(self.place.count, self._summary(values))
        self.hooks_pending = True
        self._stop_if_requested()
        self._evaluate_and_save()
        if logged or (metrics and not self.files.timed):  # after the first steps too: so long did the start take
            self.files.write_timing(self.watch.lap(self.place.position, self.place.counters))
        self.parts.reporter.advance(self.place.count, self._summary(values))

    def _guard_against_divergence(self, metrics: Metrics) -> None:
        """Freeze members with NaN or inf; raise DivergedError when every member has diverged."""
        self.population.restore_frozen()
        bad = self.population.diverged(metrics)
        if bad:
            text = f"{self.population.fault(bad, metrics)} by {self.place.label}"
            if set(bad) == set(self.population.active):  # the run ends here
                self._take_all(self.evaluator.rest(lambda: None))
            self.population.freeze(bad, "diverged", self.place.count)
            self._write_events(bad, "diverged")
            if self.population.all_diverged:
                kept = self.last_checkpoint or "no checkpoint had been written yet"
                raise DivergedError(f"training diverged: {text}; lower learning rates or scale inputs. Last good: {kept}")
            self.parts.reporter.advance(self.place.count, self._summary({}))  # the warning belongs here, not before the chunk
            self.parts.reporter.warn(f"{text}; frozen at the last good state from before, while the others continue")
        self.population.keep_good_state()

    def _log(self, values: dict[str, list[float]]) -> None:
        phase = self.place.phase
        rates, moved = phase.rates(self.place.position - phase.first - 1), self.place.moved_rates
        factors = {f"train/learning_rate_factor/{group}": rate for group, rate in rates.items() if group in moved}
        rows = [
            {
                **self._row(member),
                **{f"train/{name}": column[member] for name, column in values.items()},
                **phase.member_metrics(member),
                **(factors if values else {}),
            }
            for member in self.population.active
        ]
        self.files.write(rows)
        self._call("on_log", self.place.count, rows)
        self._call("on_metrics", self.place.count, rows)

    def _call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of every callback, and note the members it stops."""
        stopped = call_hook(self.callbacks, hook, self.population.active, *arguments) if self.ranks.writes else set()
        self.stopping |= set(self.ranks.first(sorted(stopped)))

    def _stop_members(self) -> None:
        """Freeze the members that callbacks stop."""
        stopped, self.stopping = sorted(self.stopping & set(self.population.active)), set()
        if stopped:
            self.population.freeze(stopped, "stopped", self.place.count)
            self.parts.reporter.note(f"{self.place.label}: {self.population.seeds_text(stopped)} stopped")
            self._write_events(stopped, "stopped")

    def _row(self, member: int, counters: Mapping[str, int] | None = None) -> dict[str, Any]:
        return {**(counters or self.place.counters), "member": member, **self.population.records[member].columns}

    def _write_events(self, members: Sequence[int], event: str) -> None:
        self.files.write([{**self._row(member), "event": event} for member in members])

    def _summary(self, values: dict[str, list[float]]) -> dict[str, float]:
        """What the progress bar shows."""
        active = self.population.active
        distance = self.held_out.distance(active) if self.held_out else {}
        return {**self.place.phase.summary(active), **self.population.summary(values), **distance}

    def _evaluate_and_save(self) -> None:
        measured = bool(self.population.active) and self._due(self.place.phase.rhythm.eval_interval)
        improved = measured and self._measure()
        self._stop_members()
        self.hooks_pending = False
        if improved or self._due(self.place.phase.rhythm.checkpoint_interval):
            self._save(best=improved)
        elif measured and (under_way := self.evaluator.under_way) is not None:
            under_way.unsaved = self._snapshot()
        if self.stopping:  # by a callback that saw this checkpoint
            improved = not measured and self._measure()
            self._stop_members()
            self._save(best=improved)

    def _measure(self) -> bool:
        """Evaluate in the environment and on held-out data; return whether the mean return or score is the best so far."""
        env = self.place.phase.environment
        with self.watch.during("evaluation"):
            improved = env is not None and self._evaluate(env)
            if self.held_out is not None:
                self._validate(self.held_out)
                improved |= env is None and self.held_out.improved
        return improved

    def _evaluate(self, env: EnvSource) -> bool:
        """Have every member evaluated, and take the results that are there; return whether this boundary is the best."""
        now = Evaluated(self.place.counters, self.place.label, self.population.active)
        episodes, check = self.place.phase.rhythm.eval_episodes, self._stop_if_requested
        return self._take_all(self.evaluator.results(env, episodes, now, check, self._ends_here))

    def _take_all(self, results: Iterator[tuple[Evaluated, Evaluation]]) -> bool:
        """Take results, and make the checkpoint of an earlier boundary the best if it is; return whether this one is."""
        improved = False
        while True:
            label = (self.evaluator.under_way or self.place).label
            with self._saved_if_the_environment_fails(f"in the evaluation at {label}: "):
                found = next(results, None)
            if found is None:
                return improved
            of, best = found[0], self._take(*found)
            improved = best and of.counters == self.place.counters
            if best and not improved:
                self._make_best(*found)

    def _make_best(self, of: Evaluated, evaluation: Evaluation) -> None:
        """Make the checkpoint of an earlier boundary the best, with what its evaluation found."""
        kept = of.unsaved
        with suppress(CheckpointError):  # it is not here if the run began in another directory
            kept = kept or self.files.load(of.counters)
        if not self.ranks.first(kept is not None) or kept is None:
            return
        if self.ranks.writes:
            found = evaluation.member_means, of.members, of.count, self.place.phase.unit
            kept = replace(kept, state={**kept.state, "members": with_returns(kept.state["members"], *found)})
        self._write(kept, best=True, latest=of.unsaved is not None)

    def _take(self, of: Evaluated, evaluation: Evaluation) -> bool:
        """Write what an evaluation found, call the callbacks, and return whether the mean is the best so far."""
        fault_point("evaluation:done")
        self.evaluation, means, count = evaluation, evaluation.member_means, of.count
        rows = [{**self._row(member, of.counters), **evaluation.metrics(member)} for member in of.members]
        self.files.write(rows)
        self.population.record_evaluation(count, self.place.phase.unit, means, of.members)
        mean = self.population.mean_return()  # of those that have stopped too, by which the best is chosen
        self.parts.reporter.note(f"{of.label}: {mean_and_range(means, of.members)}")
        if (env := self.place.phase.environment) is not None and (cut := cut_short(evaluation, env)):
            self.parts.reporter.warn(f"endless-episodes: {of.label}: {cut}")
        self._call("on_evaluation", count, evaluation, [member for member in of.members if member in self.population.active])
        self._call("on_metrics", count, rows)
        improved = self.best_mean is None or mean > self.best_mean
        self.best_mean = mean if improved else self.best_mean
        return improved

    def _final_evaluation(self) -> Evaluation | None:
        """The evaluation behind the table of a sweep; None without a sweep or an environment."""
        env = self.place.phase.environment
        if self.config.sweep is None or env is None:
            return None
        with self._saved_if_the_environment_fails(f"in the {FINAL_EPISODES} at {self.place.label}: "):
            episodes = self.place.phase.rhythm.eval_episodes
            return self.evaluator.measured(env, episodes, FINAL_EPISODES, self._stop_if_requested)

    def _validate(self, report: HeldOutReport) -> None:
        """Log losses on held-out rows and what the policy does there."""
        active = self.population.active
        labels = {member: self.population.records[member].label for member in active}
        found = report.evaluate(self.learner, labels, last=self._finished())
        self.population.record_scores(found)
        rows = [finite({**self._row(member), **under("validation", found[member])}) for member in active]
        self.files.write(rows)
        self.parts.reporter.note(f"{self.place.label}: held out: {report.line(active)}")
        self._call("on_log", self.place.count, rows)
        self._call("on_metrics", self.place.count, rows)

    def _stop_if_requested(self) -> None:
        """Save and raise StoppedBySignal if a stop was requested; save and continue for SIGUSR1."""
        signals = self.parts.signals
        asked = self.ranks.gather([(signals.stop_signal, signals.save_requested)])
        if any(save for _, save in asked):
            signals.save_requested = False
            self._save(best=False)
        if stops := [stop for stop, _ in asked if stop is not None]:
            signals.stop_signal = stops[0]
            path = self._save(best=False)
            self.files.write_timing(self.watch.lap(self.place.position, self.place.counters))
            self.parts.reporter.note(f"stopped at {self.place.label}")
            signals.raise_if_stopped(f"saved {self.place.label} in {path}; {self._how_to_go_on}")

    def _save(self, *, best: bool) -> Path:
        with self.watch.during("saving"):
            under_way = self.evaluator.under_way
            if under_way is not None and under_way.unsaved is not None:  # the checkpoint refers to it
                self._write(under_way.unsaved, best=False)
                under_way.unsaved = None
            return self._write(self._snapshot(), best=best)

    def _snapshot(self) -> Snapshot:
        """What a checkpoint of this moment holds."""
        phase = self.place.phase
        learned = self.ranks.all_rows(self.learner.state_dict())
        tensors = {**learned, **self.parts.transforms.tensors(), **phase.tensors()}
        self.files.check_directory()
        state = {**self._state(), **phase.state(), **phase.write_files()}
        return Snapshot(self.place.counters, tensors, deepcopy(state))  # which callbacks may go on to change

    def _write(self, snapshot: Snapshot, *, best: bool, latest: bool = True) -> Path:
        path = self.files.save(snapshot, best=best, latest=latest)
        self.last_checkpoint = path if latest else self.last_checkpoint
        for phase in self.parts.phases:
            phase.prune_files(self.files.referenced_segments)
        count = next(iter(snapshot.counters.values()))
        self.parts.reporter.saved(f"{self.place.phase.unit} {count}")
        self._call("on_checkpoint", count, str(path))
        return path

    def _state(self) -> dict[str, Any]:
        return {
            "algo": self.config.algo,
            "config": self.config.record(),
            "spaces": self.parts.spaces.to_json(),
            "seeds": list(self.config.member_seeds),
            **self.place.counters,
            "hooks_pending": self.hooks_pending,
            "stopping": sorted(self.stopping),
            "recent_metrics": self.recent,
            "members": self.population.state(),
            "best_mean": self.best_mean,
            "callbacks": callback_states(self.callbacks),
            **self.files.metrics_so_far,
            "dataset_fingerprint": self.parts.dataset_fingerprint,
            "held_out": self.held_out.state() if self.held_out else {},
            "execution": self.parts.executor.execution.record(),
            **({} if self.evaluator.under_way is None else {"evaluating": self.evaluator.under_way.record()}),
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = checkpoint.state
        self.learner.load_state_dict(self.ranks.own_rows(checkpoint.learner_tensors))
        self.learner.step, self.place.position = checkpoint.step, position_of(self.parts.phases, checkpoint)
        records = restored_records(state["members"], self.config.member_knobs)
        self.population = Population(self.learner, records, self.ranks)
        goes_online = self.config.finetune is not None and state["config"].get("finetune") is None
        if goes_online:
            self.population.revive()  # members stopped in a finished offline run train again in its online phase
        self.place.phase.freeze(self.population.frozen)
        self.place.phase.restore(checkpoint)
        self.recent = state.get("recent_metrics", {})
        self.best_mean = state["best_mean"]
        if self.held_out is not None:
            self.held_out.restore(state.get("held_out", {}))
        self.hooks_pending = bool(state["hooks_pending"])
        self.stopping = set(state.get("stopping", ()))
        restore_callbacks(self.callbacks, state["callbacks"], self.parts.reporter.warn)
        self.files.start_at(checkpoint if self.parts.continue_metrics else None)
        if (env := self.place.phase.environment) is not None and not goes_online:
            try:
                episodes = self.place.phase.rhythm.eval_episodes
                self.evaluator.repeat(env, episodes, checkpoint, same_run=self.parts.continue_metrics)
            except CheckpointError as error:
                self.parts.reporter.warn(f"not bit-exact: an evaluation that was under way is left out ({error})")
