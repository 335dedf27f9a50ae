"""`rl-training evaluate | predict | export | export-member`: parsing and printing only."""

import json
import secrets
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.observations import parse_observation
from rl_training.cli.options import (
    DebugOption,
    DeviceOption,
    EnvKwargsOption,
    EnvOption,
    ImportOption,
    JsonOption,
    MemberOption,
    ReadChoice,
    RunArgument,
    best_text,
    combination_table,
    full_path,
    interval_text,
    mean_text,
    named_env,
)
from rl_training.errors import ConfigError, suggested

if TYPE_CHECKING:
    from rl_training.api.policy import Policy

CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", help="Of a run directory: latest (the default), best, or a step.")
]
_MOST_UNFAMILIAR = 5  # columns that `predict` warns of
_MOST_NAMED = 6  # members in a warning
_LAST_SEED = 2**31 - 1
BestOption = Annotated[bool, typer.Option("--best", help="The same as --checkpoint best.")]


def evaluate(
    run: RunArgument,
    reading: ReadChoice,
    episodes: Annotated[int, typer.Option(help="Episodes per member.")] = 10,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the episodes; by default each member's own. Never those of training.")
    ] = None,
    env: EnvOption = None,
    env_kwargs: EnvKwargsOption = None,
    imports: ImportOption = None,
    data: Annotated[
        str | None, typer.Option(help="Logged data to compare the policy with, instead of an environment.")
    ] = None,
    member: MemberOption = None,
    checkpoint: CheckpointOption = None,
    best: BestOption = False,
    normalize: Annotated[bool, typer.Option("--normalize", help="Also print the D4RL or NeoRL-2 score, 0 to 100.")] = False,
    reference: Annotated[str | None, typer.Option(help="Task or dataset of the score; by default the environment's.")] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure a policy in its environment, or in another one, with fixed seeds and the mean action; or on logged data."""
    del imports, debug
    from rl_training.api.policy import Policy, evaluation_report

    if data is not None:
        if env is not None:
            raise ConfigError("--env and --data exclude each other: evaluate twice")
        policy = Policy.load(run, device=device or "auto", which=which_checkpoint(run, checkpoint, best))
        _warn_of_divergence(policy, member)
        _evaluate_on_data(policy, data, reading.settings, member, as_json)
        return
    reading.check_used_with(data)
    from rl_training.envs.environments import infer_env_spaces, unused_range
    from rl_training.envs.evaluation import cut_short
    from rl_training.envs.reference_scores import normalized_score, reference_of

    policy = Policy.load(run, device=device or "auto", which=which_checkpoint(run, checkpoint, best))
    chosen = named_env(env, env_kwargs, policy.config.final_environment)
    named = reference or (str(chosen) if normalize and chosen else None)
    task = reference_of(named) if named else None
    evaluation = policy.evaluate(episodes, seed, chosen)
    measured = evaluation_report(evaluation, policy.members, member)
    _warn_of_divergence(policy, member)
    if chosen is not None and (cut := cut_short(evaluation, chosen)):
        print(f"warning: {cut}", file=sys.stderr)
    if chosen is not None and (note := unused_range(policy.spaces, infer_env_spaces(chosen), chosen)):
        print(note, file=sys.stderr)
    counters = {"step": policy.learner.step, "env_step": policy.checkpoint.env_step if policy.checkpoint else None}
    asked = {"episodes": episodes, "seed": seed, "environment": chosen and chosen.making}
    report: dict[str, Any] = {"algo": policy.config.algo, "env_id": str(chosen), **asked, **counters, **measured}
    if task is not None:
        report |= {"normalized_score": normalized_score(report["return_mean"], task[0]), "reference": task[0]}
    if as_json:
        print(json.dumps(report))
        return
    _print_evaluation(policy, report, task, episodes)


def _warn_of_divergence(policy: "Policy", member: int | None) -> None:
    """Say that members diverged after the checkpoint that is measured, which shows nothing of it."""
    from rl_training.api.history import diverged_later
    from rl_training.data.reading.notes import Count

    later = [] if policy.checkpoint is None else diverged_later(policy.checkpoint)
    if lost := [policy.members[one].label for one in later if member in (None, one)]:
        named = ", ".join(lost[:_MOST_NAMED]) + (", ..." if len(lost) > _MOST_NAMED else "")
        who = f"seed{'' if len(lost) == 1 else 's'} {named}, {len(lost)} of {Count(len(policy.members), 'member', 'members')}"
        before = f"what is measured is {policy.checkpoint.path.name}, from before" if policy.checkpoint else ""
        print(f"warning: training diverged later ({who}); {before}", file=sys.stderr)


def _evaluate_on_data(policy: "Policy", data: str, reading: dict[str, Any], member: int | None, as_json: bool) -> None:
    from rl_training.api.data_report import data_report, load_like_training
    from rl_training.api.policy import whole_number
    from rl_training.report.data_facts import action_text
    from rl_training.runtime.validating.held_out import figures_line

    report = {"data": data, **data_report(policy, load_like_training(policy, data, **reading))}
    if member is not None:
        report["members"] = [report["members"][whole_number("member", member, 0, len(report["members"]) - 1)]]
    if as_json:
        print(json.dumps(report))
        return
    if report["trained_on"]:
        print(
            "warning: the policy was trained on these rows, so the figures favour it; data of later days is fairer",
            file=sys.stderr,
        )
    if report["trained_on"] is None:
        print(
            "note: whether the policy was trained on these rows is not known, as the data of the training is not there",
            file=sys.stderr,
        )
    print(f"{report['algo']} after {report['step']:,} gradient steps, on {report['rows']:,} rows of {data}")
    for row in report["members"]:
        who = f"member {row['member']} seed {row['seed']}: " if len(policy.members) > 1 else ""
        figures = row["figures"]
        print(f"{who}{figures_line([figures])}")
        for label in [name.partition("/")[2] for name in figures if name.startswith("action_distance/")]:
            own, constant, cloning = (figures[f"{name}_distance/{label}"] for name in ("action", "constant", "cloning"))
            others = f"best constant {constant:.4g}, cloning {cloning:.4g}"
            print(f"  {action_text(label)}: {own:.4g} from the logged value on average ({others})")
        for concern in row["concerns"]:
            print(f"warning: {concern['code']}: {who}{concern['text']}", file=sys.stderr)


def predict(
    run: RunArgument,
    obs: Annotated[
        str, typer.Option(help="One observation '[1.0, 0.0]', by name '{\"T1\": 60, \"T2\": 50}', or a list of them.")
    ],
    member: MemberOption = None,
    checkpoint: CheckpointOption = None,
    best: BestOption = False,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample instead of taking the mean action, anew in each call.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, max=_LAST_SEED, help="Of --stochastic: the same seed gives the same sample.")
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print the action of a policy for an observation: a list, or by name if the observation was given by name."""
    del debug
    from rl_training.api.policy import Policy

    if seed is not None and not stochastic:
        raise ConfigError("--seed: the mean action needs none; add --stochastic for a sample")
    observation = parse_observation(obs)
    policy = Policy.load(run, device=device or "cpu", which=which_checkpoint(run, checkpoint, best))
    chosen = policy.best_member() if member is None else member
    draw = secrets.randbelow(_LAST_SEED + 1) if seed is None else seed
    action = policy.predict(observation, deterministic=not stochastic, member=chosen, step=draw).tolist()
    named = _by_name(action, policy.spaces.action_names)
    _warn_of_unfamiliar(list(policy.unfamiliar(observation).values()))
    if as_json:
        print(json.dumps({"action": action, "action_by_name": named, "member": chosen}))
        return
    if member is None and policy.learner.model.members > 1:
        why = f", the best by {policy.best_by}"
        if policy.best_by is None:
            why = ": no member was evaluated, so the first is used; choose with --member (`rl-training select` compares them)"
        print(f"member {chosen}, seed {policy.members[chosen].label}{why}", file=sys.stderr)
    asked_by_name = isinstance(observation, dict) or isinstance(observation[0], dict)
    print(json.dumps(named if asked_by_name and named is not None else action))


