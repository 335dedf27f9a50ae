"""What trained policies would earn, from logged data alone: the report of `rl-training ope`."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.api.advice import advice
from rl_training.api.data_report import check_columns, data_report, dataset_of, trained_on
from rl_training.api.policy import Policy
from rl_training.config.shared_knobs import DEFAULT_GAMMA
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.notes import Count
from rl_training.data.row_blocks import spread_evenly
from rl_training.doctor.doctor import quick_findings
from rl_training.errors import CheckpointError, ConfigError, DatasetError
from rl_training.experiment.manager import find_checkpoint, locate
from rl_training.experiment.run_record import run_record
from rl_training.models.threads import one_thread
from rl_training.ope.episodes import Episodes, episodes_and_parts
from rl_training.ope.evaluation import Estimated, Logged, OPEOptions, evaluate
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore
from rl_training.runtime.checkpoints.member import member_of
from rl_training.runtime.execution.mode import resolve_device

_NAME = re.compile(r"(.+?)(?:@(\d+))?(?::(\d+))?", re.DOTALL)  # of a policy: a run, and its step and its member where named
DEFAULT_ROWS = 100_000  # of the data, in whole episodes
_SCORED_ROWS = 5_000


@dataclass(frozen=True)
class Named:
    """One policy, and what to call it."""

    name: str
    run: str
    step: int
    member: int
    policy: Policy  # with this member alone


@dataclass(frozen=True, eq=False)
class Question:
    """Which policies are judged, by what data and with what effort."""

    data: str
    dataset: TransitionDataset
    policies: Sequence[Named]
    gamma: float
    rows: int
    steps: int | None
    seed: int
    warnings: Sequence[str]


@dataclass(frozen=True, eq=False)
class OpeReport:
    """What the log says of some policies."""

    data: str
    dataset: TransitionDataset
    episodes: Episodes
    gamma: float
    policies: Sequence[Named]
    found: Sequence[Estimated]
    logged: Logged
    warnings: Sequence[str]

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values; what is not known is None."""
        returns = self.logged.returns
        return {
            "data": self.data,
            "fingerprint": self.dataset.fingerprint,
            "rows": len(self.episodes),
            "episodes": len(self.episodes.lengths),
            "whole_episodes": self.episodes.whole,  # fewer, where parts of them count as episodes
            "gamma": self.gamma,
            "logged": {
                **self.logged.value.plain(),
                **{"return_mean": float(returns.mean()), "return_std": float(returns.std())},
                **asdict(self.logged.line),
            },
            "policies": [self._entry(*pair) for pair in zip(self.policies, self.found, strict=True)],
            "warnings": list(self.warnings),
        }

    def _entry(self, named: Named, found: Estimated) -> dict[str, Any]:
        policy, whole = named.policy, len(self.dataset.episode_spans[0])
        parts = self.episodes.whole < len(self.episodes.lengths)
        return {
            **{"name": named.name, "run": named.run, "step": named.step, "member": named.member},
            **{"seed": policy.members[0].seed, "algo": policy.config.algo},
            "estimates": {name: one.plain() for name, one in found.estimates.items()},
            "scores": {**_scores(policy, self.dataset, self.episodes), "beyond_support": found.support.beyond},
            "support": self._support(found),
            **found.joint.plain(),
            "advice": advice(found, whole, self.gamma, policy.learner.knobs, parts=parts),
        }

    def _support(self, found: Estimated) -> dict[str, Any]:
        """Where the policy leaves the data, by the names of columns and the numbers of episodes."""
        support, spaces = found.support, self.dataset.spaces
        seen = spaces.observation_names or [f"observation {column}" for column in range(spaces.observation_dim)]
        actions = [spaces.action_name(column) for column in range(spaces.action_dim)]
        return {
            "beyond": support.beyond,
            "outside_in_model": found.outside,
            "actions": dict(zip(actions, support.columns.tolist(), strict=True)),
            "observations": dict(zip(seen, support.where.tolist(), strict=True)),
            "episodes": {str(number): share for number, share in zip(support.episodes, support.shares.tolist(), strict=True)},
        }


