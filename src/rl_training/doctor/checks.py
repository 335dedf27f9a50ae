"""The checks of the doctor: each looks at one kind of fault and says what it saw, where, and what to do."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.blocks import column_range
from rl_training.data.subsets import episode_digests
from rl_training.doctor.alignment import find_shift
from rl_training.doctor.findings import Case, Finding

HUGE = 1e6
_MOST_COLUMNS = 64  # in which single values are searched for


def _some(rows: NDArray[np.intp]) -> str:
    return f"{len(rows)} row{'s' * (len(rows) != 1)} (first: {', '.join(map(str, rows[:3]))})"


def check_spaces(case: Case) -> Iterator[Finding]:
    """Sizes and ranges against the environment's."""
    if case.env is None:
        return
    spaces, data = case.env.spaces, case.data
    ours, theirs = (data.observation_dim, data.action_dim), (spaces.observation_dim, spaces.action_dim)
    if ours != theirs:
        evidence = (
            f"the data has {ours[0]} observations and {ours[1]} actions, {case.env.env_id} has {theirs[0]} and {theirs[1]}"
        )
        yield Finding("space-mismatch", "error", evidence, "check the environment id and the columns")
        return
    low, high = column_range(data.observations[case.windows[0]])
    room = 1e-3 * np.maximum(1.0, np.abs(case.env.observation_high))
    beyond = np.flatnonzero((low < case.env.observation_low - room) | (high > case.env.observation_high + room))
    for column in beyond[:3]:
        evidence = (
            f"observation column {column} spans {low[column]:.4g} to {high[column]:.4g}, that of {case.env.env_id} "
            f"{case.env.observation_low[column]:.4g} to {case.env.observation_high[column]:.4g}"
        )
        yield Finding(
            "space-mismatch", "warning", evidence, "check the environment id, and the order and units of the columns"
        )


def check_finite(case: Case) -> Iterator[Finding]:
    """NaN and inf."""
    for name, rows in case.bad.items():
        fix = "mend the log, or leave these transitions out with --on-bad-rows drop"
        yield Finding("not-finite", "error", f"`{name}` holds NaN or inf in {_some(rows)}", fix)


def check_successors(case: Case) -> Iterator[Finding]:
    """Next observations that are not those of the next row, inside episodes and at their ends."""
    broken, rows = case.broken, sum(part.stop - part.start for part in case.windows)
    if len(broken) > 0.5 * rows:
        evidence = f"{len(broken) / rows:.0%} of the next observations are not those of the row after"
        yield Finding(
            "next-observation-break", "warning", f"{evidence}: the rows seem shuffled", "order them by episode and time"
        )
    elif len(broken) and not _unmarked_ends(case):
        evidence = f"the next observation is not the observation of the row after in {_some(broken)}, inside episodes"
        fix = "rebuild them with --next-observations following, or mark an end in these rows"
        yield Finding("next-observation-break", "error", evidence, fix)
    if len(case.leaks):
        evidence = f"the next observation at a time limit is the first of the following episode in {_some(case.leaks)}"
        fix = "leave these rows out with --next-observations following"
        yield Finding("next-observation-leak", "error", evidence, fix)


def _unmarked_ends(case: Case) -> bool:
    """Whether breaks are ends that nobody marked: no time limits anywhere, and the observation itself jumps."""
    if not case.marked[:-1].any():
        return True
    return bool(
        not case.timeouts[:-1].any() and len(case.broken) and np.median(case.jumps(case.broken)) > 2.0 * case.usual_jump
    )


