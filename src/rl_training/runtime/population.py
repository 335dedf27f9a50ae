"""Members of a population: status and returns of each member, and of each combination of a sweep."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.learner import Learner, Metrics
from rl_training.config.sweep import knob_text
from rl_training.runtime.sharing.ranks import Ranks


@dataclass
class MemberRecord:
    """One member's status and returns; saved with every checkpoint."""

    seed: int
    status: str = "training"  # training, stopped, diverged
    status_step: int | None = None
    last_return: float | None = None
    best_return: float | None = None
    best_step: int | None = None
    best_unit: str | None = None  # in which `best_step` counts: `step` or `env step`; None in older checkpoints
    last_score: float | None = None  # by `select_by`; None without it and in older checkpoints
    knobs: dict[str, float] = field(default_factory=dict)  # the member's own knobs in a sweep

    @property
    def label(self) -> str:
        """The seed, and the member's own knobs if any: `3 (expectile=0.7)`."""
        return f"{self.seed} ({knob_text(self.knobs)})" if self.knobs else str(self.seed)

    def take_return(self, value: float, step: int, unit: str) -> None:
        """Record the mean return of an evaluation."""
        self.last_return = value
        if self.best_return is None or value > self.best_return:
            self.best_return, self.best_step, self.best_unit = value, step, unit

    @property
    def columns(self) -> dict[str, Any]:
        """What identifies the member in a metric row."""
        return {"seed": self.seed, **{f"knob/{name}": value for name, value in self.knobs.items()}}


def new_records(seeds: Sequence[int], knobs: Sequence[dict[str, float]]) -> list[MemberRecord]:
    """Return the records of members that have not been trained, by their seeds and their own knobs."""
    return [MemberRecord(seed, knobs=own) for seed, own in zip(seeds, knobs, strict=True)]


def restored_records(saved: Sequence[Mapping[str, Any]], knobs: Sequence[dict[str, float]]) -> list[MemberRecord]:
    """Return the records of a checkpoint, with the knobs in their order, which the JSON file does not keep."""
    return [MemberRecord(**{**record, "knobs": own}) for record, own in zip(saved, knobs, strict=True)]


def with_returns(
    saved: Sequence[Mapping[str, Any]], means: Sequence[float], members: Sequence[int], step: int, unit: str
) -> list[dict[str, Any]]:
    """Return the records of a checkpoint together with what a later evaluation of it found."""
    records = [MemberRecord(**record) for record in saved]
    for member in members:
        records[member].take_return(means[member], step, unit)
    return [asdict(record) for record in records]


@dataclass(frozen=True)
class Combination:
    """The results of one combination of a sweep over its seeds; its return leaves out diverged members."""

    knobs: dict[str, float]
    members: list[int]
    diverged: int
    return_mean: float | None  # None where no member was evaluated
    return_std: float | None  # of the members' mean returns, as a sample; None of fewer than two


def combinations(records: Sequence[MemberRecord], returns: Sequence[float | None] | None = None) -> list[Combination]:
    """Return the combinations of a sweep in the order of its members, by their last returns or those given."""
    scores = [record.last_return for record in records] if returns is None else returns
    by_knobs: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for member, record in enumerate(records):
        if record.knobs:
            by_knobs.setdefault(tuple(record.knobs.items()), []).append(member)
    result = []
    for knobs, members in by_knobs.items():
        good = [member for member in members if records[member].status != "diverged"]
        values = [value for member in good if (value := scores[member]) is not None]
        mean, std = fmean(values) if values else None, stdev(values) if len(values) > 1 else None
        result.append(Combination(dict(knobs), members, len(members) - len(good), mean, std))
    return result


def best_combination(found: Sequence[Combination]) -> Combination | None:
    """Return the one with the fewest diverged members, and of those the highest mean return; None if none was evaluated."""
    scored = [one for one in found if one.return_mean is not None]
    return min(scored, key=lambda one: (one.diverged, -(one.return_mean or 0.0)), default=None)


