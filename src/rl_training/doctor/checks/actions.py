"""Checks of actions against an environment or stated bounds (sizes, ranges, units), against their range, and for copies."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.row_blocks import column_range
from rl_training.data.spaces import Spaces
from rl_training.doctor.checks.columns import isolated_rows
from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.findings import Finding, option

SMALL_PART = 0.25  # of the bounds, below which actions fill a small part of them
_FEWEST_ROWS = 20  # in which an observation may equal an action by chance
_SLACK = 1e-3  # of half a range, as training allows
_UNITS = {"degrees for radians?": 180.0 / np.pi, "percent?": 100.0, "thousandths?": 1000.0}


def check_spaces(inputs: CheckInput) -> Iterator[Finding]:
    """Sizes and ranges that differ from the environment's."""
    if inputs.env is None:
        return
    spaces, data = inputs.env.spaces, inputs.data
    ours, theirs = (data.observation_dim, data.action_dim), (spaces.observation_dim, spaces.action_dim)
    if ours != theirs:
        evidence = (
            f"the data has {ours[0]} observations and {ours[1]} actions, {inputs.env.env_id} has {theirs[0]} and {theirs[1]}"
        )
        yield Finding("space-mismatch", "error", evidence, "check the environment id and the columns")
        return
    low, high = column_range(inputs.sample("observations"))
    tolerance = 1e-3 * np.maximum(1.0, np.abs(inputs.env.observation_high))
    beyond = np.flatnonzero((low < inputs.env.observation_low - tolerance) | (high > inputs.env.observation_high + tolerance))
    if len(beyond):
        spans = "; ".join(
            f"{inputs.named('observations', [column])} is {low[column]:.4g} to {high[column]:.4g} and not "
            f"{inputs.env.observation_low[column]:.4g} to {inputs.env.observation_high[column]:.4g}"
            for column in beyond
        )
        fix = "check the environment id, and the order and units of the columns"
        yield Finding("space-mismatch", "warning", f"outside {inputs.env.env_id}: {spans}", fix)


def check_actions(inputs: CheckInput) -> Iterator[Finding]:
    """Actions outside their bounds, in another unit, or in a small part of them."""
    data = inputs.data
    if inputs.env is not None and inputs.env.spaces.action_dim == data.action_dim:
        bounds = inputs.env.spaces
        yield from _against(inputs, bounds, f"the bounds of {inputs.env.env_id}")
    elif inputs.env is None and data.action_low is not None:
        yield from _against(inputs, data.spaces, "the stated bounds")
    elif inputs.env is None:
        yield from _without_bounds(inputs)


def _against(inputs: CheckInput, spaces: Spaces, whose: str) -> Iterator[Finding]:
    low, high = spaces.action_low, spaces.action_high
    slack = _SLACK * np.where(spaces.free, (high - low) / 2.0, np.maximum(1.0, np.abs(low)))
    actions = inputs.sample("actions")
    outside = (actions < low - slack) | (actions > high + slack)
    beyond = inputs.sample_rows[outside.any(axis=1)]
    if not len(beyond):
        yield from _small_part(inputs, actions, spaces, whose)
        return
    largest = float((np.abs(actions).max(axis=0) / np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-12)).max())
    columns = np.flatnonzero(outside.any(axis=0))
    bounds = ", ".join(f"{low[column]:.4g} to {high[column]:.4g}" for column in columns)
    leave = f"leave{'s' * (len(columns) == 1)} {whose} ({bounds}) in {inputs.some(beyond)}, up to {largest:.3g} times"
    seen = f"{inputs.named('actions', columns)} {leave}"
    share = len(beyond) / len(actions)
    if largest > 1.0 and (share > 0.2 or (largest > 8.0 and share > 0.01)):
        hint, factor = _unit(largest)
        scale = option(action_scale=f"{factor:.6g}")
        single = "; a column map may convert single columns (`u / 100`)" if inputs.mapped else ""
        fix = f"add {scale}, or the factor of the unit{single}"
        yield Finding("action-units", "error", f"{seen}{hint}", fix)
        return
    where = "in the column map (`clip(u, low, high)`)" if inputs.mapped else "in the data"
    fix = f"if they overshoot, clip them {where}; else check units and bounds (--env, or --action-low and --action-high)"
    yield Finding("actions-out-of-bounds", "error", seen, fix)


