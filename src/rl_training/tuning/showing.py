"""What a study has found: the best trials, which knobs matter, how sure that is, and how to train the winner."""

import json
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rl_training.analysis.ranks import chance_of_ranking_lower
from rl_training.errors import CheckpointError
from rl_training.tuning.folder import StudyFolder, Task
from rl_training.tuning.scores import Result
from rl_training.tuning.space import path_of
from rl_training.tuning.study import Study, optuna
from rl_training.tuning.tuner import Confirmed, confirmed, ranked

_LEAST_FOR_IMPORTANCE, _MANY_FOR_IMPORTANCE = 8, 32  # trials
_SURE = 0.05  # the chance up to which ranks are no accident
_STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "waiting"}


@dataclass(frozen=True)
class Row:
    """One trial."""

    number: int
    status: str
    knobs: Mapping[str, Any]
    values: Sequence[float] | None  # of a pruned trial that of its last evaluation
    seeds: Sequence[float | None]
    why: str | None
    population: str | None
    members: Sequence[int]


@dataclass(frozen=True)
class Summary:
    """A study by now."""

    path: str
    task: Task
    rows: list[Row]  # in the order of their numbers
    order: list[int]  # the complete trials, the best first
    front: list[int]  # of two numbers: the trials that no other is better than in both
    importance: dict[str, float]
    has_own: bool  # whether trial 0 has the config's own values
    confirmed: list[Confirmed]

    @property
    def best(self) -> Row | None:
        """The best trial: with the new seeds if some were confirmed, else of all."""
        if self.confirmed and self.confirmed[0].result.values:
            return self.rows[self.confirmed[0].number]
        return self.rows[self.order[0]] if self.order else None

    @property
    def fresh(self) -> dict[int, Result]:
        """What each confirmed trial reached with new seeds."""
        return {one.number: one.result for one in self.confirmed}

    def score_of(self, number: int) -> float | None:
        """Return the score of a trial: with new seeds if some were confirmed, else of the study."""
        source: Row | Result | None = self.fresh.get(number) if self.confirmed else self.rows[number]
        return source.values[0] if source and source.values else None


def summary(folder: StudyFolder, task: Task) -> Summary:
    """Return a study as its files tell of it, while it goes on or afterwards."""
    study = folder.open(task)
    trials = study.trials
    rows = [_row(study, trial) for trial in trials]
    order = [trial.number for trial in ranked(trials)]
    front = [trial.number for trial in study.optuna_study.best_trials] if task.rule.also and order else []
    has_own = not task.space.own_values(task.config)[1]
    fresh = confirmed(folder, task.rule)
    if lost := sorted(one.number for one in fresh if one.number >= len(rows)):
        raise CheckpointError(
            f"{folder.path}: trial {lost[0]} was confirmed and is not among the {len(rows)} trials, some of which are lost; "
            "use another copy of the study"
        )
    return Summary(str(folder.path), task, rows, order, front, _importance(study), has_own, fresh)


def _row(study: Study, trial: Any) -> Row:
    notes = trial.user_attrs
    pruned = trial.state.name == "PRUNED" and trial.intermediate_values
    values = [trial.intermediate_values[max(trial.intermediate_values)]] if pruned else trial.values
    where = notes.get("population"), notes.get("members", [])
    seeds, why = notes.get("seeds", []), notes.get("failed")
    return Row(trial.number, _STATES[trial.state.name], study.settings(trial), values, seeds, why, *where)


def _importance(study: Study) -> dict[str, float]:
    """The share of each knob in what makes good trials differ from all (PED-ANOVA), most important first."""
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if len(complete) < _LEAST_FOR_IMPORTANCE or len({trial.values[0] for trial in complete}) < 2:
        return {}
    library = optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = library.importance.get_param_importances(
            study.optuna_study,
            evaluator=library.importance.PedAnovaImportanceEvaluator(),
            target=lambda trial: trial.values[0],
        )
    return {name: float(share) for name, share in found.items()}


