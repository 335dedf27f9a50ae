"""`rl-training predict | export | export-member`: parsing and printing only."""

import json
import secrets
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rl_training.cli.observations import parse_observation
from rl_training.cli.options import (
    DebugOption,
    DeviceOption,
    JsonOption,
    MemberOption,
    RunArgument,
    full_path,
)
from rl_training.errors import ConfigError, suggested

CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", help="Of a run directory: latest (the default), best, or a step.")
]
_MOST_UNFAMILIAR = 5  # columns that `predict` warns of
_LAST_SEED = 2**31 - 1
BestOption = Annotated[bool, typer.Option("--best", help="The same as --checkpoint best.")]


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
