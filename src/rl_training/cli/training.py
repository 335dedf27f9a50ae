"""`rl-training train | resume | finetune`: parsing and printing only."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import (
    DebugOption,
    DeviceOption,
    EnvKwargsOption,
    EnvOption,
    ImportOption,
    JsonOption,
    LogOption,
    MemberOption,
    ReadChoice,
    RunArgument,
    best_text,
    combination_table,
    log_setting,
    parse_env_kwargs,
    parse_sweep,
)
from rl_training.errors import ConfigError, suggested
from rl_training.output import return_text, say

if TYPE_CHECKING:
    from rl_training.config.run import RunConfig
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.runtime.checkpoints.checkpoint import Checkpoint
    from rl_training.runtime.result import TrainingResult

_KINDS = "a CSV, Parquet, npz or HDF5 file, a folder of episode files, a glob in quotes, or minari:ID"
_CONTINUED_IN = "Continue in a new run directory; one member or a checkpoint outside a run always does, by default in runs/."
_FORGOTTEN = "Go on from the weights alone where the replay of an online run is damaged; no longer exact, and recorded so."
_FINETUNED_IN = "Finetune in a new run directory and leave RUN as it is; required for a checkpoint outside a run."
_FINETUNE_SETTINGS = "key=value of the finetune block, such as replay=append or eval_interval=500; may be repeated."

_UNITS = {"step": "gradient step", "env step": "environment step"}  # of phases, as a summary names them


def train(
    config: Annotated[
        str, typer.Argument(help="An algorithm such as iql, a packaged config such as iql/pendulum, or a YAML file.")
    ],
    reading: ReadChoice,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="A file, a folder of episode files, a glob in quotes, or minari:ID; may be repeated."),
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Gymnasium environment to learn or evaluate in.")] = None,
    env_kwargs: EnvKwargsOption = None,
    imports: ImportOption = None,
    total_timesteps: Annotated[
        int | None, typer.Option(help="Budget of the run: gradient steps offline, environment steps online.")
    ] = None,
    run_dir: Annotated[str | None, typer.Option(help="Directory of the run; runs/<algo>/<env>/<name> by default.")] = None,
    resume: Annotated[str | None, typer.Option(help="`auto`: continue from the latest checkpoint, or start.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over in a used run directory.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.path=value; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a solo run.")] = None,
    seeds: Annotated[str | None, typer.Option(help="A population: 0,1,2 or 0..9.")] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(help="knob=0.7,0.8: train every value (or combination, if repeated) with every seed.")
    ] = None,
    device: DeviceOption = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, compile or graph.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or on a GPU tf32 or bf16.")] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train a policy, evaluate it and save it. No file is needed: train iql --dataset logs/."""
    del debug
    from rl_training.config.loading import load_config

    _require_source(config, dataset, env, settings or ())

    if resume not in (None, "auto"):
        raise ConfigError(f"--resume {resume!r}: only `auto` is known")
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other")
    given = {"device": device, "engine": engine, "precision": precision, "env_id": env, "total_timesteps": total_timesteps}
    extra: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    extra |= log_setting(log)
    extra |= {"env_imports": imports} if imports else {}
    extra |= {"env_kwargs": parse_env_kwargs(env_kwargs)} if env_kwargs is not None else {}
    if seed is not None and seeds is not None:
        raise ConfigError("--seed and --seeds exclude each other")
    if seed is not None:
        extra |= {"seed": seed, "seeds": None}
    if seeds is not None:
        extra["seeds"] = parse_seeds(seeds)
    if sweep:
        extra["sweep"] = parse_sweep(sweep)
    chosen = load_config(config, settings or (), extra, dataset or (), reading.settings)
    _require_data(config, chosen)
    if resume and run_dir is None and chosen.run_name is None:
        raise ConfigError("--resume auto needs a --run-dir (or a run_name): without one every start gets a new directory")
    from rl_training.experiment.manager import ExperimentManager

    manager = ExperimentManager(chosen, run_dir)
    _run(manager, as_json, resume=resume == "auto", overwrite=overwrite)