def _unit(ratio: float) -> tuple[str, float]:
    """The unit that a ratio suggests, and the factor that undoes it."""
    for hint, factor in _UNITS.items():
        if 0.9 < ratio / factor < 1.05:
            return f" ({hint})", 1.0 / factor
    return "", 1.0 / ratio


def _small_part(inputs: CheckInput, actions: NDArray[Any], spaces: Spaces, whose: str) -> Iterator[Finding]:
    """Say where actions fill a small part of their bounds, or stop at a share of them as if they were scaled."""
    span = np.where(spaces.free, spaces.action_high - spaces.action_low, 1.0)
    first, last = np.quantile(actions, (0.0005, 0.9995), axis=0)
    filled = (last - first) / span
    small = np.flatnonzero(spaces.free & (filled < SMALL_PART) & (actions.min(axis=0) < actions.max(axis=0)))
    if len(small):
        parts = "; ".join(
            f"{inputs.named('actions', [j])} lies between {first[j]:.4g} and {last[j]:.4g} in 99.9 % of the rows, "
            f"{filled[j]:.1%} of {spaces.action_low[j]:.4g} to {spaces.action_high[j]:.4g}"
            for j in small
        )
        how = "state tighter ones with --action-low and --action-high"
        if inputs.env is not None:
            how = "leave out --env (`env_id: null`), so that the recorded range is the bound"
        fix = f"a policy may command all of {whose}, far outside the data: {how}, or add --action-scale if the unit differs"
        yield Finding("small-action-range", "warning", f"actions fill a small part of {whose}: {parts}", fix)
        return
    sizes = np.abs(spaces.unit_actions(actions)).max(axis=1)
    largest = float(sizes.max())
    if largest < 0.6 and (sizes > 0.999 * largest).mean() > 0.005:
        evidence = f"actions stop at {largest:.3g} of {whose}, as if they were stored scaled"
        yield Finding("action-units", "warning", evidence, f"if so, add {option(action_scale=f'{1 / largest:.4g}')}")


def check_copies(inputs: CheckInput) -> Iterator[Finding]:
    """Observations that are the action of their row: whoever asks a policy for an action does not know them."""
    for copy, column in copies(inputs):
        what, action = inputs.named("observations", [copy]), inputs.named("actions", [column])
        evidence = f"{what} is {action} in {inputs.every_row}: a policy would need its own command as input"
        before = "use the command before: `lag(NAME, 1)`" if inputs.mapped else "store the command of the row before"
        yield Finding("action-in-observations", "warning", evidence, f"leave it out {inputs.leave_out}, or {before}")


def copies(inputs: CheckInput) -> Iterator[tuple[int, int]]:
    """Yield the columns of observations that equal a column of actions in every row that is checked, and that column."""
    observations, actions = inputs.sample("observations"), inputs.sample("actions")
    first = slice(0, None, max(1, len(actions) // 100))  # a few rows, which hardly a column passes by chance
    for column in range(actions.shape[1]):
        command = actions[:, column]
        alike = np.flatnonzero((observations[first] == command[first, None]).all(axis=0))
        if len(command) < _FEWEST_ROWS or not len(alike) or (command == command[0]).all():
            continue
        for copy in alike[(observations[:, alike] == command[:, None]).all(axis=0)]:
            yield int(copy), column


def _without_bounds(inputs: CheckInput) -> Iterator[Finding]:
    """Without bounds the recorded range is the range of a policy: find single rows that set it alone."""
    actions = inputs.sample("actions")
    for column in range(inputs.data.action_dim):
        rows, low, high = isolated_rows(actions[:, column], gap=0.5)
        if len(rows):
            reach = actions[rows[np.argmax(np.abs(actions[rows, column]))], column]
            evidence = (
                f"{inputs.named('actions', [column])} is {low:.4g} to {high:.4g}, but reaches {reach:.4g} in "
                f"{inputs.some(inputs.sample_rows[rows])}, and no bounds are known: these rows set the range of a policy"
            )
            clip = f", or clip them in the column map: `clip(u, {low:.4g}, {high:.4g})`" if inputs.mapped else ""
            fix = f"fix these rows{clip}; if they are right, state the bounds with --action-low and --action-high"
            yield Finding("actions-out-of-bounds", "warning", evidence, fix)
