"""Checks of rewards: do they belong to their rows, are they rewards at all, and are those that count among them?"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rl_training.doctor.action_alignment import ActionShift, ActionTest
from rl_training.doctor.alignment import Shift, find_shift
from rl_training.doctor.checks.columns import BLANK, isolated_rows, outliers_seen
from rl_training.doctor.evidence import CheckInput, Rows
from rl_training.doctor.findings import Finding, option
from rl_training.doctor.running_sum import find_running_sum

_FEWEST_PAYOUTS = 3
_FEWEST_LEFT = 20  # rewards, below which none of them is usual
_MOST_COLUMNS = 256  # that are searched for what rare rewards go with


def check_reward_values(inputs: CheckInput) -> Iterator[Finding]:
    """Rewards that never change, and payouts in last rows that were left out."""
    rewards, unseen = inputs.sample("rewards"), inputs.data.unseen_rewards
    if len(inputs.bad.get("rewards", ())) == len(inputs.data):
        return  # none is known
    low, high = float(rewards.min()), float(rewards.max())
    lost = np.empty(0) if unseen is None or len(rewards) < _FEWEST_LEFT else unseen[unseen != 0.0]
    slack = 0.1 * (high - low)
    beyond = (lost < low - slack) | (lost > high + slack)
    if beyond.any() if low == high else len(lost) >= _FEWEST_PAYOUTS and 2 * beyond.sum() > len(lost):
        yield _lost_payouts(inputs, lost, low, high)
    elif low == high:
        evidence, fix = f"`rewards` is {low:.6g} in {inputs.every_row}", "nothing can be learned from it: check the reward"
        yield Finding("constant-column", "warning", evidence, fix)


def _lost_payouts(inputs: CheckInput, lost: NDArray[np.float64], low: float, high: float) -> Finding:
    """Say how many payouts are left out, how large they are beside what is left, and what keeps them."""
    kind = "reward" if low or high else "non-zero reward"
    single, why = len(lost) == 1, "left out since nothing tells what followed"
    where = f"stands in the last row of a cut episode, which is {why} it"
    if not single:
        where = f"stand in last rows of cut episodes, which are {why} them"
    seen = f"{len(lost)} {kind}{'s' * (not single)} {_extent(lost.min(), lost.max(), 'of ', 'from ')} {where}"
    checked = len(inputs.sample_rows) < len(inputs.data)
    left = f"in {inputs.every_row} the reward is" if checked else "all that is left is"
    marked = "a column that is mapped as `terminal`" if inputs.mapped else "`terminals`"
    fix = f"if the task ends there, mark these rows in {marked}; if not, give next observations: either keeps them"
    return Finding("lost-payouts", "warning", f"{seen}; {left} {_extent(low, high)}", fix)


def _extent(low: float, high: float, one: str = "", several: str = "") -> str:
    return f"{one}{low:.4g}" if low == high else f"{several}{low:.4g} to {high:.4g}"


def check_reward_outliers(inputs: CheckInput) -> Iterator[Finding]:
    """Single rewards far outside all others that neither ends nor extreme readings explain."""
    rewards = np.asarray(inputs.data.rewards)
    rows, low, high = isolated_rows(rewards)
    paid = 10 * inputs.data.episode_ends[rows].sum() > 9 * len(rows)  # or a penalty
    if len(rows) and not paid and not _at_extremes(inputs, rows):
        seen = outliers_seen(inputs, "`rewards`", rewards, rows, low, high)
        fix = f"rare penalties and payouts are right, and must stay; only if it stands for a missing value, {BLANK}"
        yield Finding("outlier-rows", "warning", seen, fix)


def _at_extremes(inputs: CheckInput, rows: Rows) -> bool:
    """Whether an observation is at its highest, or lowest, in these rows and in no more than as many others."""
    for values in (inputs.data.observations, inputs.data.next_observations):
        for column in range(min(values.shape[1], _MOST_COLUMNS)):
            own = np.asarray(values[:, column])
            if min((own >= own[rows].min()).sum(), (own <= own[rows].max()).sum()) <= 2 * len(rows):
                return True
    return False


def check_rewards(inputs: CheckInput) -> Iterator[Finding]:
    """Rewards that are a running sum, and rewards or actions that are shifted against transitions."""
    data = inputs.data
    if "rewards" in inputs.bad or "observations" in inputs.bad:
        return
    found = find_running_sum(data)
    if found is not None:
        evidence = f"rewards look like a running sum: {found}"
        fix = (
            'take the differences: `reward: "diff(NAME)"` in the column map, or in arrays r[t] - r[t - 1] inside each episode'
        )
        yield Finding("running-sum", "warning", evidence, fix)
        return
    if len(inputs.leaks):  # then the seams are no evidence
        return
    actions = ActionTest(data) if "actions" not in inputs.bad else None
    moved = None if actions is None else actions.shift()
    if moved is not None:
        yield _shifted_actions(inputs, moved)
        return
    fields = (data.observations, data.actions, data.rewards, data.next_observations, data.terminals)
    shift = find_shift(*fields, data.episode_ends)
    if shift is not None:
        unclear = shift.inside and actions is not None and actions.may_be_shifted(-shift.lag)
        yield _unclear_shift(shift) if unclear else _shifted_rewards(shift)


def _shifted_rewards(shift: Shift) -> Finding:
    across = {"reward_lag_across": True} if shift.across else {}
    fix = f"{'' if shift.sure else 'if they are not smoothed or delayed, '}add {option(reward_lag=shift.lag, **across)}"
    seen = f"rewards {'are' if shift.sure else 'seem to be'} one row {_side(shift.lag)}: {shift.reason}"
    return Finding("shifted-rewards", "error" if shift.sure else "warning", seen, fix)


def _unclear_shift(shift: Shift) -> Finding:
    """Rewards and actions that disagree by a row, where next observations do not tell which of them is wrong, if any is.

    A reward of what answers a command late and is not observed, such as the position of an actuator, looks late.
    """
    sure = shift.sure and shift.lag < 0
    seen = (
        f"rewards {'are' if sure else 'seem to be'} one row {_side(shift.lag)}, or actions one row {_side(-shift.lag)}: "
        f"{shift.reason}, and what is observed next does not tell which"
    )
    fix = (
        "find out in the logger which column is late: moving the wrong one makes this go away, and ruins the policy "
        f"(`reward_lag: {shift.lag}` moves rewards, `action_lag: {-shift.lag}` actions)"
    )
    if shift.lag > 0:
        fix = f"if the reward is not one of something that answers late and is not observed, {fix}"
    return Finding("shifted-rewards", "error" if sure else "warning", seen, fix)


def _shifted_actions(inputs: CheckInput, shift: ActionShift) -> Finding:
    column, neighbour = inputs.named("observations", [shift.column]), "after" if shift.lag > 0 else "before"
    own, other = (f"{error:.2g}" for error in shift.errors)
    seen = (
        f"actions {'are' if shift.sure else 'seem to be'} one row {_side(shift.lag)}: the next {column} follows from the "
        f"action of the row {neighbour} (error {other} of its spread) and not from the row's own ({own}), which tells no "
        "column better"
    )
    seen += "; rewards agree" if shift.sure else ""
    doubt = "if the plant does not answer a row late, which looks the same" if shift.lag < 0 else "if no sensor is read late"
    across = {"action_lag_across": True} if shift.across else {}
    fix = f"{'' if shift.sure else doubt + ', '}add {option(action_lag=shift.lag, **across)}"
    return Finding("shifted-actions", "error" if shift.sure else "warning", seen, fix)


def _side(lag: int) -> str:
    return "late" if lag > 0 else "early"
