"""The doubts about policies at the last check of a run on held-out rows, found again from what was logged of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.logged_run import DISTANCE, LoggedRun
from rl_training.config.sweep import knob_text
from rl_training.runtime.validating.concerns import concerns, gathered, warning_text

_HELD_OUT = "validation/"


@dataclass(frozen=True)
class LastCheck:
    """Where a run was last checked, and what was doubtful there."""

    place: str  # in the words and the unit in which warnings have it: `step 120`, or online `env step 120`
    warnings: dict[str, str] | None  # by their codes, in the words of training; None where not all figures are logged


def last_check(run: LoggedRun) -> LastCheck | None:
    """Return the doubts at the last check of a run, by the same rules as in training; None if it has none yet.

    A member that has ended counts with its own last check.
    """
    if DISTANCE not in run.history:
        return None
    checked = np.flatnonzero(~np.isnan(run.history[DISTANCE]))
    return LastCheck(_place(run, int(checked[np.argmax(run.positions[checked])])), _warnings(run))


def _place(run: LoggedRun, row: int) -> str:
    online = "env_step" in run.history and not np.isnan(run.history["env_step"][row])
    return f"env step {run.history['env_step'][row]:,.0f}" if online else f"step {run.history['step'][row]:,}"


def _warnings(run: LoggedRun) -> dict[str, str] | None:
    labels, own = {}, {}
    for member, seed in run.seeds.items():
        rows = np.flatnonzero((run.history["member"] == member) & ~np.isnan(run.history[DISTANCE]))
        if not len(rows):
            continue
        knobs = dict(enumerate(run.config.member_knobs)).get(member)
        labels[member] = f"{seed} ({knob_text(knobs)})" if knobs else str(seed)
        try:
            own[member] = concerns(_figures(run, rows), run.config.algo_kwargs)
        except KeyError:
            return None  # an earlier version may not have had a figure
    found = gathered(own, labels)
    return {code: warning_text(one, whose, len(labels), len(run.seeds)) for code, (one, whose) in found.items()}


def _figures(run: LoggedRun, rows: NDArray[np.int64]) -> dict[str, float]:
    """The figures in the last of some rows; a KeyError for one that was not finite there, and so was not logged."""
    found = {}
    for name in run.metrics(_HELD_OUT):
        column = run.history[name][rows]
        if np.isnan(column).all():  # of other members alone
            continue
        if np.isnan(column[-1]):
            raise KeyError(name)
        found[name.removeprefix(_HELD_OUT)] = float(column[-1])
    return found
