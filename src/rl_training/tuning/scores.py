"""The score of a trial: one number, or two, of what its seeds reached; read from the run directory alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.aggregates import aggregate
from rl_training.analysis.logged_run import Curve, LoggedRun
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError

Statistic = Literal["iqm", "mean", "lower"]
Second = Literal["spread", "action_distance"]
DISTANCE = "validation/action_distance"
_STATISTICS = {
    "iqm": "the interquartile mean over seeds",
    "mean": "the mean over seeds",
    "lower": "the mean over seeds less its standard error",
}


@dataclass(frozen=True)
class Rule:
    """How trials are scored; the first number is to be high, the second low."""

    statistic: Statistic = "iqm"
    of: Literal["last", "best"] = "last"
    also: Second | None = None
    select_by: str | None = None  # without an environment: what the score of a policy is

    @property
    def metric(self) -> str:
        """The metric of a member."""
        return "eval/return_mean" if self.select_by is None else "validation/score"

    @property
    def directions(self) -> list[str]:
        """What is wanted of each number."""
        return ["maximize"] if self.also is None else ["maximize", "minimize"]

    @property
    def text(self) -> str:
        """What the score is, in words; an estimate says that it is one."""
        rows = "all logged data" if self.select_by == "fqe" else "held-out data"
        what = "return" if self.select_by is None else f"{self.select_by} on {rows}, an estimate and no return"
        text = f"{_STATISTICS[self.statistic]} of the {self.of} {what}"
        seconds = {"spread": "its standard deviation over seeds", "action_distance": "the distance to held-out actions"}
        return text if self.also is None else f"{text}; and {seconds[self.also]}, lower is better"

    @property
    def name(self) -> str:
        """What a column with the score is called."""
        return f"return {self.statistic}" if self.select_by is None else f"{self.select_by} {self.statistic}"


def check_rule(rule: Rule, config: RunConfig[Any]) -> None:
    """Raise a ConfigError for a rule that the runs of a config have no numbers for."""
    split = getattr(config.algo_kwargs, "validation", None)
    held_out = config.env_id is None if split is None else bool(split.path or split.fraction)  # by default without one
    if (rule.select_by is not None or rule.also == "action_distance") and not held_out:
        raise ConfigError("the score needs held-out rows, and none are: --set algo_kwargs.validation.fraction=0.1")
    if rule.also == "spread" and len(config.seeds or (0,)) < 2:
        raise ConfigError("--also spread: needs several seeds, such as --seeds 0..4")


@dataclass(frozen=True)
class Result:
    """What a trial reached."""

    values: list[float] | None  # None if it failed
    seeds: list[float | None]  # of each seed; None for one that was never evaluated
    curve: Mapping[int, float]  # the mean over seeds by position
    pruned: bool = False
    why_failed: str | None = None


def trial_result(run: LoggedRun, members: Sequence[int], rule: Rule) -> Result:
    """Return what the members of a trial reached in a run that has finished."""
    curve = _curve(run, rule)
    own = curve.values[:, list(members)]
    seen = curve.positions[~np.isnan(own).all(axis=1)]
    pruned = run.config.pruning is not None and len(seen) > 0 and int(seen[-1]) < int(curve.positions[-1])
    ended = int(seen[-1] if pruned else curve.positions[-1])
    scores = own[curve.positions == ended][0] if rule.of == "last" else curve.best()[list(members)]
    seeds = [float(score) if np.isfinite(score) else None for score in scores]
    means = {int(at): float(np.nanmean(row)) for at, row in zip(curve.positions, own, strict=True) if at in seen}
    if why_failed := _why_failed(run, members, seeds, rule):
        return Result(None, seeds, means, why_failed=why_failed)
    values = [_statistic(scores, rule.statistic)]
    if rule.also == "spread":
        values.append(float(np.std(scores)))
    if rule.also == "action_distance":
        values.append(_statistic(run.curve(DISTANCE).last()[list(members)], "mean"))
    return Result(values, seeds, means, pruned)


def _statistic(scores: NDArray[np.float64], statistic: Statistic) -> float:
    if statistic == "lower":
        error = float(np.std(scores, ddof=1)) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
        return float(np.mean(scores)) - error
    return aggregate(scores, statistic)


def _curve(run: LoggedRun, rule: Rule) -> Curve:
    """The scores over the run, at every evaluation: where no member has one, nothing was written."""
    if rule.select_by is None:
        return run.curve(rule.metric)
    every = run.curve(DISTANCE)
    values = np.full_like(every.values, np.nan)
    if rule.metric in run.history:
        found = run.curve(rule.metric)
        values[np.isin(every.positions, found.positions)] = found.values
    return replace(every, values=values)


def _why_failed(run: LoggedRun, members: Sequence[int], seeds: Sequence[float | None], rule: Rule) -> str | None:
    if lost := _diverged(run).intersection(members):
        return f"{len(lost)} of {len(seeds)} seeds diverged"
    if None in seeds:
        found = ": fitted Q evaluation found values that the rewards do not allow" if rule.select_by == "fqe" else ""
        return f"{seeds.count(None)} of {len(seeds)} seeds have no score{found}"
    return None


def _diverged(run: LoggedRun) -> set[int]:
    events = run.history.get("event")
    return set() if events is None else set(run.history["member"][events == "diverged"].tolist())