class Population:
    """Freezes members one by one: a frozen member keeps its last good state while the others continue.

    Members are independent, so a frozen one may keep computing within a chunk; its rows are restored when the chunk ends.
    The records are those of all members, also where the learner of this rank has some of them.
    """

    def __init__(self, learner: Learner[Any, Any], records: Sequence[MemberRecord], ranks: Ranks) -> None:
        self.learner, self.records, self._ranks = learner, list(records), ranks
        self._kept = self._snapshot() if len(self.records) > 1 else None  # last good state, then the frozen one

    @property
    def active(self) -> list[int]:
        """Members still training."""
        return [index for index, record in enumerate(self.records) if record.status == "training"]

    @property
    def frozen(self) -> list[int]:
        """Members that stopped or diverged."""
        return [index for index, record in enumerate(self.records) if record.status != "training"]

    @property
    def all_diverged(self) -> bool:
        """Whether nothing usable is left."""
        return all(record.status == "diverged" for record in self.records)

    def freeze(self, members: Collection[int], status: str, step: int) -> None:
        """Stop members at their last good state."""
        for member in members:
            self.records[member].status, self.records[member].status_step = status, step
        self.restore_frozen()

    def revive(self) -> None:
        """Let stopped members train again; diverged ones stay frozen."""
        for record in self.records:
            if record.status == "stopped":
                record.status, record.status_step = "training", None

    def restore_frozen(self) -> None:
        """Restore the rows of frozen members."""
        frozen = self._own(self.frozen)
        if frozen and self._kept is not None:
            for buffer, kept in zip(self.learner.buffers(), self._kept, strict=True):
                buffer[frozen] = kept[frozen]

    def keep_good_state(self) -> None:
        """Keep the current state of active members as their last good one."""
        if self._kept is None:
            return
        everyone, active = not self.frozen, self._own(self.active)
        for buffer, kept in zip(self.learner.buffers(), self._kept, strict=True):
            if everyone:
                kept.copy_(buffer)  # much faster on a GPU
            else:
                kept[active] = buffer[active]

    def diverged(self, metrics: Metrics) -> list[int]:
        """Return the active members whose metrics or parameters are NaN or inf; `metrics` are of this rank's members."""
        sums = [values.double().flatten(1).sum(1) for values in self.learner.buffers()]
        finite = self._ranks.of_members(torch.isfinite(torch.stack([*metrics.values(), *sums])).all(0).tolist())
        return [member for member in self.active if not finite[member]]

    def fault(self, members: Sequence[int], metrics: Metrics) -> str:
        """Return what diverged members met NaN or inf in, with their seeds; `metrics` are of this rank's members."""
        own = self._own(members)
        found = self._ranks.gather([name for name, value in metrics.items() if not torch.isfinite(value[own]).all()])
        broken = [name for name in metrics if name in found] or ["parameters"]
        return f"{self.seeds_text(members)} met NaN or inf in {', '.join(broken)}"

    def seeds_text(self, members: Sequence[int]) -> str:
        """Return who some members are, such as `seed 3`, or `seeds 0, 2 and 5`."""
        *others, last = (self.records[member].label for member in members)
        return f"seeds {', '.join(others)} and {last}" if others else f"seed {last}"

    def record_evaluation(self, step: int, unit: str, means: Sequence[float], members: Sequence[int]) -> None:
        """Record the returns of members at a step, and each member's best."""
        for member in members:
            self.records[member].take_return(means[member], step, unit)

    def record_scores(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Record the scores among the held-out metrics of active members; one that is not finite is none."""
        for member in self.active:
            score = rows[member].get("score")
            self.records[member].last_score = score if score is not None and isfinite(score) else None

    def mean_return(self) -> float:
        """Return the mean of the last returns of all members that did not diverge, stopped ones included."""
        returns = [r.last_return for r in self.records if r.status != "diverged" and r.last_return is not None]
        return sum(returns) / len(returns)

    def of_active(self, values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        """Return metrics with 0 for frozen members: nobody reads theirs, which may be NaN or inf."""
        active = set(self.active)
        return {name: [x if m in active else 0.0 for m, x in enumerate(column)] for name, column in values.items()}

    def summary(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Return the last return where known, and the losses among the metrics, averaged over active members."""
        active = self.active
        shown = {n.replace("_", " "): c for n, c in values.items() if n.endswith("_loss")}
        losses = {name: sum(column[m] for m in active) / len(active) for name, column in shown.items() if active}
        returns = [r for m in active if (r := self.records[m].last_return) is not None]
        return {**({"return": sum(returns) / len(returns)} if returns else {}), **losses}

    def state(self) -> list[dict[str, Any]]:
        """Return the records as plain values."""
        return [asdict(record) for record in self.records]

    def _own(self, members: Sequence[int]) -> list[int]:
        """Those of some members that this rank's learner has, by their place in it."""
        return [member - self._ranks.own.start for member in members if member in self._ranks.own]

    def _snapshot(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self.learner.buffers()]