def _require_source(config: str, dataset: Sequence[str] | None, env: str | None, settings: Sequence[str]) -> None:
    """Show the command to type if an algorithm is named alone, without what it learns from."""
    from rl_training.registry import REGISTRY

    if config not in REGISTRY or Path(config).is_file():
        return
    spec = REGISTRY[config]
    named = [setting.partition("=")[2] for setting in settings if setting.startswith("env_id=")]
    env = named[-1] if env is None and named else env
    lacks_data = spec.takes_data and not dataset and not any(s.startswith("algo_kwargs.dataset") for s in settings)
    if lacks_data or (spec.online and env is None):
        wants = "an environment and data" if spec.online and spec.takes_data else "an environment" if spec.online else "data"
        example = env or ("Pendulum-v1" if spec.online else None)
        raise ConfigError(f"{config} needs {wants} to learn from: {_ways(config, example, data=spec.takes_data)}")


def _require_data(config: str, chosen: "RunConfig[Any]") -> None:
    """Show the command to type if a config leaves the data to the user, as those of benchmarks do."""
    from rl_training.registry import get_spec

    if get_spec(chosen.algo).takes_data and not chosen.algo_kwargs.dataset:
        raise ConfigError(f"{config} needs data to learn from: {_ways(config, chosen.env_id, data=True)}")


def _ways(config: str, env: str | None, *, data: bool) -> str:
    """The command that names what to learn from: files, or a recipe that makes data in the environment."""
    command = suggested("train", config, *(["--env", env] if env else []), *(["--dataset", "logs/"] if data else []))
    if not data:
        return command
    recipe = f"{'' if env else '--env ENV '}--set algo_kwargs.dataset.kind=random"
    return f"{command} ({_KINDS}), or in place of --dataset {recipe} for random data made in {env or 'ENV'}"