def study_json(found: Summary) -> str:
    """Return a study as one JSON object."""
    task, best = found.task, found.best
    return json.dumps(
        {
            "study": found.path,
            "config": task.name,
            "score": task.rule.text,
            "trials": [asdict(row) for row in found.rows],
            "order": found.order,
            "front": found.front,
            "importance": found.importance,
            "own": 0 if found.has_own else None,
            "confirmed": [{"number": one.number, **asdict(one.result)} for one in found.confirmed],
            "best": None if best is None else best.number,
            "train": None if best is None else train_command(found, best),
        }
    )


def study_lines(found: Summary, most: int) -> list[str]:
    """Return a study as lines of text."""
    counts = {state: sum(row.status == state for row in found.rows) for state in _STATES.values()}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [f"{found.path}: {found.task.name}, {len(found.rows)} trials ({told})", f"score: {found.task.rule.text}"]
    lines += _table(found, most)
    if found.importance:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in found.importance.items())
        lines.append(f"{importance_title(found)}: {shares}")
    lines += [*_confirmation(found), *sureness(found)]
    if found.best is not None:
        lines.append(f"to train it: {train_command(found, found.best)}")
    return lines


def importance_title(found: Summary) -> str:
    """Return what the shares of knobs are, and by how many trials if these are few."""
    few = f", by {len(found.order)} trials alone" if len(found.order) < _MANY_FOR_IMPORTANCE else ""
    return f"what matters among the best (PED-ANOVA{few})"


def _table(found: Summary, most: int) -> list[str]:
    names, rule = list(found.task.space.knobs), found.task.rule
    head = ["trial", *names, rule.name, *([rule.also] if rule.also else []), "seeds", "status"]
    pruned = sorted((row for row in found.rows if row.status == "pruned"), key=lambda row: -(row.values or [0.0])[0])
    shown = [found.rows[number] for number in dict.fromkeys([*found.front, *found.order])]
    shown = [*shown, *pruned, *(row for row in found.rows if row.status == "failed")][:most]
    own = found.rows[0] if found.has_own and found.rows else None
    if own is not None and own not in shown:
        shown.append(own)
    cells = [[*_cells(row, names, len(rule.directions)), status_of(row, found)] for row in shown]
    rows = [head, *cells]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(row: Row, names: Sequence[str], numbers: int) -> list[str]:
    values = [f"{value:.4g}" for value in row.values] if row.values else []
    seeds = " ".join("-" if score is None else f"{score:.4g}" for score in row.seeds)
    return [str(row.number), *(knob_value(row.knobs[name]) for name in names), *(values + ["-"] * numbers)[:numbers], seeds]


def status_of(row: Row, found: Summary) -> str:
    """Return how a trial ended, and what it stands for."""
    own = ", the config's own values" if found.has_own and row.number == 0 else ""
    front = ", not beaten in both" if row.number in found.front else ""
    return f"{row.status}{own}{front}{f': {row.why}' if row.why else ''}"


def knob_value(value: Any) -> str:
    """Return the value of a knob as short text."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value) if not isinstance(value, str) else value


def _confirmation(found: Summary) -> list[str]:
    """What the confirmed trials reached with new seeds."""
    lines = []
    for one in found.confirmed:
        failed = f"failed: {one.result.why_failed}"
        value = failed if one.result.values is None else f"{found.task.rule.name} {one.result.values[0]:.4g}"
        each = " ".join("-" if score is None else f"{score:.4g}" for score in one.result.seeds)
        lines.append(f"trial {one.number} with new seeds: {value} ({each})")
    return lines


def sureness(found: Summary) -> list[str]:
    """Return how far the best may be trusted, and how it stands to the config's own values."""
    if found.best is None:
        return ["no trial is complete, so nothing has been found"]
    if found.confirmed and not any(one.result.values for one in found.confirmed):
        so = f"so trial {found.best.number} is the best only by the seeds it was chosen by"
        return [f"no confirmed trial has a score with new seeds ({_failures(found)}), {so}", *_came_later(found, found.best)]
    return [_against_own(found, found.best), *_came_later(found, found.best), _how_sure(found)]


def _came_later(found: Summary, best: Row) -> list[str]:
    """That the trial at the top of the table was never confirmed, and how to compare it with the best of those that were."""
    top = found.order[0]
    if not found.confirmed or top in found.fresh:
        return []
    reached = max(1, len(_rivals(found)), found.order.index(best.number) + 1 if best.number else 0)
    ahead = f"trial {top} is ahead by the seeds that trials are chosen by, but was not trained with new seeds"
    return [f"{ahead}: the same command with --confirm {reached} compares it with the confirmed ones"]