def export_member(
    run: RunArgument,
    out: Annotated[str, typer.Option(help="The new run directory; it must not exist yet.")],
    member: MemberOption = None,
    seed: Annotated[int | None, typer.Option(help="The member by its seed, where only one has it.")] = None,
    checkpoint: CheckpointOption = None,
    best: BestOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write one member of a population as a solo run of its own, which every other command accepts."""
    del debug
    from rl_training.experiment.export import export_member as export
    from rl_training.experiment.manager import ExperimentManager

    path = export(run, out, member=member, seed=seed, which=which_checkpoint(run, checkpoint, best))
    config = ExperimentManager.open(path).config
    if as_json:
        print(json.dumps({"run_dir": str(path), "algo": config.algo, "seed": config.seed}))
        return
    print(f"run: {full_path(path)}")
    print(f"next: {suggested('resume', path)}, or evaluate, predict")


def export(
    run: RunArgument,
    out: Annotated[str, typer.Option(help="The new directory; it must not exist yet.")],
    format: Annotated[str, typer.Option(help="onnx, torch, numpy or c.")] = "numpy",
    member: MemberOption = None,
    checkpoint: CheckpointOption = None,
    best: BestOption = False,
    data: Annotated[
        str | None, typer.Option(help="Data for the range of the observations; by default that of the run, if it is there.")
    ] = None,
    ope: Annotated[
        str | None, typer.Option(help="Off-policy evaluation for the card: what `rl-training ope RUN --json` wrote.")
    ] = None,
    max_change: Annotated[
        list[str] | None,
        typer.Option(help="Largest change of an action: 5/s, 0.2/step, pump=5/min; may be repeated."),
    ] = None,
    dt: Annotated[float | None, typer.Option(help="Seconds between two calls, for --max-change per time.")] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="Narrower range of an action: 0:8 or pump=0:8; may be repeated.")
    ] = None,
    on_nan: Annotated[
        str | None,
        typer.Option(help="What to do if an observation is NaN: last (repeat the action), nan, or actions as JSON: '[0.0]'."),
    ] = None,
    flag_outside: Annotated[
        bool, typer.Option("--flag-outside", help="A second output: how many observations are outside the range of the data.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a policy as files that run without this package, checked against predict, with a model card."""
    del debug
    from rl_training.api.deploying import export_policy
    from rl_training.deploy.ope import read_report

    limits = {
        "max_change": max_change or (),
        "dt": dt,
        "ranges": ranges or (),
        "on_nan": on_nan,
        "flag_outside": flag_outside,
    }
    which = which_checkpoint(run, checkpoint, best)
    report = None if ope is None else read_report(ope)
    made = export_policy(run, out, format=format, member=member, which=which, data=data, ope=report, **limits)
    if as_json:
        print(json.dumps({"path": str(made.path), **made.card}))
        return
    card = made.card
    policy, check = card["policy"], card["check"]
    why = f" ({policy['chosen']})" if "chosen" in policy else ""
    who = f"member {policy['member']} of {policy['members']}, seed {policy['seed']}{why}"
    print(f"policy: {policy['algo']} after {policy['step']:,} gradient steps, {who}")
    for concern in card["concerns"]:
        print(f"warning: {concern}", file=sys.stderr)
    if check is None:
        print("warning: not checked, since there is no C compiler here", file=sys.stderr)
    else:
        print(f"checked: {check['rows']:,} observations, at most {check['largest_difference']:.1e} of the range from predict")
        print(f"latency: {check['latency']['median_us']:g} us for one observation (median)")
    origin = card["data"]["ranges and figures from"]
    if not any(one["seen"] for one in card["interface"]["observations"]):
        print(f"warning: {origin}, so the card has no ranges; name data with --data PATH (or an online run)", file=sys.stderr)
    elif origin != "the data of the training":
        print(f"warning: ranges and figures are those of {origin}", file=sys.stderr)
    print(f"files: {full_path(made.path)}: {', '.join([*card['files'], 'card.md', 'card.json'])}")


def which_checkpoint(run: str, checkpoint: str | None, best: bool) -> str:
    """Return the checkpoint that the options name."""
    from rl_training.experiment.manager import locate

    if best and checkpoint is not None:
        raise ConfigError("--best and --checkpoint exclude each other")
    if (best or checkpoint is not None) and locate(run)[1] is not None:
        option = "--best" if best else "--checkpoint"
        raise ConfigError(f"{option} chooses a checkpoint of a run, but {run} is one checkpoint")
    return "best" if best else checkpoint or "latest"


def _warn_of_unfamiliar(lines: Sequence[str]) -> None:
    for line in lines[:_MOST_UNFAMILIAR]:
        print(f"warning: {line}; check the unit and the order", file=sys.stderr)
    if (more := len(lines) - _MOST_UNFAMILIAR) > 0:
        print(f"warning: {more} more columns are as far outside", file=sys.stderr)


def _by_name(action: list[Any], names: tuple[str, ...] | None) -> Any:
    """The action, or each of a batch, as a mapping; None where names are not known."""
    if names is None:
        return None
    if isinstance(action[0], list):
        return [_by_name(row, names) for row in action]
    return dict(zip(names, action, strict=True))


def _print_evaluation(policy: "Policy", report: dict[str, Any], task: tuple[str, float, float] | None, episodes: int) -> None:
    from rl_training.data.reading.notes import Count

    taken = f"{report['step']:,} gradient steps"
    if report["env_step"] is not None:
        taken = f"{report['env_step']:,} environment steps and {taken}"
    print(f"{report['algo']} on {report['env_id']} after {taken}, {Count(episodes, 'episode', 'episodes')} per member")
    swept = len(report.get("combinations", ())) > 1
    if not swept:
        _print_mean(report, episodes)
    if task is not None:
        _print_score(report, task, swept=swept)
    if len(report["members"]) > 1:
        for row in report["members"]:
            label = policy.members[row["member"]].label
            lost = f" (diverged at step {row['diverged_at']}, not counted)" if "diverged_at" in row else ""
            print(f"  member {row['member']} seed {label}: {mean_text(row, episodes)}{lost}")
    if swept:
        _print_combinations(policy, report, task)


def _print_mean(report: dict[str, Any], episodes: int) -> None:
    """The mean with the deviation of all episodes, and its interval; one episode has neither."""
    from rl_training.data.reading.notes import Count

    count = len(report["returns"])
    members = f" of {Count(count // episodes, 'member', 'members')}" if count > episodes else ""
    bounds = report["return_interval"]
    interval = f"  (95 % of the mean: {interval_text(bounds)})" if bounds else ""
    print(f"return {mean_text(report, count)} over {Count(count, 'episode', 'episodes')}{members}{interval}")


def _print_score(report: dict[str, Any], task: tuple[str, float, float], *, swept: bool) -> None:
    """The normalised score with its scale; of a sweep the scale alone, since its table has the scores."""
    from rl_training.envs.reference_scores import reference_source

    name, lowest, highest = task
    scale = f"{reference_source(name)} {name}: {lowest:g} is 0, {highest:g} is 100"
    print(f"score: {scale}" if swept else f"score  {report['normalized_score']:z.1f}  ({scale})")


def _print_combinations(policy: "Policy", report: dict[str, Any], task: tuple[str, float, float] | None) -> None:
    """The mean over seeds of each combination of a sweep, with its interval where there are several, and the best."""
    from rl_training.envs.reference_scores import normalized_score
    from rl_training.runtime.population import best_combination, combinations

    found = combinations(policy.members, [row["return_mean"] for row in report["members"]])
    bounds, columns = [one["return_interval"] for one in report["combinations"]], {}
    if any(bounds):
        columns["95 % of the mean"] = [interval_text(one) for one in bounds]
    if task is not None:
        means = [one.return_mean for one in found]
        columns["score"] = ["-" if mean is None else f"{normalized_score(mean, task[0]):z.1f}" for mean in means]
    print("combinations over their seeds")
    print("\n".join(combination_table(found, columns)))
    if (best := best_combination(found)) is not None:
        print(best_text(best, "on these episodes"))
        print("may it be chance? `rl-training compare FILE.json --against all`, of what --json prints, tells")
