"""What an evaluation says, as plain values: of all episodes, over seeds, of each member and of each combination."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.logged_run import data_name
from rl_training.api.evaluating.spread import interval_of, std_over_seeds
from rl_training.api.policy import Policy
from rl_training.envs.evaluation import Evaluation
from rl_training.envs.reference_scores import normalized_score
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.manager import locate
from rl_training.experiment.run_record import run_record
from rl_training.runtime.phases.build import offline_steps
from rl_training.runtime.population import Combination, MemberRecord, combinations


class MemberNotes(TypedDict, total=False):
    """Optional entries in the row of a member."""

    knobs: dict[str, float]  # of a sweep's members
    diverged_at: int | None  # the step, for diverged members
    stopped_at: int | None  # the step, for members that stopped early
    normalized_score: float


class MemberReport(MemberNotes):
    """The evaluation of one member."""

    member: int
    seed: int
    return_mean: float
    return_std: float  # over its episodes, as everywhere


class EvaluationReport(TypedDict):
    """The plain values of an evaluation."""

    return_mean: float
    return_std: float  # of all episodes together, those of all members
    return_interval: list[float] | None  # None for several combinations of a sweep, and for a single episode
    std_over_seeds: float | None  # of the members' means, as a sample; None for one member, and for several combinations
    returns: list[float]
    lengths: list[int]
    members: list[MemberReport]
    combinations: NotRequired[list[dict[str, Any]]]
    normalized_score: NotRequired[float]
    reference: NotRequired[str]


def evaluation_report(evaluation: Evaluation, members: Sequence[MemberRecord], member: int | None = None) -> EvaluationReport:
    """Return the plain values of an evaluation: over all episodes, over seeds, for each member, with a 95 % interval.

    Diverged members are marked, and count with their last good policies: to leave failures out would flatter what failed.
    The members of a sweep have `knobs`, and there are `combinations` of them if more than one member is requested: an
    interval, and a spread over seeds, belong to the seeds of one.
    """
    chosen = range(len(members)) if member is None else [member]
    if member is not None and not 0 <= member < len(members):
        raise ConfigError(f"member {member} not found: the checkpoint has members 0 to {len(members) - 1}")
    returns, lengths = evaluation.returns[list(chosen)], evaluation.lengths[list(chosen)]
    found = evaluated_combinations(evaluation, members) if member is None else []
    several = len(found) > 1
    report: EvaluationReport = {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_interval": None if several else interval_of(returns, same_episodes=evaluation.same_episodes),
        "std_over_seeds": None if several else std_over_seeds(returns),
        "returns": [float(value) for value in returns.reshape(-1)],
        "lengths": [int(value) for value in lengths.reshape(-1)],
        "members": [_member_report(index, members[index], evaluation.returns[index]) for index in chosen],
    }
    if found:
        report["combinations"] = [_combination_report(one, evaluation) for one in found]
    return report


def evaluated_combinations(evaluation: Evaluation, members: Sequence[MemberRecord]) -> list[Combination]:
    """Return the combinations of a sweep over all their seeds, those that diverged too; empty without a sweep."""
    found = []
    for one in combinations(members, evaluation.member_means):
        means = [evaluation.member_means[member] for member in one.members]
        found.append(replace(one, return_mean=fmean(means), return_std=std_over_seeds(evaluation.returns[one.members])))
    return found


def with_scores(report: EvaluationReport, reference: str) -> EvaluationReport:
    """Return a report with the normalised score of its mean, of each member and of each combination."""

    def scored(row: Mapping[str, Any]) -> Any:
        return {**row, "normalized_score": normalized_score(row["return_mean"], reference)}

    found: EvaluationReport = scored(report) | {"members": [scored(row) for row in report["members"]], "reference": reference}
    if "combinations" in report:
        found["combinations"] = [scored(row) for row in report["combinations"]]
    return found


def data_of(policy: Policy) -> dict[str, str] | None:
    """Return the name and the fingerprint of the data that a policy learned from, as its run has them; None without any."""
    checkpoint = policy.checkpoint
    fingerprint = checkpoint and checkpoint.state.get("dataset_fingerprint")
    if checkpoint is None or not fingerprint:
        return None
    with contextlib.suppress(CheckpointError, KeyError, TypeError):  # that of a checkpoint counts files of held-out rows too
        home = locate(checkpoint.source)[0]
        fingerprint = fingerprint if home is None else run_record(home)["dataset"]["fingerprint"]
    return {"name": data_name(policy.config, fingerprint), "fingerprint": str(fingerprint)}


def steps_of(policy: Policy) -> dict[str, int | None]:
    """Return the gradient steps of a policy, its environment steps (None offline), and the gradient steps before those."""
    step, env_step = policy.learner.step, policy.checkpoint.env_step if policy.checkpoint else None
    return {"step": step, "env_step": env_step, "offline_steps": offline_steps(policy.config, step, env_step)}


def _combination_report(one: Combination, evaluation: Evaluation) -> dict[str, Any]:
    """A combination with its spread and the interval of its mean over seeds; None for a single seed."""
    returns = evaluation.returns[one.members]
    bounds = interval_of(returns, same_episodes=evaluation.same_episodes) if len(returns) > 1 else None
    own = {"return_std": float(returns.std()), "return_interval": bounds, "std_over_seeds": one.return_std}
    return {**asdict(one), **own}


def _member_report(index: int, record: MemberRecord, returns: NDArray[np.float64]) -> MemberReport:
    notes: MemberNotes = {}
    if record.knobs:
        notes["knobs"] = record.knobs
    if record.status == "diverged":
        notes["diverged_at"] = record.status_step
    if record.status == "stopped":
        notes["stopped_at"] = record.status_step
    mean, std = float(returns.mean()), float(returns.std())
    return {"member": index, "seed": record.seed, **notes, "return_mean": mean, "return_std": std}