def _failures(found: Summary) -> str:
    """Which confirmed trials have no score with new seeds, and why."""
    failed = sorted((one.number, one.result.why_failed) for one in found.confirmed if one.result.values is None)
    return "; ".join(f"trial {number}: {why}" for number, why in failed)


def _against_own(found: Summary, best: Row) -> str:
    if not found.has_own:
        return "the config's own values are outside the space, so nothing says whether the best is better than they are"
    if best.number == 0:
        return _own_are_best(found)
    mine, other = found.score_of(best.number), found.score_of(0)
    if mine is None or other is None:
        return _own_without_score(found)
    figures = f"{mine:.4g} against {other:.4g}"
    if mine <= other:
        return f"trial {best.number} is no better than the config's own values: {figures}"
    if not found.confirmed:
        return f"trial {best.number} is ahead of the config's own values, by the seeds it was chosen by: {figures}"
    chance, seeds = _chance(found, best.number), len(found.confirmed[0].result.seeds)
    tries = len(_rivals(found))
    corrected = f", corrected for the choice among {tries} trials" if tries > 1 else ""
    if chance <= _SURE:
        told = f"trial {best.number} is with new seeds better than the config's own values: {figures}"
        return f"{told} (p = {chance:.2g}{corrected})"
    told = f"trial {best.number} is with new seeds ahead of the config's own values: {figures}"
    return f"{told}, which may be chance (p = {chance:.2g} by the ranks of {seeds} seeds each{corrected})"


def _own_are_best(found: Summary) -> str:
    """That no trial is better than trial 0, and by which seeds that is known."""
    if not _rivals(found):
        better = "no other trial was confirmed" if found.order[0] else "no trial was better"
        return f"the config's own values are the best: {better}"
    failures = f" ({_failures(found)})" if _failures(found) else ""
    return f"the config's own values are the best: no confirmed trial was better with new seeds{failures}"


def _own_without_score(found: Summary) -> str:
    """Why nothing can be compared with trial 0."""
    own, fresh = found.rows[0], found.fresh.get(0)
    if fresh is not None:
        return f"the config's own values (trial 0) failed with new seeds: {fresh.why_failed}"
    if own.status in ("running", "waiting"):
        return "the config's own values (trial 0) have no score yet, so nothing says whether the best is better"
    return f"the config's own values (trial 0) were {own.status}: {own.why or 'worse than others at an evaluation'}"


def _rivals(found: Summary) -> list[int]:
    """The confirmed trials beside trial 0, whatever became of them."""
    return [one.number for one in found.confirmed if one.number]


def _chance(found: Summary, number: int) -> float:
    """At most how likely the new seeds of any confirmed trial rank as high against those of trial 0 if all are alike.

    The trial was chosen from several by these very seeds, so the chance of one is taken as often as there are (Bonferroni).
    """
    seeds = {one.number: [score for score in one.result.seeds if score is not None] for one in found.confirmed}
    return min(1.0, len(_rivals(found)) * chance_of_ranking_lower(seeds[0], seeds[number]))


def _how_sure(found: Summary) -> str:
    count = len(found.task.config.seeds or (0,))
    if found.confirmed:
        fresh, scored = len(found.confirmed[0].result.seeds), sum(one.result.values is not None for one in found.confirmed)
        luck = f"; that of the best of {scored} is a little optimistic" if scored > 1 else ""
        return f"the figures with new seeds ({fresh} each) are fair: nothing was chosen by them before{luck}"
    each = "one seed" if count == 1 else f"{count} seeds"
    return (
        f"the best of {len(found.order)} by {each} each is partly lucky: its score is optimistic; "
        "train the best again with new seeds: --confirm 3"
    )


def train_command(found: Summary, row: Row) -> str:
    """Return the command that trains a trial alone, with the settings of the study."""
    knobs = {".".join(path_of(name)): value for name, value in row.knobs.items()}
    words = [part for path, value in knobs.items() for part in ("--set", f"{path}={json.dumps(value)}")]
    return shlex.join(["rl-training", "train", found.task.name, *found.task.options, *words])
