"""What the switch to online did to the returns of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.bands import Group, band
from rl_training.report.facts import NOTHING, episodes_of, number


@dataclass(frozen=True)
class Before:
    """What the last evaluation before the switch found."""

    mean: float
    episodes: int  # of each member


@dataclass(frozen=True)
class Dip:
    """What the switch to online did to the return of a group, as its curve shows it."""

    before: Before
    lowest: float  # in the first half of the online phase
    lowest_at: int  # position
    recovered_at: int | None  # the first position after that with the return from before

    @property
    def depth(self) -> float:
        """How far the return fell."""
        return max(0.0, self.before.mean - self.lowest)


def dip_of(group: Group, runs: Sequence[LoggedRun]) -> Dip | None:
    """Return the dip at the switch; None without a switch, or if no evaluation was before it or in the first half after."""
    switch, before = group.run.switch, return_before(group, runs)
    if switch is None or before is None or RETURN not in group.run.history:
        return None
    curve = band(group.run.curve(), group.members)
    planned = group.run.config.finetune
    steps = planned.env_steps if planned is not None else group.run.config.total_timesteps
    first = np.flatnonzero((curve.positions > switch) & (curve.positions <= switch + steps / 2))
    if not len(first):
        return None
    lowest = first[np.argmin(curve.middle[first])]
    recovered = np.flatnonzero((np.arange(len(curve.middle)) >= lowest) & (curve.middle >= before.mean))
    found = int(curve.positions[recovered[0]]) if len(recovered) else None
    return Dip(before, float(curve.middle[lowest]), int(curve.positions[lowest]), found)


DIP_HEADINGS = ("run", "at step", "return before", "lowest after", "dip", "recovered after")
DIP_NOTE = (
    "Over members as the curve: their mean, or of 5 or more the interquartile mean. The lowest evaluation is that in the "
    "first half of the online phase. Times in environment steps. No dip is told from unequal numbers of episodes."
)


def dip_cells(group: Group, runs: Sequence[LoggedRun]) -> list[str]:
    """Return the row of a group that went online, under `DIP_HEADINGS`."""
    dip, switch = dip_of(group, runs), group.run.switch or 0
    if dip is None:
        before = return_before(group, runs)
        known = ["not evaluated", NOTHING] if before is None else [number(before.mean), "not evaluated"]
        return [group.label, f"{switch:,}", *known, NOTHING, NOTHING]
    start, lowest = number(dip.before.mean), f"{number(dip.lowest)} at {dip.lowest_at - switch:,}"
    if dip.before.episodes != (now := episodes_of(group.run)):
        counts = (f"{start} ({dip.before.episodes} episodes)", f"{lowest} ({now} episodes)")
        return [group.label, f"{switch:,}", *counts, NOTHING, NOTHING]
    back = "not yet" if dip.recovered_at is None else f"{dip.recovered_at - switch:,}"
    fell = [number(dip.depth), back] if dip.depth else ["none", NOTHING]
    return [group.label, f"{switch:,}", start, lowest, *fell]


def return_before(group: Group, runs: Sequence[LoggedRun]) -> Before | None:
    """Return the return of the last evaluation before the switch; None where it is not known.

    A finetune in a directory of its own has none; it is that of the offline run, if that is in `runs`, and no run beside it
    that might be it had another return.
    """
    switch = group.run.switch
    if switch is None or RETURN not in group.run.history:
        return None
    curve = band(group.run.curve(), group.members)
    earlier = curve.middle[curve.positions <= switch]
    if len(earlier):
        return Before(float(earlier[-1]), group.run.config.rhythm.eval_episodes)
    found = {value for run in runs if (value := _offline_return(run, group, switch)) is not None}
    return found.pop() if len(found) == 1 else None


def _offline_return(run: LoggedRun, group: Group, switch: int) -> Before | None:
    """The return at the switch of a run from which a finetune may have begun: the same settings, data and seeds."""
    if run is group.run or RETURN not in run.history or run.seeds != group.run.seeds or not run.learns_as(group.run):
        return None
    curve = band(run.curve(), group.members)
    at = curve.positions == switch
    return Before(float(curve.middle[at][0]), episodes_of(run)) if at.any() else None