def resume(
    run: RunArgument,
    run_dir: Annotated[str | None, typer.Option(help=_CONTINUED_IN)] = None,
    member: MemberOption = None,
    total_timesteps: Annotated[int | None, typer.Option(help="A larger budget (constant schedules only).")] = None,
    forget_replay: Annotated[bool, typer.Option("--forget-replay", help=_FORGOTTEN)] = False,
    imports: ImportOption = None,
    device: DeviceOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Continue a run exactly where it stopped; with --member, continue one member alone in a new run directory."""
    del imports, debug
    from rl_training.experiment.manager import ExperimentManager

    manager, checkpoint = ExperimentManager.resuming(run, run_dir, member, forget_replay=forget_replay)
    changes: dict[str, Any] = log_setting(log)
    if total_timesteps is not None:
        changes["total_timesteps"] = total_timesteps
    if device is not None:
        changes["device"] = device
    manager.config = _changed(manager.config, changes)
    _run(manager, as_json, resume=True, checkpoint=checkpoint)


def finetune(
    run: RunArgument,
    env_steps: Annotated[int, typer.Option(help="Environment steps of the online phase.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help=_FINETUNE_SETTINGS)] = None,
    env: EnvOption = None,
    env_kwargs: EnvKwargsOption = None,
    imports: ImportOption = None,
    run_dir: Annotated[str | None, typer.Option(help=_FINETUNED_IN)] = None,
    device: DeviceOption = None,
    log: LogOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Continue a finished offline run in its environment, or in another one; `resume` continues the finetune itself."""
    del debug
    from rl_training.config.loading import apply_override
    from rl_training.experiment.manager import ExperimentManager

    block: dict[str, Any] = {"env_steps": env_steps}
    for setting in settings or ():
        apply_override(block, setting)
    if env is not None:
        block["env_id"] = env
    if env_kwargs is not None:
        block["env_kwargs"] = parse_env_kwargs(env_kwargs)
    manager, checkpoint = ExperimentManager.finetuning(run, block, run_dir)
    changes: dict[str, Any] = log_setting(log)
    if device is not None:
        changes["device"] = device
    if imports:
        changes["env_imports"] = list(dict.fromkeys([*manager.config.env_imports, *imports]))
    manager.config = _changed(manager.config, changes)
    _run(manager, as_json, resume=True, checkpoint=checkpoint)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `0,1,2` or `0..9`, both ends included."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split("..", 1))
            if not 0 <= last - first < 4096:
                raise ValueError
            return list(range(first, last + 1))
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {text!r}: must look like 0,1,2 or 0..9") from None


def _changed(config: "RunConfig[Any]", changes: dict[str, Any]) -> "RunConfig[Any]":
    from rl_training.config.loading import make_config

    return make_config({**config.record(), **changes}, "resume") if changes else config


def _run(
    manager: "ExperimentManager",
    as_json: bool,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint: "Checkpoint | None" = None,
) -> None:
    from rl_training.runtime.progress import QuietReporter, default_reporter

    reporter = QuietReporter() if as_json else default_reporter()
    result = manager.train(resume=resume, overwrite=overwrite, checkpoint=checkpoint, reporter=reporter)
    if manager.speaks:
        _print_result(manager, result, as_json)


def _print_result(manager: "ExperimentManager", result: "TrainingResult", as_json: bool) -> None:
    from rl_training.runtime.validating.held_out import figures_line

    members = [{"member": index, **vars(record)} for index, record in enumerate(result.members)]
    if as_json:
        counters = {"step": result.step, "env_step": result.env_step}
        summary = {"run_dir": manager.place, **counters, "checkpoint": str(result.checkpoint)}
        swept = {"combinations": [asdict(one) for one in result.combinations]} if result.combinations else {}
        for number, figures in enumerate(result.held_out):
            members[number]["held_out"] = figures
        print(json.dumps({**summary, "members": members, **swept}))
        return
    for row, record in zip(members, result.members, strict=True):
        parts = [] if row["last_return"] is None else [f"return {return_text(row['last_return'])}"]
        if row["best_return"] is not None:
            unit = _UNITS.get(row["best_unit"] or "", "step")
            parts.append(f"best {return_text(row['best_return'])} at {unit} {row['best_step']:,}")
        if result.held_out:
            parts.append(f"held out: {figures_line([result.held_out[row['member']]])}")
        who = f"member {row['member']} seed" if len(members) > 1 else "seed"
        status = "" if row["status"] == "training" else f" ({row['status']})"
        known = "not evaluated" if manager.config.final_env_id else f"as before, see {suggested('report', manager.place)}"
        print(f"{who} {record.label}: {', '.join(parts) or known}{status}")
    _print_random_play(manager, result)
    _print_combinations(manager, result)
    taken = "" if result.env_step is None else f" and {result.env_step:,} environment steps"
    print(f"after {result.step:,} gradient steps{taken}")
    print(f"run: {manager.place}")
    if manager.config.final_env_id is None:
        best = " --best" if manager.config.select_by else ""
        asked, data = (suggested(word, manager.place) for word in ("predict", "evaluate"))
        print(f"next: {asked} --obs '[...]'{best}, or {data} --data PATH{best}")
    else:
        evaluate = suggested("evaluate", manager.place, "--episodes", 20, imports=manager.config.env_imports)
        print(f"next: {evaluate}")


def _print_random_play(manager: "ExperimentManager", result: "TrainingResult") -> None:
    """Print what random actions earned, and warn if the policy earns no more."""
    from rl_training.analysis.logged_run import LoggedRun
    from rl_training.analysis.random_play import random_play

    play = random_play(LoggedRun.load(manager.run_dir))
    returns = [record.last_return for record in result.members if record.last_return is not None]
    if play is None or not returns:
        return
    print(play)
    if sum(returns) / len(returns) <= play.mean:
        say(
            "warning: the policy earns no more than random actions do: train longer, bring rewards and observations near 1, "
            "or, where rewards are rare or small beside the entropy bonus, lower initial_alpha (0.01) or scale rewards up"
        )


def _print_combinations(manager: "ExperimentManager", result: "TrainingResult") -> None:
    """Print the table of a sweep on new episodes, or that of trials by the last evaluation; nothing without returns."""
    from rl_training.runtime.population import best_combination

    best = best_combination(found := result.combinations)
    if best is None:
        return
    new = result.final_evaluation is not None
    where = "on new episodes; the returns above are of the last evaluation in training" if new else "by the last evaluation"
    print(f"combinations over their seeds, {where}")
    print("\n".join(combination_table(found)))
    print(best_text(best, "on these new episodes") if new else _best_as_reported(manager))
    print(f"may it be chance? `{suggested('compare', manager.place, '--against', 'all')}` tells, by the last evaluation")


def _best_as_reported(manager: "ExperimentManager") -> str:
    """The best of listed trials, by the rule and the evaluations of the report."""
    from rl_training.analysis.logged_run import LoggedRun
    from rl_training.report.bands import groups_of
    from rl_training.report.facts import combinations, returns_of, spread_text

    best, facts = combinations(groups_of([LoggedRun.load(manager.run_dir)]))[0]
    final = spread_text(returns_of(facts, "final"))
    return f"best: {best.label} with return {final} ({len(facts)} seeds, as the report ranks them)"
