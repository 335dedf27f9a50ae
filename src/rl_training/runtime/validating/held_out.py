"""The report on held-out rows at every evaluation: losses and figures for the metrics, a line to read, and warnings."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_training.algorithms.learner import Learner
from rl_training.faults import fault_point
from rl_training.runtime.checkpoints.member import BEST_SCORE
from rl_training.runtime.evaluating.selecting import Selector
from rl_training.runtime.sharing.ranks import Ranks
from rl_training.runtime.validating.concerns import (
    SETTLED,
    Concern,
    Loss,
    RisingLosses,
    concerns,
    gathered,
    settled_text,
    warning_text,
)
from rl_training.runtime.validating.policy_check import Figures
from rl_training.runtime.validating.validation import Sampled, Validation


class HeldOutReport:
    """Evaluates a learner on held-out rows, and warns once of each concern that lasts.

    With a `selector` it also says whether the policies are the best so far.
    """

    def __init__(self, validation: Validation, warn: Callable[[str], None], selector: Selector | None, ranks: Ranks) -> None:
        self._validation, self._warn, self._selector, self._ranks = validation, warn, selector, ranks
        self._rising = RisingLosses()
        self._suspected: set[str] = set()  # concerns at the evaluation before
        self._reported: set[str] = set()
        self.figures: list[Figures] = []  # of each member, at the last evaluation
        self._scores: list[float] = []  # of each member, by the selector
        self.improved = False  # whether the last evaluation was the best so far, by the selector

    def evaluate(self, learner: Learner[Any, Any], labels: Mapping[int, str], *, last: bool) -> list[dict[str, float]]:
        """Return every member's row of metrics; warn about the members in `labels`, which are still training.

        A concern is reported when it holds at two evaluations in a row, or at the last one: early on, every policy is poor.
        """
        fault_point("held-out:begin")
        losses = self._ranks.columns(self._validation.losses(learner))
        self.figures = self._ranks.of_members(self._validation.policy.figures(learner))
        held_out, training = (self._shared(sampled, labels) for sampled in self._validation.compared(learner))
        distances = self.distance(list(labels))
        shared = self._rising.observe(held_out, training, distances.get("distance", 0.0))
        own = {member: concerns(self.figures[member], learner.knobs) for member in labels}
        self._report(shared, own, labels, last=last)
        members = range(len(self.figures))
        rows = [{**{name: column[member] for name, column in losses.items()}, **self.figures[member]} for member in members]
        if self._selector is None:
            return rows
        self._scores = self._selector.scores(learner, rows)
        self.improved = self._selector.take(self._scores, list(labels))
        return [{**row, "score": score} for row, score in zip(rows, self._scores, strict=True)]

    def _shared(self, sampled: Sampled, labels: Mapping[int, str]) -> dict[str, Loss]:
        """Losses averaged over members, since those of one are too noisy; their rows are the same, and so are errors."""
        means, errors = (_means(self._ranks.columns(columns), labels) for columns in sampled)
        return {name: Loss(mean, errors[name]) for name, mean in means.items() if name in errors}

    def _report(
        self, shared: Sequence[Concern], own: Mapping[int, Sequence[Concern]], labels: Mapping[int, str], *, last: bool
    ) -> None:
        """Warn of the concerns about all members and about some; each is said once, with the members it is about."""
        found = gathered(own, labels, shared)
        for code, (concern, whose) in found.items():
            lasting = code in self._suspected or (last and not concern.fleeting)
            if code in self._reported or not lasting:
                continue
            self._warn(warning_text(concern, whose, len(labels), len(self.figures)))
            self._reported.add(code)
        self._suspected = set(found)

    def distance(self, members: Sequence[int]) -> dict[str, float]:
        """Return the mean distance to the held-out actions for the progress bar; empty before the first evaluation."""
        found = [self.figures[member]["action_distance"] for member in members] if self.figures else []
        return {"distance": sum(found) / len(found)} if found else {}

    def line(self, members: Sequence[int]) -> str:
        """Return the figures of some members in a line of text."""
        text = figures_line([self.figures[member] for member in members])
        if not self._scores:
            return text
        own = [self._scores[member] for member in members]
        span = f", {min(own):.4g} to {max(own):.4g}" if len(own) > 1 else ""
        return f"{text}, score {sum(own) / len(own):.4g}{span}{' (the best so far)' * self.improved}"

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        chosen = {} if self._selector is None else {BEST_SCORE: self._selector.best}
        return {**self._rising.state(), **chosen}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._rising = RisingLosses(**{name: value for name, value in state.items() if name != BEST_SCORE})
        if self._selector is not None:
            self._selector.best = state.get(BEST_SCORE)


def figures_line(figures: Sequence[Figures]) -> str:
    """Return the figures of policies, averaged, as a line of text."""
    mean = {name: sum(one[name] for one in figures) / len(figures) for name in figures[0]}
    text = f"actions {mean['action_distance']:.1%} of the range from the logged ones"
    others = f"best constant {mean['constant_distance']:.1%}, cloning {mean['cloning_distance']:.1%}"
    if "persistence_distance" in mean:
        others += f", the command before {mean['persistence_distance']:.1%}"
    text += f" ({others})"
    text += f", {mean['at_bound']:.1%} at a bound (data {mean['at_bound_data']:.1%})"
    return f"{text}, {_value_text(mean)}" if "start_value" in mean else text


def _value_text(mean: Figures) -> str:
    """The values beside returns; of those that are on their way from 0 no number, since it looks like a return."""
    settled = settled_text(mean["values_settled"])
    if mean["values_settled"] < SETTLED:
        return f"values {settled}"
    returned = f"{mean['start_return']:.4g}, from {mean['start_lowest']:.4g} to {mean['start_highest']:.4g}"
    way = f", {settled}," if settled else ""
    return f"value {mean['start_value']:.4g}{way} where episodes begin (they returned {returned}, discounted alike)"


def _means(values: Mapping[str, Sequence[float]], members: Mapping[int, str]) -> dict[str, float]:
    """The mean of each loss over members, where it is finite: on held-out rows a loss may overflow."""
    losses = {name: column for name, column in values.items() if members and name.endswith("_loss")}
    means = {name: sum(column[member] for member in members) / len(members) for name, column in losses.items()}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}
