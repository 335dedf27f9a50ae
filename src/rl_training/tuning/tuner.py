"""The loop of a study: ask for a batch, train it as populations, tell what came of it; it may be killed anywhere."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.analysis.logged_run import LoggedRun
from rl_training.config.sweep import MAX_MEMBERS
from rl_training.errors import CheckpointError, ConfigError, DivergedError, RLTrainingError
from rl_training.faults import fault_point
from rl_training.runtime.checkpoints.lock import RunLock
from rl_training.runtime.signals import raise_if_interrupted
from rl_training.storage import canonical_json, parse_json, replace_file
from rl_training.tuning.backends.base import Backend
from rl_training.tuning.folder import StudyFolder, Task
from rl_training.tuning.job import FINISHED, PopulationJob
from rl_training.tuning.plan import Population, plan
from rl_training.tuning.scores import Result, Rule, trial_result
from rl_training.tuning.study import Study

CONFIRM_FILE = "confirm.json"
_CONFIRM_SEEDS = 5  # at least: fewer say little of how sure a result is

Tell = Callable[[str], object]


def tune(folder: StudyFolder, task: Task, trials: int, backend: Backend, say: Tell, confirm: int = 0) -> None:
    """Bring a study to a number of trials, from wherever it stands; then train the best `confirm` again with new seeds.

    Only one process works on a study at a time. What it asks next depends on what is written alone, so one that was killed
    is followed exactly.
    """
    task.check()
    if task.batch * len(task.config.seeds or (0,)) > MAX_MEMBERS:
        raise ConfigError(f"--batch {task.batch} with so many seeds is more than {MAX_MEMBERS:,} members; lower it")
    folder.refuse_foreign()
    if not folder.is_one(folder.path):
        from rl_training.runtime.offline_data import files_fingerprint  # loads torch, which `tune show` does without

        files_fingerprint(task.config)  # data that cannot be read is refused before anything is written
    for line in task.without_effect():
        say(f"warning: {line}")
    with RunLock(folder.path) as lock:
        try:
            study = folder.begin(task)
        except RLTrainingError:
            lock.remove_if_made()
            raise
        own, outside = task.space.own_values(task.config)
        if outside:
            say(f"the config's own {', '.join(outside)} is outside the space, so no trial has its values")
        while study.open_trials or len(study.trials) < trials:
            batch = study.ask_batch(min(task.batch, max(1, trials - len(study.trials))), None if outside else own)
            if not batch:
                say(f"all {len(study.trials)} points of the grid are told")
                break
            _train(folder, task, study, batch[0].user_attrs["begin"], backend, say)
        if confirm:
            _confirm(folder, task, study, confirm, backend, say)


def _train(folder: StudyFolder, task: Task, study: Study, begin: int, backend: Backend, say: Tell) -> None:
    """Train the trials of a batch that are not told yet, and tell them as their populations end."""
    batch = [trial for trial in study.trials if trial.user_attrs["begin"] == begin]
    settings = {trial.number: study.settings(trial) for trial in batch}
    planned = plan(f"trials-{begin:05d}", settings, task.config.record(), folder.populations, task.pruning, task.population)
    for number, why in planned.refused.items():
        study.tell(number, None, notes={"failed": why})
    left = {trial.number for trial in batch if not trial.state.is_finished()}
    waiting = {one.job.name: one for one in planned.populations if left.intersection(one.members)}
    members = len({(one.job.name, member) for one in waiting.values() for own in one.members.values() for member in own})
    if task.pruning and begin == 0 and all(len(one.members) == 1 for one in planned.populations):
        say("warning: --prune does nothing in this batch: it compares trials of one population, and each trial is one")
    several = "s" if len(waiting) != 1 else ""
    say(f"trials {begin} to {begin + len(batch) - 1}: {members} members in {len(waiting)} population{several}")

    def take(job: PopulationJob, status: str) -> None:
        population = waiting[job.name]
        if status != FINISHED and not status.startswith(DivergedError.__name__) and not ranked(study.trials):
            raise ConfigError(f"{job.run_dir}: {status}")  # no trial has a score: it is the config's fault, so none is told
        for number, result in _results(population, status, task.rule).items():
            notes = {"population": job.name, "members": list(population.members[number]), "seeds": result.seeds}
            notes |= {"failed": result.why_failed} if result.why_failed else {}
            study.tell(number, result.values, curve=result.curve, pruned=result.pruned, notes=notes)
        fault_point("tune:told")

    _run(backend, waiting.values(), take)
    say(_best_line(study, task.rule))


def _run(backend: Backend, populations: Iterable[Population], take: Callable[[PopulationJob, str], None]) -> None:
    """Train populations, and take how each ended; a stop that came too late for one is raised when that is done."""
    raise_if_interrupted()
    with closing(backend.run([one.job for one in populations])) as ended:  # whatever happens here, the others save and stop
        for job, status in ended:
            take(job, status)
            raise_if_interrupted()


def _results(population: Population, status: str, rule: Rule) -> dict[int, Result]:
    """What each trial of a population reached, or why none did."""
    if status != FINISHED:
        return {number: Result(None, [], {}, why_failed=status) for number in population.members}
    run = LoggedRun.load(population.job.run_dir)
    return {number: trial_result(run, members, rule) for number, members in population.members.items()}


def _best_line(study: Study, rule: Rule) -> str:
    best = ranked(study.trials)
    if not best:
        return "no trial has a score yet"
    return f"best so far: trial {best[0].number} with {rule.name} {best[0].values[0]:.4g}"


def ranked(trials: Sequence[Any]) -> list[Any]:
    """Return the complete trials, the best first; of two numbers, by the first."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return sorted(complete, key=lambda trial: (-trial.values[0], trial.number))


