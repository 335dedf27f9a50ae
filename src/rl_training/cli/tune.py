"""`rl-training tune` and `tune show`: parsing and printing only."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rl_training.cli.options import DebugOption, DeviceOption, ImportOption, JsonOption, ReadChoice, without_read_options
from rl_training.errors import ConfigError
from rl_training.remote.address import refuse_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rl_training.tuning.folder import Task


class _RunByDefault(TyperGroup):
    """`tune CONFIG` is `tune run CONFIG`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the name of the command where none is given."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


tune_app = typer.Typer(
    name="tune", cls=_RunByDefault, help="Search for better knobs: many trials, trained side by side.", rich_markup_mode=None
)


def tune(
    config: Annotated[str, typer.Argument(help="An algorithm, a packaged config such as iql/pendulum, or a YAML file.")],
    space: Annotated[str, typer.Option(help="YAML file: `expectile: {low: 0.6, high: 0.95}` and so on.")],
    trials: Annotated[int, typer.Option(min=1, help="Trials of the whole study; more may be asked for later.")],
    reading: ReadChoice,
    run_dir: Annotated[
        str | None, typer.Option(help="Directory of the study, continued if it is there; runs/tune/<config> by default.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="A file, a folder of episode files, or a glob in quotes.")] = None,
    env: Annotated[str | None, typer.Option("--env", help="Gymnasium environment to evaluate in.")] = None,
    seeds: Annotated[str, typer.Option(help="The seeds of every trial: 0,1,2 or 0..9.")] = "0..2",
    batch: Annotated[int, typer.Option(min=1, help="Trials that are asked for at once and trained side by side.")] = 16,
    sampler: Annotated[str, typer.Option(help="tpe, random, grid, or for two numbers nsga2.")] = "tpe",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    score: Annotated[str, typer.Option(help="iqm, mean or lower (mean less its standard error), over seeds.")] = "iqm",
    score_of: Annotated[str, typer.Option(help="The last evaluation, or the best (which is optimistic).")] = "last",
    also: Annotated[
        str | None, typer.Option(help="A second number, to be low: spread (over seeds) or action_distance.")
    ] = None,
    prune: Annotated[str | None, typer.Option(help="Stop the worse trials early: median or halving.")] = None,
    confirm: Annotated[int, typer.Option(min=0, help="Train the best so many trials again with new seeds, at the end.")] = 0,
    storage: Annotated[str | None, typer.Option(help="URL of a database; by default a journal in the directory.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Populations that train side by side, each in a process.")] = 1,
    population: Annotated[int | None, typer.Option(min=1, help="Trials of one population at most; all of a batch.")] = None,
    backend: Annotated[str, typer.Option(help="Where populations train: local, ray or slurm.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; without one, a Ray on this machine alone.")] = None,
    slurm: Annotated[list[str] | None, typer.Option(help="key=value of sbatch: time=240, partition=gpu; repeated.")] = None,
    gpus: Annotated[float | None, typer.Option(min=0, help="GPUs of a population, with Ray also 0.5.")] = None,
    cpus: Annotated[int, typer.Option(min=1, help="CPUs of a population, with Ray or Slurm.")] = 1,
    imports: ImportOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Search for better knobs of a config. Without an environment, the score is an estimate from held-out data."""
    del debug
    from rl_training.cli.training import parse_seeds
    from rl_training.config.loading import apply_override, load_config
    from rl_training.runtime.signals import interrupted_by_stop_signals
    from rl_training.tuning.backends.choice import Place
    from rl_training.tuning.folder import StudyFolder, Task
    from rl_training.tuning.scores import Rule
    from rl_training.tuning.space import read_space
    from rl_training.tuning.study import optuna
    from rl_training.tuning.tuner import tune as run_study

    optuna()  # before anything else: without it nothing can come of this
    given = {"env_id": env, "device": device, "env_imports": imports or None}
    extra: dict[str, Any] = {"seeds": parse_seeds(seeds), **{key: value for key, value in given.items() if value is not None}}
    settings = settings or []
    chosen = load_config(config, settings, extra, dataset or (), reading.settings)
    if chosen.final_env_id is None and chosen.select_by is None:
        settings = [*settings, "select_by=fqe"]
        chosen = load_config(config, settings, extra, dataset or (), reading.settings)
    rule = Rule(
        _one_of("score", score, "iqm", "mean", "lower"),
        _one_of("score-of", score_of, "last", "best"),
        None if also is None else _one_of("also", also, "spread", "action_distance"),
        chosen.select_by,
    )
    pruning = None if prune is None else {"kind": _one_of("prune", prune, "median", "halving")}
    kind = _one_of("sampler", sampler, "tpe", "random", "grid", "nsga2")
    words = (*_words({"set": settings, "dataset": dataset, "env": [env] if env else []}), *reading.words)
    task = Task(config, chosen, read_space(space, chosen), rule, kind, seed, batch, pruning, storage, words, population)
    refuse_address(run_dir, "a study")
    folder = StudyFolder(run_dir or f"runs/tune/{config.replace('/', '-').removesuffix('.yaml')}")
    sbatch: dict[str, Any] = {}
    for one in slurm or ():
        apply_override(sbatch, one)
    where = Place(backend, jobs, address, sbatch, gpus, cpus).backend(folder.path)
    with interrupted_by_stop_signals(f"{folder.path} is saved; the same command goes on"):
        run_study(folder, task, trials, where, lambda text: print(text, file=sys.stderr, flush=True), confirm)
    _print(folder.path, task, as_json=as_json, best=10)


tune_app.command("run")(without_read_options(tune))


@tune_app.command()
def show(
    study: Annotated[str, typer.Argument(help="The directory of a study.", metavar="STUDY")],
    best: Annotated[int, typer.Option(min=1, help="Trials to list.")] = 10,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what a study has found: its best trials, which knobs matter, how sure that is and how to train the winner."""
    del debug
    from rl_training.tuning.folder import StudyFolder

    _print(study, StudyFolder(study).read(), as_json=as_json, best=best)


def _print(path: Any, task: "Task", *, as_json: bool, best: int) -> None:
    from rl_training.tuning.folder import StudyFolder
    from rl_training.tuning.showing import study_json, study_lines, summary

    found = summary(StudyFolder(path), task)
    print(study_json(found) if as_json else "\n".join(study_lines(found, best)))


def _words(options: "Mapping[str, Sequence[str] | None]") -> tuple[str, ...]:
    """The options that make the same config with `train`."""
    return tuple(word for name, values in options.items() for value in values or () for word in (f"--{name}", value))


def _one_of(option: str, given: str, *known: str) -> Any:
    if given not in known:
        raise ConfigError(f"--{option} {given!r}: must be {', '.join(known[:-1])} or {known[-1]}")
    return given