def check_ends(case: Case) -> Iterator[Finding]:
    """Ends that overlap, are missing, or look like time limits."""
    if case.both_ends is not None and len(case.both_ends):
        evidence = f"an end and a time limit are both marked in {_some(case.both_ends)}"
        rule = "a terminal counts as a true end, a `done` as a time limit; mark them apart, or add --ends timeouts"
        yield Finding("ends-overlap", "warning", evidence, rule)
    if len(case.broken) and _unmarked_ends(case) and len(case.broken) <= 0.5 * len(case.data):
        evidence = f"no time limits are marked, but observations break off after {_some(case.broken)}"
        yield Finding("missing-ends", "warning", evidence, "they are taken as time limits; mark those that are true ends")
    elif not case.timeouts[:-1].any():
        jumps = _lone_jumps(case)
        if len(jumps) >= 2:
            evidence = f"no time limits are marked, and the observation jumps after {_some(jumps)}{_rhythm(jumps)}"
            yield Finding("missing-ends", "error", evidence, "mark the ends, or name the episode column in the column map")
    last = np.flatnonzero(case.marked)
    lengths = np.diff(last, prepend=-1)
    ended = lengths[case.terminals[last]]
    if len(ended) >= 3 and lengths.max() > 1 and (at_most := (ended == lengths.max()).mean()) >= 0.9:
        which = f"all {len(ended)}" if at_most == 1.0 else f"{at_most:.0%} of {len(ended)}"
        evidence = f"{which} true ends fall at length {lengths.max()}, as if time limits were stored as terminals"
        yield Finding("ends-at-one-length", "warning", evidence, "if they are time limits, add --ends timeouts")


def _lone_jumps(case: Case) -> NDArray[np.intp]:
    """Rows after which the observation moves many times as far as it usually does."""
    part = case.windows[0]
    rows = part.start + np.flatnonzero(~case.marked[part.start : part.stop - 1])
    if len(rows) < 10:
        return np.empty(0, dtype=np.intp)
    sizes = case.jumps(rows)
    large = rows[sizes > max(12.0, 3.0 * float(np.quantile(sizes, 0.95)))]
    return large if len(large) < 0.1 * len(rows) else np.empty(0, dtype=np.intp)


def _rhythm(rows: NDArray[np.intp]) -> str:
    gaps = np.diff(rows)
    return f", every {gaps[0]} rows" if len(gaps) and (gaps == gaps[0]).all() else ""


def check_actions(case: Case) -> Iterator[Finding]:
    """Actions outside their bounds, or in another unit."""
    data = case.data
    if case.env is not None and case.env.spaces.action_dim != data.action_dim:
        return
    known = case.env is not None or data.action_low is not None
    yield from _against_bounds(case) if known else _without_bounds(case)


def _against_bounds(case: Case) -> Iterator[Finding]:
    spaces = case.data.spaces if case.env is None else case.env.spaces
    whose = "the recorded bounds" if case.env is None else f"the bounds of {case.env.env_id}"
    shown = f"{whose} ({spaces.action_low.tolist()} to {spaces.action_high.tolist()})"
    sizes = case.per_row(lambda part: np.abs(spaces.normalize_actions(case.data.actions[part])).max(axis=1))
    rows = case.per_row(lambda part: np.arange(part.start, part.stop))
    beyond, largest = rows[sizes > 1.0 + 1e-3], float(sizes.max())
    if len(beyond) > 0.2 * len(rows) or largest > 8.0:
        evidence = f"actions reach {largest:.3g} times {shown} in {_some(beyond)}{_unit(largest)}"
        yield Finding("action-units", "error", evidence, f"add --action-scale {1 / largest:.4g}, or what the unit asks for")
    if len(beyond) and len(beyond) <= 0.2 * len(rows):
        evidence = f"actions leave {shown} in {_some(beyond)}, up to {largest:.3g} times"
        yield Finding(
            "actions-out-of-bounds", "error", evidence, "check the environment and the units; mend these rows in the log"
        )
    if largest < 0.6 and (sizes > 0.999 * largest).mean() > 0.005:
        evidence = f"actions stop at {largest:.3g} of {shown}, as if they were stored scaled"
        yield Finding("action-units", "warning", evidence, f"if so, add --action-scale {1 / largest:.4g}")


def _without_bounds(case: Case) -> Iterator[Finding]:
    """No bounds are known: what the data says by itself."""
    fix = "give the bounds with --action-low and --action-high, the unit with --action-scale, or the environment with --env"
    for column in range(case.data.action_dim):
        sizes = case.per_row(lambda part, column=column: np.abs(case.data.actions[part, column]))  # type: ignore[misc]
        rows = case.per_row(lambda part: np.arange(part.start, part.stop))
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