@dataclass(frozen=True)
class Confirmed:
    """A trial that was trained again with new seeds."""

    number: int
    result: Result


def _confirm(folder: StudyFolder, task: Task, study: Study, count: int, backend: Backend, say: Tell) -> None:
    """Train the best trials, and trial 0 for comparison, with seeds that no trial has seen."""
    best = [trial.number for trial in ranked(study.trials)[:count]]
    chosen = sorted({*best, 0}) if study.trials[0].state.name == "COMPLETE" else best
    if not chosen:
        raise ConfigError(f"{folder.path}: no trial has a score, so there is none to confirm")
    old = task.config.seeds or (task.config.seed,)
    seeds = list(range(max(old) + 1, max(old) + 1 + max(_CONFIRM_SEEDS, len(old))))
    say(f"confirming trials {', '.join(map(str, chosen))} with seeds {seeds[0]}..{seeds[-1]}")
    settings = {number: study.settings(study.trials[number]) for number in chosen}
    name = "confirm-" + "-".join(map(str, chosen))
    planned = plan(name, settings, {**task.config.record(), "seeds": seeds}, folder.populations, None, task.population)

    def take(job: PopulationJob, status: str) -> None:
        if status != FINISHED:
            raise ConfigError(f"{job.run_dir}: {status}")

    _run(backend, planned.populations, take)
    places = {
        str(number): {"population": one.job.name, "members": list(members)}
        for one in planned.populations
        for number, members in one.members.items()
    }
    replace_file(folder.path / CONFIRM_FILE, canonical_json({"seeds": seeds, "trials": places}))


def confirmed(folder: StudyFolder, rule: Rule) -> list[Confirmed]:
    """Return what the confirmed trials reached with their new seeds, the best first; empty if none were confirmed."""
    path: Path = folder.path / CONFIRM_FILE
    if not path.exists():
        return []
    content = parse_json(path.read_bytes(), str(path))
    try:
        places = {int(number): (str(one["population"]), list(one["members"])) for number, one in content["trials"].items()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: is damaged ({error!r}); use another copy of the study") from None
    runs = {name: LoggedRun.load(folder.populations / name) for name, _ in places.values()}
    found = [Confirmed(number, trial_result(runs[name], members, rule)) for number, (name, members) in places.items()]
    return sorted(found, key=lambda one: -(one.result.values or [float("-inf")])[0])
