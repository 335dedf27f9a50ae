"""The command line: parsing and printing only. `--help` loads no schema, and config errors load no torch.

A command imports what it works with in its body: what stands at the top here is paid for by every `--help`.
"""

import errno
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli import data
from rl_training.cli.bench import bench
from rl_training.cli.options import DebugOption, DeviceOption, JsonOption, MemberOption
from rl_training.cli.sweeps import combination_table, parse_sweep
from rl_training.errors import ConfigError, RLTrainingError

if TYPE_CHECKING:
    from rl_training.api.policy import Policy
    from rl_training.experiment.config import RunConfig
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.runtime.checkpoint import Checkpoint
    from rl_training.runtime.loop import TrainingResult

app = typer.Typer(
    name="rl-training",
    help="Turn logged data into control policies.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app)
app.command()(bench)

RunArgument = Annotated[str, typer.Argument(help="A run directory or one checkpoint in it.", metavar="RUN")]


@app.command()
def train(
    config: Annotated[str, typer.Argument(help="A packaged name such as iql/pendulum, or a YAML file.")],
    run_dir: Annotated[str | None, typer.Option(help="Where the run goes; runs/<algo>/<env>/<name> by default.")] = None,
    resume: Annotated[str | None, typer.Option(help="`auto`: go on from the latest checkpoint, or start.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over in a used run directory.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key.path=value, as often as needed.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a solo run.")] = None,
    seeds: Annotated[str | None, typer.Option(help="A population: 0,1,2 or 0..9.")] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(help="knob=0.7,0.8: every value (of several, every combination) with every seed.")
    ] = None,
    device: DeviceOption = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, compile or graph.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or on a GPU tf32 or bf16.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train a policy, evaluate it and save it."""
    del debug
    from rl_training.experiment.config import load_config

    if resume not in (None, "auto"):
        raise ConfigError(f"--resume {resume!r}: only `auto` is known")
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other")
    chosen_engine = {"device": device, "engine": engine, "precision": precision}
    extra: dict[str, Any] = {key: value for key, value in chosen_engine.items() if value is not None}
    if seed is not None and seeds is not None:
        raise ConfigError("--seed and --seeds exclude each other")
    if seed is not None:
        extra |= {"seed": seed, "seeds": None}
    if seeds is not None:
        extra["seeds"] = parse_seeds(seeds)
    if sweep:
        extra["sweep"] = parse_sweep(sweep)
    chosen = load_config(config, settings or (), extra)
    if resume and run_dir is None and chosen.run_name is None:
        raise ConfigError(
            "--resume auto needs a --run-dir (or a run_name): without one every start has a directory of its own"
        )
    from rl_training.experiment.manager import ExperimentManager

    manager = ExperimentManager(chosen, run_dir)
    _run(manager, as_json, resume=resume == "auto", overwrite=overwrite)


@app.command()
def resume(
    run: RunArgument,
    run_dir: Annotated[str | None, typer.Option(help="A new run directory, for a lone checkpoint or one member.")] = None,
    member: MemberOption = None,
    total_timesteps: Annotated[int | None, typer.Option(help="A larger budget (constant schedules only).")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Go on with a run exactly where it stopped; with --member, with one member alone in a new run directory."""
    del debug
    from rl_training.experiment.manager import ExperimentManager

    manager, checkpoint = ExperimentManager.resuming(run, run_dir, member)
    changes: dict[str, Any] = {} if total_timesteps is None else {"total_timesteps": total_timesteps}
    if device is not None:
        changes["device"] = device
    manager.config = _changed(manager.config, changes)
    _run(manager, as_json, resume=True, checkpoint=checkpoint)


@app.command()
def finetune(
    run: RunArgument,
    env_steps: Annotated[int, typer.Option(help="Environment steps of the online phase.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of the finetune block, as often as needed.")
    ] = None,
    run_dir: Annotated[str | None, typer.Option(help="A new run directory, for a lone checkpoint.")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Go on with a finished offline run in its environment; `resume` goes on with the finetune itself."""
    del debug
    from rl_training.experiment.config import apply_override
    from rl_training.experiment.manager import ExperimentManager

    block: dict[str, Any] = {"env_steps": env_steps}
    for setting in settings or ():
        apply_override(block, setting)
    manager, checkpoint = ExperimentManager.finetuning(run, block, run_dir)
    manager.config = _changed(manager.config, {} if device is None else {"device": device})
    _run(manager, as_json, resume=True, checkpoint=checkpoint)


@app.command("export-member")
def export_member(
    run: RunArgument,
    out: Annotated[str, typer.Option(help="Where the new run directory goes; it must not exist yet.")],
    member: MemberOption = None,
    seed: Annotated[int | None, typer.Option(help="The member by its seed, where only one has it.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Take the best checkpoint, not the last.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write one member of a population as a solo run of its own, for every other command to go on with."""
    del debug
    from rl_training.experiment.export import export_member as export
    from rl_training.experiment.manager import ExperimentManager

    _refuse_best_of_a_checkpoint(run, best)
    path = export(run, out, member=member, seed=seed, which="best" if best else "latest")
    config = ExperimentManager.open(path).config
    if as_json:
        print(json.dumps({"run_dir": str(path), "algo": config.algo, "seed": config.seed}))
        return
    print(f"run: {path}")
    print(f"next: rl-training resume {path}, or evaluate, predict")


@app.command()
def evaluate(
    run: RunArgument,
    episodes: Annotated[int, typer.Option(help="Episodes per member.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Seed of the episodes; the training seed by default.")] = None,
    member: MemberOption = None,
    best: Annotated[bool, typer.Option("--best", help="Take the best checkpoint, not the last.")] = False,
    normalize: Annotated[bool, typer.Option("--normalize", help="Also as D4RL or NeoRL-2 score: 0 to 100.")] = False,
    reference: Annotated[
        str | None, typer.Option(help="Task or dataset of the score; that of the environment by default.")
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure a policy in its environment, with fixed seeds and the mean action."""
    del debug
    from rl_training.api.policy import Policy, evaluation_report
    from rl_training.data.reference_scores import normalized_score, reference_of

    _refuse_best_of_a_checkpoint(run, best)
    policy = Policy.load(run, device=device or "auto", which="best" if best else "latest")
    named = reference or (policy.config.env_id if normalize else None)
    task = reference_of(named) if named else None
    report = evaluation_report(policy.evaluate(episodes, seed), policy.members, member)
    counters = {"step": policy.learner.step, "env_step": policy.checkpoint.env_step if policy.checkpoint else None}
    report = {"algo": policy.config.algo, "env_id": policy.config.env_id, **counters, **report}
    if task is not None:
        report |= {"normalized_score": normalized_score(report["return_mean"], task[0]), "reference": task[0]}
    if as_json:
        print(json.dumps(report))
        return
    _print_evaluation(policy, report, task, episodes)


@app.command()
def predict(
    run: RunArgument,
    obs: Annotated[str, typer.Option(help="One observation '[1.0, 0.0, 0.0]', or a list of them.")],
    member: MemberOption = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample instead of taking the mean action.")] = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print the action of a policy for an observation."""
    del debug
    from rl_training.api.policy import Policy

    observation = _parse_observation(obs)
    policy = Policy.load(run, device=device or "cpu")
    chosen = policy.best_member() if member is None else member
    action = policy.predict(observation, deterministic=not stochastic, member=chosen).tolist()
    if as_json:
        print(json.dumps({"action": action, "member": chosen}))
        return
    if member is None and policy.learner.model.members > 1:
        print(f"member {chosen}, seed {policy.members[chosen].label}, the best by last evaluation", file=sys.stderr)
    print(json.dumps(action))


@app.command("list")
def list_algorithms(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show the algorithms and the packaged configs."""
    del debug
    from rl_training.experiment.config import packaged_configs
    from rl_training.experiment.registry import REGISTRY

    configs = list(packaged_configs())
    if as_json:
        algorithms = {spec.id: {"title": spec.title, "summary": spec.summary} for spec in REGISTRY.values()}
        print(json.dumps({"algorithms": algorithms, "configs": configs}))
        return
    print("algorithms")
    for spec in REGISTRY.values():
        print(f"  {spec.id:<8} {spec.title}: {spec.summary}")
    print("packaged configs (rl-training train NAME)")
    for name in configs:
        print(f"  {name}")


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


def _refuse_best_of_a_checkpoint(run: str, best: bool) -> None:
    from rl_training.experiment.manager import locate

    if best and locate(run)[1] is not None:
        raise ConfigError(f"--best asks for the best checkpoint of a run, but {run} is one checkpoint")


def _parse_observation(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list) or not value:
        raise ConfigError(f"--obs {text[:60]!r}: must be a JSON list of numbers, such as '[1.0, 0.0, 0.0]'")
    rows = value if isinstance(value[0], list) else [value]
    for row in rows:
        numbers = isinstance(row, list) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in row)
        if not numbers or len(row) != len(rows[0]):
            raise ConfigError(f"--obs {text[:60]!r}: must hold numbers only, in rows of one length")
    return value


def _print_evaluation(policy: "Policy", report: dict[str, Any], task: tuple[str, float, float] | None, episodes: int) -> None:
    from rl_training.data.reference_scores import reference_source
    from rl_training.runtime.members import combinations

    low, high = report["return_interval"]
    taken = f"{report['step']:,} gradient steps"
    if report["env_step"] is not None:
        taken = f"{report['env_step']:,} environment steps and {taken}"
    print(f"{report['algo']} on {report['env_id']} after {taken}, {episodes} episodes per member")
    print(f"return {report['return_mean']:.1f} +- {report['return_std']:.1f}  (95 % of the mean: {low:.1f} to {high:.1f})")
    if task is not None:
        name, lowest, highest = task
        print(
            f"score  {report['normalized_score']:.1f}  ({reference_source(name)} {name}: {lowest:g} is 0, {highest:g} is 100)"
        )
    if len(report["members"]) > 1:
        for row in report["members"]:
            label = policy.members[row["member"]].label
            lost = f" (diverged at step {row['diverged_at']}, not counted)" if "diverged_at" in row else ""
            print(f"  member {row['member']} seed {label}: {row['return_mean']:.1f} +- {row['return_std']:.1f}{lost}")
        means = [row["return_mean"] for row in report["members"]]
        for line in combination_table(combinations(policy.members, means)):
            print(line)


def _changed(config: "RunConfig[Any]", changes: dict[str, Any]) -> "RunConfig[Any]":
    from rl_training.experiment.config import make_config

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
    _print_result(manager, result, as_json)


def _print_result(manager: "ExperimentManager", result: "TrainingResult", as_json: bool) -> None:
    members = [{"member": index, **vars(record)} for index, record in enumerate(result.members)]
    if as_json:
        counters = {"step": result.step, "env_step": result.env_step}
        summary = {"run_dir": str(manager.run_dir), **counters, "checkpoint": str(result.checkpoint)}
        swept = {"combinations": [asdict(one) for one in result.combinations]} if result.combinations else {}
        print(json.dumps({**summary, "members": members, **swept}))
        return
    for row, record in zip(members, result.members, strict=True):
        score = "not evaluated" if row["last_return"] is None else f"return {row['last_return']:.1f}"
        best = "" if row["best_return"] is None else f", best {row['best_return']:.1f} at step {row['best_step']:,}"
        who = f"member {row['member']} seed" if len(members) > 1 else "seed"
        print(f"{who} {record.label}: {score}{best}" + ("" if row["status"] == "training" else f" ({row['status']})"))
    for line in combination_table(result.combinations):
        print(line)
    print(f"run: {manager.run_dir}")
    if manager.config.env_id is None:
        print(f"next: rl-training predict {manager.run_dir} --obs '[...]'")
    else:
        print(f"next: rl-training evaluate {manager.run_dir} --episodes 20")


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; a user's fault is one clear line on standard error."""
    debug = "--debug" in arguments
    try:
        code = app(list(arguments) or ["--help"], prog_name="rl-training", standalone_mode=False)
        if sys.stdout is not None:  # it is None when it was closed before we started
            sys.stdout.flush()
        return code if isinstance(code, int) else 0  # 130 when the parser caught Ctrl-C
    except RLTrainingError as error:
        if debug:
            traceback.print_exc()
        for line in str(error).splitlines():
            print(f"error: {line}" if error.exit_code < 128 else line, file=sys.stderr)
        return error.exit_code
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        print("error: not enough memory; lower batch_size, hidden_sizes, buffer_capacity or the seeds", file=sys.stderr)
        return 6
    except KeyboardInterrupt:  # before a run has anything to save
        print("stopped before training began", file=sys.stderr)
        return 130
    except OSError as error:
        code = _output_fault(error)
        if code is None:
            raise
        return code
    except typer.Exit as leave:
        return leave.exit_code
    except Exception as error:
        usage = _usage_error(error)
        if usage is None:
            raise
        return usage


def _output_fault(error: OSError) -> int | None:
    """Return the exit code when standard output was closed (`| head`, not our fault) or is full; None for another error."""
    if not isinstance(error, BrokenPipeError) and error.errno != errno.ENOSPC:
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be said there
    if isinstance(error, BrokenPipeError):
        return 0
    print(f"error: output cannot be written: {error.strerror}", file=sys.stderr)
    return 6


def _usage_error(error: Exception) -> int | None:
    """Print an error of the argument parser and return exit code 2; None for any other error."""
    if not hasattr(error, "format_message"):
        return None
    print(f"error: {error.format_message()}; try `rl-training --help`", file=sys.stderr)
    return 2
