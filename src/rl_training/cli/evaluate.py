"""`rl-training evaluate`: parsing and printing only."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

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
    interval_text,
    mean_text,
    named_env,
)
from rl_training.cli.policies import BestOption, CheckpointOption, which_checkpoint
from rl_training.errors import ConfigError
from rl_training.output import return_text

if TYPE_CHECKING:
    from rl_training.api.evaluating.report import EvaluationReport
    from rl_training.api.policy import Policy
    from rl_training.runtime.population import Combination

Reference: TypeAlias = tuple[str, float, float]
"""A task with its lowest and highest reference return."""
_MOST_NAMED = 6  # members in a warning


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
    from rl_training.api.evaluating.report import data_of, evaluated_combinations, evaluation_report, steps_of, with_scores
    from rl_training.api.policy import Policy

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
    from rl_training.envs.reference_scores import reference_of

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
    if task is not None:
        measured = with_scores(measured, task[0])
    if as_json:
        counters = steps_of(policy)
        asked = {"episodes": episodes, "seed": seed, "environment": chosen and chosen.making}
        where = {"algo": policy.config.algo, "env_id": str(chosen), "data": data_of(policy)}
        print(json.dumps({**where, **asked, **counters, **measured}))
        return
    _print_evaluation(policy, measured, str(chosen), task, episodes)
    if len(measured.get("combinations", ())) > 1:
        _print_combinations(evaluated_combinations(evaluation, policy.members), measured)


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


def _print_evaluation(policy: "Policy", report: "EvaluationReport", env: str, task: Reference | None, episodes: int) -> None:
    from rl_training.analysis.scores.groups import LAST_GOOD
    from rl_training.data.reading.notes import Count

    taken, env_step = f"{policy.learner.step:,} gradient steps", policy.checkpoint and policy.checkpoint.env_step
    if env_step is not None:
        taken = f"{env_step:,} environment steps and {taken}"
    print(f"{policy.config.algo} on {env} after {taken}, {Count(episodes, 'episode', 'episodes')} per member")
    swept, rows = len(report.get("combinations", ())) > 1, report["members"]
    if not swept:
        _print_mean(report, episodes)
    if task is not None:
        _print_score(report, task, swept=swept)
    for row in rows if len(rows) > 1 else []:
        notes = [f"score {row['normalized_score']:z.1f}"] if "normalized_score" in row else []
        notes += [f"diverged at step {row['diverged_at']}"] if "diverged_at" in row else []
        told = f" ({', '.join(notes)})" if notes else ""
        print(f"  member {row['member']} seed {policy.members[row['member']].label}: {mean_text(row, episodes)}{told}")
    if lost := sum("diverged_at" in row for row in rows):
        print(f"{lost} of {Count(len(rows), 'member', 'members')} diverged; {LAST_GOOD}")


def _print_mean(report: "EvaluationReport", episodes: int) -> None:
    """The mean with its interval, and the deviation over seeds, or over the episodes of one; one episode has neither."""
    from rl_training.data.reading.notes import Count

    count, spread, bounds = len(report["returns"]), report["std_over_seeds"], report["return_interval"]
    interval = f"  (95 % of the mean: {interval_text(bounds)})" if bounds else ""
    if spread is None:
        print(f"return {mean_text(report, count)} over {Count(count, 'episode', 'episodes')}{interval}")
        return
    mean = f"{return_text(report['return_mean'])} +- {return_text(spread)}"
    print(f"return {mean} over {len(report['members'])} seeds{interval}")
    if episodes > 1:
        whole = return_text(report["return_std"])
        print(f"  +- is from seed to seed; it is {whole} over all {count} episodes, and below over those of each member")


def _print_score(report: "EvaluationReport", task: Reference, *, swept: bool) -> None:
    """The normalised score with its scale; of a sweep the scale alone, since its table has the scores."""
    from rl_training.envs.reference_scores import reference_source

    name, lowest, highest = task
    scale = f"{reference_source(name)} {name}: {lowest:g} is 0, {highest:g} is 100"
    spread = report["std_over_seeds"]
    over_seeds = "" if spread is None else f" +- {100.0 * spread / (highest - lowest):.1f} over seeds"
    print(f"score: {scale}" if swept else f"score  {report['normalized_score']:z.1f}{over_seeds}  ({scale})")


def _print_combinations(found: "list[Combination]", report: "EvaluationReport") -> None:
    """The mean over seeds of each combination of a sweep, with its interval where there are several, and the best."""
    from rl_training.runtime.population import best_combination

    rows, columns = report["combinations"], {}
    if any(row["return_interval"] for row in rows):
        columns["95 % of the mean"] = [interval_text(row["return_interval"]) for row in rows]
    if "reference" in report:
        columns["score"] = [f"{row['normalized_score']:z.1f}" for row in rows]
    print("combinations over their seeds")
    print("\n".join(combination_table(found, columns)))
    if (best := best_combination(found)) is not None:
        print(best_text(best, "on these episodes", len(best.members)))
        print("may it be chance? `rl-training compare FILE.json --against all`, of what --json prints, tells")
