"""A check for sensors that were read after the command of their row was given: a policy cannot know what they show.

What is new in such a column, beyond what the row before lets expect, is the new part of the command: its noise, too, which no
reading before the command can show. Of a column that a controller acts on, most is known from the row before, or its new part
is only a share of that of the command. Where it is all of it, the log has one rule without noise, which looks the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.doctor.checks.actions import copies
from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.expectation import Numbers, Rows, explained_by
from rl_training.doctor.findings import Finding

_NEW = 0.1  # of a column's variance is not explained by the row before; what a fit leaves of the states of a plant is less
_TOLD = 0.95  # of the new part is explained by the action of the row; the rest is noise, and what a fit leaves
_FEWEST_ROWS, _MOST_ROWS = 1000, 4000


def check_echoes(inputs: CheckInput) -> Iterator[Finding]:
    """Observations that show the action of their own row."""
    rows, actions = _followed(inputs), inputs.data.actions
    if len(rows) < _FEWEST_ROWS:
        return
    before, commands = (inputs.data.observations[rows], actions[rows]), actions[rows + 1]
    shown = _scaled(inputs.data.observations[rows + 1])
    shown[:, ~_surprising(before, shown)] = 0.0
    if not shown.any():
        return
    new = _unexplained(before, shown)
    told = 1.0 - _unexplained((*before, commands), shown) / np.where(new > 0.0, new, np.inf)
    told[[column for column, _ in copies(inputs)]] = 0.0  # which have a finding of their own
    echoes = np.flatnonzero((new > _NEW) & (told > _TOLD))
    if not len(echoes):
        return
    evidence = (
        f"{inputs.named('observations', echoes)} {'tell' if len(echoes) > 1 else 'tells'} the command of the same row: "
        f"the actions explain {told[echoes].min():.1%} of what the row before does not"
    )
    earlier = "take the value before, `lag(NAME, 1)`" if inputs.mapped else "store the value of the row before"
    fix = (
        f"if it is read after the command is given, a policy cannot know it: leave it out {inputs.leave_out}, or {earlier}; "
        "if the command is computed from it, all is well, but the log shows no other commands"
    )
    yield Finding("action-echo", "warning", evidence, fix)


def _followed(inputs: CheckInput) -> Rows:
    """The rows to check that have a successor in their episode, in random order."""
    rows = inputs.sample_rows[~inputs.marked[inputs.sample_rows]]
    rows = np.setdiff1d(rows[rows < len(inputs.data) - 1], inputs.unsure)
    return np.random.Generator(np.random.Philox(0)).permutation(rows)[:_MOST_ROWS]


def _scaled(values: NDArray[Any]) -> Numbers:
    """The columns with a mean of 0 and a variance of 1; 0 where a column does not move."""
    numbers = np.asarray(values, dtype=np.float64)
    spread = numbers.std(axis=0)
    moving = spread > 1e-9 * np.abs(numbers).max(axis=0)
    return np.asarray((numbers - numbers.mean(axis=0)) / np.where(moving, spread, np.inf))


def _surprising(parts: Sequence[NDArray[Any]], targets: Numbers) -> NDArray[np.bool_]:
    """Whether targets have a new part by a linear fit, which takes no time: a better fit only leaves less."""
    known = _scaled(np.concatenate(parts, axis=1))
    left = targets - known @ np.linalg.lstsq(known, targets, rcond=None)[0]
    return np.asarray(np.square(left).mean(axis=0) > _NEW)


def _unexplained(parts: Sequence[NDArray[Any]], targets: Numbers) -> Numbers:
    """The mean squared error of each target, explained by these parts in a fit to the other half of the rows."""
    halves = np.array_split(np.arange(len(targets)), 2)
    errors = [targets[test] - explained_by(parts, fit, targets[fit])(test) for fit, test in (halves, halves[::-1])]
    return np.asarray(np.square(np.concatenate(errors)).mean(axis=0))
