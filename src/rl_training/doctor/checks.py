"""The checks of the doctor: each detects one kind of fault and reports what was seen, where, and what to do."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.row_blocks import column_range
from rl_training.data.subsets import episode_digests
from rl_training.doctor.alignment import find_shift
from rl_training.doctor.findings import CheckInput, Finding

HUGE = 1e6
_MOST_COLUMNS = 64  # that are searched for outliers


def _some(rows: NDArray[np.intp]) -> str:
    return f"{len(rows)} row{'s' * (len(rows) != 1)} (first: {', '.join(map(str, rows[:3]))})"


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
    low, high = column_range(data.observations[inputs.windows[0]])
    tolerance = 1e-3 * np.maximum(1.0, np.abs(inputs.env.observation_high))
    beyond = np.flatnonzero((low < inputs.env.observation_low - tolerance) | (high > inputs.env.observation_high + tolerance))
    for column in beyond[:3]:
        evidence = (
            f"observation column {column} spans {low[column]:.4g} to {high[column]:.4g}, that of {inputs.env.env_id} "
            f"{inputs.env.observation_low[column]:.4g} to {inputs.env.observation_high[column]:.4g}"
        )
        yield Finding(
            "space-mismatch", "warning", evidence, "check the environment id, and the order and units of the columns"
        )


def check_finite(inputs: CheckInput) -> Iterator[Finding]:
    """NaN and inf."""
    for name, rows in inputs.bad.items():
        fix = "fix the log, or leave these transitions out with --on-bad-rows drop"
        yield Finding("not-finite", "error", f"`{name}` holds NaN or inf in {_some(rows)}", fix)


def check_successors(inputs: CheckInput) -> Iterator[Finding]:
    """Next observations that are not those of the next row, inside episodes and at their ends."""
    broken, rows = inputs.broken, sum(part.stop - part.start for part in inputs.windows)
    if len(broken) > 0.5 * rows:
        evidence = f"{len(broken) / rows:.0%} of the next observations are not those of the row after"
        yield Finding(
            "next-observation-break", "warning", f"{evidence}: the rows seem shuffled", "order them by episode and time"
        )
    elif len(broken) and not _unmarked_ends(inputs):
        evidence = f"the next observation is not the observation of the row after in {_some(broken)}, inside episodes"
        fix = "rebuild them with --next-observations following, or mark an end in these rows"
        yield Finding("next-observation-break", "error", evidence, fix)
    if len(inputs.leaks):
        evidence = f"the next observation at a time limit is the first of the following episode in {_some(inputs.leaks)}"
        fix = "leave these rows out with --next-observations following"
        yield Finding("next-observation-leak", "error", evidence, fix)


def _unmarked_ends(inputs: CheckInput) -> bool:
    """Whether breaks are unmarked ends: no time limits anywhere, and the observation itself jumps."""
    if not inputs.marked[:-1].any():
        return True
    broken = inputs.broken
    return bool(not inputs.timeouts[:-1].any() and len(broken) and np.median(inputs.jumps(broken)) > 2.0 * inputs.usual_jump)


def check_ends(inputs: CheckInput) -> Iterator[Finding]:
    """Ends that overlap, are missing, or look like time limits."""
    if inputs.both_ends is not None and len(inputs.both_ends):
        evidence = f"an end and a time limit are both marked in {_some(inputs.both_ends)}"
        rule = "a terminal counts as a true end, a `done` as a time limit; mark them apart, or add --ends timeouts"
        yield Finding("ends-overlap", "warning", evidence, rule)
    if len(inputs.broken) and _unmarked_ends(inputs) and len(inputs.broken) <= 0.5 * len(inputs.data):
        evidence = f"no time limits are marked, but observations break off after {_some(inputs.broken)}"
        yield Finding("missing-ends", "warning", evidence, "they are taken as time limits; mark those that are true ends")
    elif not inputs.timeouts[:-1].any():
        jumps = _isolated_jumps(inputs)
        if len(jumps) >= 2:
            evidence = f"no time limits are marked, and the observation jumps after {_some(jumps)}{_rhythm(jumps)}"
            yield Finding("missing-ends", "error", evidence, "mark the ends, or name the episode column in the column map")
    last = np.flatnonzero(inputs.marked)
    lengths = np.diff(last, prepend=-1)
    ended = lengths[inputs.terminals[last]]
    if len(ended) >= 3 and lengths.max() > 1 and (at_most := (ended == lengths.max()).mean()) >= 0.9:
        which = f"all {len(ended)}" if at_most == 1.0 else f"{at_most:.0%} of {len(ended)}"
        evidence = f"{which} true ends fall at length {lengths.max()}, as if time limits were stored as terminals"
        yield Finding("ends-at-one-length", "warning", evidence, "if they are time limits, add --ends timeouts")


def _isolated_jumps(inputs: CheckInput) -> NDArray[np.intp]:
    """Rows after which the observation moves many times as far as it usually does."""
    part = inputs.windows[0]
    rows = part.start + np.flatnonzero(~inputs.marked[part.start : part.stop - 1])
    if len(rows) < 10:
        return np.empty(0, dtype=np.intp)
    sizes = inputs.jumps(rows)
    large = rows[sizes > max(12.0, 3.0 * float(np.quantile(sizes, 0.95)))]
    return large if len(large) < 0.1 * len(rows) else np.empty(0, dtype=np.intp)


def _rhythm(rows: NDArray[np.intp]) -> str:
    gaps = np.diff(rows)
    return f", every {gaps[0]} rows" if len(gaps) and (gaps == gaps[0]).all() else ""


def check_actions(inputs: CheckInput) -> Iterator[Finding]:
    """Actions outside their bounds, or in another unit."""
    data = inputs.data
    if inputs.env is not None and inputs.env.spaces.action_dim != data.action_dim:
        return
    known = inputs.env is not None or data.action_low is not None
    yield from _against_bounds(inputs) if known else _without_bounds(inputs)


def _against_bounds(inputs: CheckInput) -> Iterator[Finding]:
    spaces = inputs.data.spaces if inputs.env is None else inputs.env.spaces
    whose = "the recorded bounds" if inputs.env is None else f"the bounds of {inputs.env.env_id}"
    shown = f"{whose} ({spaces.action_low.tolist()} to {spaces.action_high.tolist()})"
    sizes = inputs.per_row(lambda part: np.abs(spaces.unit_actions(inputs.data.actions[part])).max(axis=1))
    rows = inputs.per_row(lambda part: np.arange(part.start, part.stop))
    beyond, largest = rows[sizes > 1.0 + 1e-3], float(sizes.max())
    if len(beyond) > 0.2 * len(rows) or largest > 8.0:
        evidence = f"actions reach {largest:.3g} times {shown} in {_some(beyond)}{_unit(largest)}"
        yield Finding("action-units", "error", evidence, f"add --action-scale {1 / largest:.4g}, or the factor of the unit")
    if len(beyond) and len(beyond) <= 0.2 * len(rows):
        evidence = f"actions leave {shown} in {_some(beyond)}, up to {largest:.3g} times"
        yield Finding(
            "actions-out-of-bounds", "error", evidence, "check the environment and the units; fix these rows in the log"
        )
    if largest < 0.6 and (sizes > 0.999 * largest).mean() > 0.005:
        evidence = f"actions stop at {largest:.3g} of {shown}, as if they were stored scaled"
        yield Finding("action-units", "warning", evidence, f"if so, add --action-scale {1 / largest:.4g}")


def _without_bounds(inputs: CheckInput) -> Iterator[Finding]:
    """Judge by the data alone: no bounds are known."""
    fix = "set the bounds with --action-low and --action-high, the unit with --action-scale, or the environment with --env"
    for column in range(inputs.data.action_dim):
        sizes = inputs.per_row(lambda part, column=column: np.abs(inputs.data.actions[part, column]))  # type: ignore[misc]
        rows = inputs.per_row(lambda part: np.arange(part.start, part.stop))
        usual = sizes <= 1.5 * np.quantile(sizes, 0.99)
        bound = float(sizes[usual].max())
        beyond = rows[~usual]
        if len(beyond) and bound > 0 and (sizes[usual] >= 0.999 * bound).mean() > 0.002:
            evidence = f"action column {column} stops at {bound:.4g} but for {_some(beyond)}, up to {float(sizes.max()):.4g}"
            yield Finding(
                "actions-out-of-bounds", "warning", evidence, "check these rows; the bounds are taken from the data"
            )
        if bound > 10.0:
            evidence = f"action column {column} reaches {bound:.4g}, and no bounds are known{_unit(bound)}"
            yield Finding("action-units", "warning", evidence, fix)


def _unit(ratio: float) -> str:
    return " (degrees for radians?)" if 55 < ratio < 60 else " (percent?)" if 95 < ratio < 105 else ""


def check_columns(inputs: CheckInput) -> Iterator[Finding]:
    """Columns that never change, or are huge."""
    for name in ("observations", "actions", "rewards"):
        values = getattr(inputs.data, name).reshape(len(inputs.data), -1)
        ranges = [column_range(values[part]) for part in inputs.windows]
        low, high = np.min([r[0] for r in ranges], axis=0), np.max([r[1] for r in ranges], axis=0)
        for column in np.flatnonzero(low == high)[:3]:
            what = "`rewards`" if name == "rewards" else f"`{name}` column {column}"
            fix = "nothing can be learned from it" if name == "rewards" else "leave it out, or check the log"
            yield Finding("constant-column", "warning", f"{what} is {low[column]:.6g} in every row", fix)
        for column in np.flatnonzero(np.maximum(np.abs(low), np.abs(high)) > HUGE)[:3]:
            evidence = f"`{name}` column {column} reaches {max(abs(low[column]), abs(high[column])):.3g}"
            fix = "set reward.scale" if name == "rewards" else "set normalize_observations, or fix the unit"
            yield Finding("huge-column", "warning", evidence, f"{fix}: such numbers make training diverge")


def check_outliers(inputs: CheckInput) -> Iterator[Finding]:
    """Single values far outside all others: a sensor that failed, or a placeholder such as -9999."""
    for name in ("observations", "rewards"):
        values = getattr(inputs.data, name).reshape(len(inputs.data), -1)
        for column in range(min(values.shape[1], _MOST_COLUMNS)):
            rows, low, high = _far_rows(values[:, column])
            if 0 < len(rows) < 0.001 * len(values):
                what = "`rewards`" if name == "rewards" else f"`{name}` column {column}"
                seen = f"{what} is {values[rows[0], column]:.6g} in {_some(rows)}, and from {low:.4g} to {high:.4g} elsewhere"
                yield Finding("outlier-rows", "warning", seen, "if it marks a missing value, fix the log")


def _far_rows(values: NDArray[np.floating[Any]]) -> tuple[NDArray[np.intp], float, float]:
    """Rows twenty times as far out as 99 % of the values, and the range of the others."""
    low, high = np.quantile(values[:: max(1, len(values) // 100_000)], (0.005, 0.995))
    far = np.abs(values - (low + high) / 2.0) > 20.0 * (high - low)
    return (np.flatnonzero(far) if high > low else np.empty(0, dtype=np.intp)), float(low), float(high)


def check_duplicates(inputs: CheckInput) -> Iterator[Finding]:
    """Episodes that occur twice."""
    seen: dict[bytes, int] = {}
    lengths = inputs.data.episode_spans[1]
    pairs = [(seen.setdefault(digest, number), number) for number, digest in enumerate(episode_digests(inputs.data))]
    twins = [(first, second) for first, second in pairs if first != second and lengths[second] > 1]
    if twins:
        shown = ", ".join(f"{second} is {first} again" for first, second in twins[:3])
        fix = "leave them out with `rl-training data filter --unique`, or they count twice and leak into validation"
        yield Finding("duplicate-episodes", "warning", f"{len(twins)} episodes occur twice ({shown})", fix)


def check_alignment(inputs: CheckInput) -> Iterator[Finding]:
    """Rewards shifted against transitions."""
    data = inputs.data
    if inputs.bad or len(inputs.leaks):  # then the seams are no evidence
        return
    fields = (data.observations, data.actions, data.rewards, data.next_observations, data.terminals)
    shift = find_shift(*fields, data.episode_ends)
    if shift is not None:
        side = ("late", "before") if shift.lag > 0 else ("early", "after")
        evidence = (
            f"rewards are one row {side[0]}: {shift.where} ({shift.rows} rewards) the error is {shift.own_error:.3g} "
            f"explained by its own transition, {shift.other_error:.3g} by the one {side[1]}"
        )
        across = " --reward-lag-across" if shift.across else ""
        yield Finding("shifted-rewards", "error", evidence, f"add --reward-lag {shift.lag}{across}")


Check = Callable[[CheckInput], Iterator[Finding]]
QUICK_CHECKS: tuple[Check, ...] = (check_spaces, check_finite, check_ends, check_successors, check_actions, check_columns)
THOROUGH_CHECKS: tuple[Check, ...] = (check_outliers, check_duplicates, check_alignment)