def check_columns(case: Case) -> Iterator[Finding]:
    """Columns that never change, or are huge."""
    for name in ("observations", "actions", "rewards"):
        values = getattr(case.data, name).reshape(len(case.data), -1)
        ranges = [column_range(values[part]) for part in case.windows]
        low, high = np.min([r[0] for r in ranges], axis=0), np.max([r[1] for r in ranges], axis=0)
        for column in np.flatnonzero(low == high)[:3]:
            what = "`rewards`" if name == "rewards" else f"`{name}` column {column}"
            fix = "nothing can be learned from it" if name == "rewards" else "leave it out, or check the log"
            yield Finding("constant-column", "warning", f"{what} is {low[column]:.6g} in every row", fix)
        for column in np.flatnonzero(np.maximum(np.abs(low), np.abs(high)) > HUGE)[:3]:
            evidence = f"`{name}` column {column} reaches {max(abs(low[column]), abs(high[column])):.3g}"
            fix = "set reward.scale" if name == "rewards" else "set normalize_observations, or mend the unit"
            yield Finding("huge-column", "warning", evidence, f"{fix}: such numbers make training diverge")


def check_outliers(case: Case) -> Iterator[Finding]:
    """Single values far outside all others: a sensor that failed, or a number that stands for nothing, such as -9999."""
    for name in ("observations", "rewards"):
        values = getattr(case.data, name).reshape(len(case.data), -1)
        for column in range(min(values.shape[1], _MOST_COLUMNS)):
            rows, low, high = _far_rows(values[:, column])
            if 0 < len(rows) < 0.001 * len(values):
                what = "`rewards`" if name == "rewards" else f"`{name}` column {column}"
                seen = f"{what} is {values[rows[0], column]:.6g} in {_some(rows)}, and from {low:.4g} to {high:.4g} elsewhere"
                yield Finding("outlier-rows", "warning", seen, "if it stands for a missing value, mend the log")


def _far_rows(values: NDArray[np.floating[Any]]) -> tuple[NDArray[np.intp], float, float]:
    """Rows twenty times as far out as all but one in a hundred, and the range of the others."""
    low, high = np.quantile(values[:: max(1, len(values) // 100_000)], (0.005, 0.995))
    far = np.abs(values - (low + high) / 2.0) > 20.0 * (high - low)
    return (np.flatnonzero(far) if high > low else np.empty(0, dtype=np.intp)), float(low), float(high)


def check_duplicates(case: Case) -> Iterator[Finding]:
    """Episodes that are there twice."""
    seen: dict[bytes, int] = {}
    lengths = case.data.episode_spans[1]
    pairs = [(seen.setdefault(digest, number), number) for number, digest in enumerate(episode_digests(case.data))]
    twins = [(first, second) for first, second in pairs if first != second and lengths[second] > 1]
    if twins:
        shown = ", ".join(f"{second} is {first} again" for first, second in twins[:3])
        fix = "leave them out with `rl-training data filter --unique`, or they count twice and leak into validation"
        yield Finding("duplicate-episodes", "warning", f"{len(twins)} episodes are there twice ({shown})", fix)


def check_alignment(case: Case) -> Iterator[Finding]:
    """Rewards shifted against transitions."""
    data = case.data
    if case.bad or len(case.leaks):  # what the seams would show is no evidence
        return
    fields = (data.observations, data.actions, data.rewards, data.next_observations, data.terminals)
    shift = find_shift(*fields, data.episode_ends)
    if shift is not None:
        side = ("late", "before") if shift.lag > 0 else ("early", "after")
        evidence = (
            f"rewards are one row {side[0]}: {shift.place} ({shift.rows} rewards) the error is {shift.own_error:.3g} "
            f"explained by the own transition, {shift.other_error:.3g} by the one {side[1]}"
        )
        across = " --reward-lag-across" if shift.across else ""
        yield Finding("shifted-rewards", "error", evidence, f"add --reward-lag {shift.lag}{across}")


Check = Callable[[Case], Iterator[Finding]]
QUICK_CHECKS: tuple[Check, ...] = (check_spaces, check_finite, check_ends, check_successors, check_actions, check_columns)
THOROUGH_CHECKS: tuple[Check, ...] = (check_outliers, check_duplicates, check_alignment)
