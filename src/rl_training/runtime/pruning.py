"""Stopping the worse of several combinations of knobs, all their seeds at once; a function of the evaluations alone."""

from statistics import fmean, median
from typing import Any

from rl_training.config.run import PruningConfig, RunConfig
from rl_training.runtime.callbacks import Callback, EarlyStopping, Rows, Stop

RETURN, HELD_OUT_SCORE = "eval/return_mean", "validation/score"


def score_metric(config: RunConfig[Any]) -> str:
    """Return the metric by which policies of a run are compared, higher is better: the return, or `select_by`'s score."""
    return RETURN if config.final_env_id is not None else HELD_OUT_SCORE


class Pruning(Callback):
    """Compares combinations at the same evaluation by the mean over their seeds; the best one always goes on.

    One that has been stopped keeps its last value, so `median` stops about half of all, not half of those that are left.
    """

    def __init__(self, rule: PruningConfig, combinations: int, seeds: int, metric: str) -> None:
        self._rule, self._metric = rule, metric
        self._members = [range(place * seeds, (place + 1) * seeds) for place in range(combinations)]
        self._values: dict[int, float] = {}  # the last one of each member
        self._evaluations = 0
        self._going_on = set(range(combinations))

    def on_metrics(self, step: int, rows: Rows) -> Stop:
        """Return the members of the combinations to stop, at an evaluation."""
        del step
        found = {int(row["member"]): float(row[self._metric]) for row in rows if row.get(self._metric) is not None}
        if not found:
            return None
        self._values |= found
        self._evaluations += 1
        worse = self._worse({place: self._score(place) for place in range(len(self._members))}) & self._going_on
        self._going_on -= worse
        return [member for place in sorted(worse) for member in self._members[place]]

    def _score(self, place: int) -> float:
        """The mean over seeds; a seed that was never evaluated has diverged."""
        return fmean(self._values.get(member, float("-inf")) for member in self._members[place])

    def _worse(self, scores: dict[int, float]) -> set[int]:
        """The combinations that do not go on after this evaluation, of those that are left or that stopped before."""
        if self._rule.kind == "median":
            middle = median(scores.values()) if self._evaluations >= self._rule.first else float("-inf")
            return {place for place, score in scores.items() if score < middle}
        rung, number = 0, self._rule.first
        while number < self._evaluations:
            rung, number = rung + 1, number * self._rule.factor
        if number != self._evaluations:
            return set()
        kept = -(-len(scores) // self._rule.factor ** (rung + 1))
        ranked = sorted(self._going_on, key=lambda place: (-scores[place], place))
        return set(ranked[kept:])

    def state_dict(self) -> dict[str, Any]:
        """Return the last values, the number of evaluations and who goes on."""
        values = {str(member): value for member, value in self._values.items()}
        return {"values": values, "evaluations": self._evaluations, "going_on": sorted(self._going_on)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._values = {int(member): float(value) for member, value in state["values"].items()}
        self._evaluations, self._going_on = int(state["evaluations"]), set(state["going_on"])
        if not self._going_on.issubset(range(len(self._members))):
            raise ValueError("`going_on` names combinations that are not there")


def stopping_rules(config: RunConfig[Any]) -> list[Callback]:
    """Return the callbacks that the rules of a config request."""
    rules: list[Callback] = []
    if (early := config.early_stopping) is not None:
        rules.append(EarlyStopping(early.patience, early.min_delta, early.threshold))
    if config.pruning is not None:
        seeds = len(config.seeds or (config.seed,))
        rules.append(Pruning(config.pruning, len(config.combinations), seeds, score_metric(config)))
    return rules
