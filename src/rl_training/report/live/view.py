"""What a terminal shows of a run: read from its rows once, then drawn at any size."""

from dataclasses import dataclass

import numpy as np

from rl_training.analysis.endings import missing_rows
from rl_training.analysis.logged_run import DISTANCE, RETURN, LoggedRun
from rl_training.config.sweep import knob_text
from rl_training.report.bands import MANY, Band, Group, Numbers, band, groups_of, losses, main_metric
from rl_training.report.cautions import Caution, cautions_of
from rl_training.report.facts import (
    MemberFacts,
    best_groups,
    member_facts,
    returns_of,
    source_of,
    spread_text,
)
from rl_training.report.live.progress import Progress, progress_of

_MOST_METRICS = 8
_NAMES = {RETURN: "return", DISTANCE: "distance to held-out actions"}


@dataclass(frozen=True, eq=False)
class RunView:
    """The numbers of a run that are worth a look while it goes on."""

    title: str
    progress: Progress
    metric: str | None  # of the curve; None before there is any row
    group: Group | None  # whose curve it is
    curve: Band | None
    awaits_evaluation: bool  # so that the curve is that of a loss for now
    switch: int | None
    members: list[MemberFacts]
    may_stop_early: bool
    metrics: dict[str, Numbers]  # further ones, by name: the middle of the same members at each row
    cautions: list[Caution]  # what training warned of, and what is missing
    missing: list[str]  # in the metrics of a run that has ended, so that its numbers mislead

    def result(self) -> str | None:
        """Return the latest of what counts, such as `return -210.8 (-335.1 to -156.1), best -198.3 (-320.0 to -150.2)`.

        The best is that of each member, as in a report; None before there is any.
        """
        if self.metric == RETURN:
            final, best = (returns_of(self.counted, which) for which in ("final", "best"))
            last = "each member's last return" if self.lost else "return"  # the curve goes on without those that diverged
            middle = "" if len(final) < 2 else "mean " if len(final) < MANY else "interquartile mean "
            last = f"{middle}{'of ' * bool(middle and self.lost)}{last}"
            return f"{last} {spread_text(final)}, best {spread_text(best)}" if len(final) else None
        if self.metric is None or self.curve is None:
            return None
        last = self.curve.members[-1]
        return f"{self.label} {spread_text(last[~np.isnan(last)])}"

    @property
    def counted(self) -> list[MemberFacts]:
        """The members whose curve is drawn: all, or those of the best combination of a sweep."""
        return self.members if self.group is None else [self.members[column] for column in self.group.members]

    @property
    def lost(self) -> bool:
        """Whether one of these members diverged."""
        return any(one.diverged for one in self.counted)

    @property
    def label(self) -> str:
        """What people call the metric of the curve."""
        return _NAMES.get(self.metric or "", (self.metric or "").partition("/")[2])

    @property
    def evaluated_at(self) -> int | None:
        """The position of the latest evaluation, or row of losses of a run that has none; None before there is one."""
        return None if self.curve is None or self.awaits_evaluation else int(self.curve.positions[-1])


def view_of(run: LoggedRun) -> RunView:
    """Return what to show of a run; the curve of a sweep is that of its best combination."""
    metric, missing = main_metric(run), missing_rows(run)
    group = curve = None
    if metric is not None:
        group = best_groups(groups_of([run]), 1)[0]
        curve = band(run.curve(metric), group.members).finite()
        curve = curve if len(curve.positions) else None
    columns = group.members if group is not None else range(len(run.seeds))
    return RunView(
        title=_title(run),
        progress=progress_of(run),
        metric=metric,
        group=group,
        curve=curve,
        awaits_evaluation=metric != RETURN and run.config.final_env_id is not None,
        switch=run.switch,
        members=member_facts(run),
        may_stop_early=run.config.early_stopping is not None,
        metrics={name: band(run.curve(name), columns).middle for name in _further(run, metric)},
        cautions=[*cautions_of(run), *map(Caution, missing)],
        missing=missing,
    )


def _title(run: LoggedRun) -> str:
    count = len(run.seeds)
    members = f"seed {next(iter(run.seeds.values()))}" if count == 1 else f"{count} members"
    return f"{run.name}: {run.config.algo} on {source_of(run)}, {members}"


def _further(run: LoggedRun, shown: str | None) -> list[str]:
    """The metrics beside the curve: figures on held-out rows without an environment, losses, values."""
    held_out = [] if shown == RETURN else run.metrics("validation/")[:4]
    values = [name for name in ("train/q_mean", "data/episode_return") if name in run.history]
    names = dict.fromkeys([*held_out, *losses(run), *values])
    return [name for name in names if name != shown][:_MOST_METRICS]


def knobs_of(facts: MemberFacts) -> str:
    """Return the swept knobs of a member as text; empty without a sweep."""
    return knob_text(facts.knobs)