def evaluate_off_policy(
    runs: Sequence[str | Path | Checkpoint],
    data: Any = None,
    *,
    device: str = "auto",
    tell: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> OpeReport:
    """Return what every member of some runs or checkpoints would earn, by the data, and how far that can be trusted.

    Values are discounted returns from where the logged episodes begin, in the units of the rewards. Without `data` that of
    the first run is used. `settings` are those of `ask` (`checkpoints`, `gamma`, `rows`, `steps`, `seed`) and of
    `load_dataset`. Equal arguments give equal values.
    """
    return answer(ask(runs, data, **settings), device=device, tell=tell)


def ask(
    runs: Sequence[str | Path | Checkpoint],
    data: Any = None,
    *,
    checkpoints: str = "latest",
    gamma: float | None = None,
    rows: int = DEFAULT_ROWS,
    steps: int | None = None,
    seed: int = 0,
    **reading: Any,
) -> Question:
    """Return the policies and the data that are asked for, checked; `gamma` is by default the largest of the runs."""
    policies = list(named_policies(runs, checkpoints))
    dataset, origin = dataset_of(policies[0].policy, data, **reading)
    if dataset is None:
        raise ConfigError(f"{origin}; name data with --data PATH")
    for one in policies:
        try:
            check_columns(one.policy, dataset)
        except DatasetError as error:
            raise DatasetError(f"{one.name}: {error}") from None
    own = [value for one in policies if (value := getattr(one.policy.config.algo_kwargs, "gamma", None)) is not None]
    discount = (max(own) if own else DEFAULT_GAMMA) if gamma is None else gamma
    if not 0.0 <= discount < 1.0:
        raise ConfigError(f"gamma = {discount!r} is not legal: must be a number >= 0 and < 1")
    shown = str(data) if isinstance(data, str | Path) else origin
    warnings = [*_warnings(policies, dataset, own, gamma), *_cut(dataset, rows)]
    return Question(shown, dataset, policies, discount, rows, steps, seed, warnings)


def answer(asked: Question, *, device: str = "auto", tell: Callable[[str], None] = lambda _: None) -> OpeReport:
    """Evaluate the policies that are asked for; this takes minutes."""
    options = OPEOptions.of(asked.gamma, asked.seed, asked.steps)
    episodes = Episodes.of(asked.dataset, asked.rows)
    acts = [one.policy.predict for one in asked.policies]
    with one_thread():  # the order of sums, and so the last bits, must not depend on the machine
        found, logged = evaluate(episodes, acts, options, resolve_device(device), tell)
    return OpeReport(asked.data, asked.dataset, episodes, asked.gamma, asked.policies, found, logged, asked.warnings)


def _warnings(
    policies: Sequence[Named], dataset: TransitionDataset, gammas: Sequence[float], gamma: float | None
) -> list[str]:
    """What to know of the comparison itself."""
    found = [str(finding) for finding in quick_findings(dataset) if finding.code == "time-gap"]
    fingerprints = {one.policy.checkpoint.state.get("dataset_fingerprint") for one in policies if one.policy.checkpoint}
    if any(trained_on(one.policy, dataset) for one in policies):
        found.append("the policies were trained on these rows, so the estimates favour them; data of later days is fairer")
    if len(fingerprints) > 1:
        found.append("the policies were trained on different data")
    if gamma is None and len(set(gammas)) > 1:
        found.append(f"the runs have different gammas; the values here are discounted by {max(gammas):g}")
    return [*found, *_penalties_missing(policies, dataset)]


def _penalties_missing(policies: Sequence[Named], dataset: TransitionDataset) -> list[str]:
    """That the policies learned from rewards far below all of these, by more than these differ, where the runs tell."""
    rewards = np.asarray(dataset.rewards[:])
    low, high = float(rewards.min()), float(rewards.max())
    known = [lowest for one in policies if (lowest := _lowest_reward(one.policy)) is not None]
    if not known or low - min(known) <= high - low:
        return []
    return [
        f"the training had rewards down to {min(known):.4g}, and none here is below {low:.4g}: what rare penalties cost, "
        "and which policy avoids them, no estimate here can tell; judge by data that has some"
    ]


def _lowest_reward(policy: Policy) -> float | None:
    """The lowest reward of the data of the training, if its run is there and has it."""
    run_dir = None if policy.checkpoint is None else locate(policy.checkpoint.source)[0]
    try:
        return None if run_dir is None else float(run_record(run_dir)["dataset"]["reward_min"])
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None


def _cut(dataset: TransitionDataset, rows: int) -> list[str]:
    """That parts of episodes count as episodes, where they do."""
    whole, parts = episodes_and_parts(dataset, rows)
    if parts == whole:
        return []
    total = len(dataset.episode_spans[0])
    has = f"the data has {Count(whole, 'episode', 'episodes')}"
    has = has if whole == total else f"the rows that are used have {Count(whole, 'episode', 'episodes')} of {total:,}"
    return [
        f"{has}, so {parts} parts of {'it' if whole == 1 else 'them'} count as episodes: values are from where parts begin, "
        "not only from where episodes do, and intervals may be too narrow"
    ]


def named_policies(runs: Sequence[str | Path | Checkpoint], checkpoints: str) -> Iterator[Named]:
    """Yield every member of the wanted checkpoints of some runs, or those that are named, named as briefly as they differ."""
    if not runs:
        raise ConfigError("name at least one run or checkpoint")
    wanted = [_Wanted(str(run.path), run) if isinstance(run, Checkpoint) else _Wanted.of(run) for run in runs]
    if any(one.overlaps(other) for one, other in combinations(wanted, 2)):
        raise ConfigError("a run is named twice; name each once")
    for one in wanted:
        found = one.found(checkpoints)
        for checkpoint in found:
            seeds, at = checkpoint.state["seeds"], f"@{checkpoint.step}" if len(found) > 1 or one.step else ""
            for member in range(len(seeds)) if one.member is None else [one.member]:
                name = f"{one.label}{at}" + (f":{member}" if len(seeds) > 1 else "")
                policy = Policy.from_checkpoint(_member(checkpoint, member, one.label), device="cpu")
                yield Named(name, one.label, checkpoint.step, member, policy)


@dataclass(frozen=True)
class _Wanted:
    """A run or checkpoint that is asked for, or of it one step or one member."""

    label: str
    run: str | Path | Checkpoint
    step: str | None = None
    member: int | None = None

    @classmethod
    def of(cls, given: str | Path) -> "_Wanted":
        """Return what a path means, or a name as these are printed: RUN:MEMBER, RUN@STEP or RUN@STEP:MEMBER."""
        parts = _NAME.fullmatch(str(given))
        if parts is None or Path(given).exists():
            return cls(str(given), given)
        run, step, member = parts.groups()
        return cls(run, run, step, None if member is None else int(member))

    def found(self, checkpoints: str) -> list[Checkpoint]:
        """Return the checkpoint that is named, or those of the run that are asked for."""
        if isinstance(self.run, Checkpoint):
            return [self.run]
        return [find_checkpoint(self.run, self.step)] if self.step else _checkpoints(self.run, checkpoints)

    def overlaps(self, other: "_Wanted") -> bool:
        """Whether some policy may be meant by both."""
        pairs = ((self.step, other.step), (self.member, other.member))
        return self.label == other.label and all(one is None or two is None or one == two for one, two in pairs)


def _member(checkpoint: Checkpoint, member: int, label: str) -> Checkpoint:
    try:
        return member_of(checkpoint, member)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None


def _checkpoints(run: str | Path, which: str) -> list[Checkpoint]:
    """The checkpoint that a path is, or those of a run that are asked for."""
    run_dir, path = locate(run)
    if path is not None or which != "all":
        return [find_checkpoint(run, "latest" if path is not None else which)]
    store = CheckpointStore((run_dir or Path(run)) / "checkpoints", 2)
    names = store.names()
    return [store.load(name) for name in names] or [store.load()]


def _scores(policy: Policy, dataset: TransitionDataset, episodes: Episodes) -> dict[str, float | None]:
    """Simple scores: the distance to the logged actions, and what the policy's own critics say, where it has any."""
    figures = data_report(policy, dataset)["members"][0]["figures"]
    found: dict[str, float | None] = {"action_distance": figures["action_distance"], "initial_value": None, "td_error": None}
    if "q_policy" not in figures:
        return found
    gamma = policy.config.algo_kwargs.gamma
    rows = spread_evenly(len(episodes), _SCORED_ROWS)
    low, high = policy.spaces.action_low, policy.spaces.action_high
    following = np.asarray(policy.value(episodes.next_observations[rows]))
    wanted = episodes.rewards[rows] + gamma * ~episodes.terminals[rows] * following
    apart = np.asarray(policy.q(episodes.observations[rows], np.clip(episodes.actions[rows], low, high))) - wanted
    first = np.asarray(policy.value(episodes.observations[episodes.starts]))
    return {**found, "initial_value": float(first.mean()), "td_error": float(np.sqrt(np.square(apart).mean()))}
