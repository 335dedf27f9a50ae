"""Checks of single columns: numbers that are missing, never change, stick, only rise, stand far out, or lost their digits."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.row_blocks import column_range
from rl_training.doctor.evidence import CheckInput, Rows
from rl_training.doctor.findings import Finding, option

HUGE = 1e6
_FEWEST_LEVELS = 1000  # of single precision in a column; with fewer its digits are lost
_MOST_COLUMNS = 256  # that are searched for outliers and stuck sensors
_STUCK_ROWS, _STUCK_RUNS = 100, 20  # a run this long, and this many times as long as 99 % of the others
_BRIEF_ROWS, _BRIEF_RUNS = 30, 10  # or one this long, and this many times as long as all but the longest few,
_BRIEF_OTHERS = 1000  # of at least so many runs
_MOST_RESTS = 2  # long runs; a column with more of them rests now and then
_COUNTER_ROWS, _COUNTER_EPISODES = (500, 2000), 5  # over so many episodes no state only rises, or in so long a log
_COUNTER_VALUES, _COUNTER_MOVES = 100, 0.2  # so many values, and steps in this share of the rows
_PLACEHOLDERS = (-9999.0, -999.0, -99.0, 9999.0, 99999.0, -99999.0, -32768.0, 32767.0)
DROP = option(on_bad_rows="drop")
BLANK = f"make these cells empty (NaN) and add {DROP}"


def check_finite(inputs: CheckInput) -> Iterator[Finding]:
    """NaN and inf."""
    for name, rows in inputs.bad.items():
        if name == "next_observations" and np.isin(rows + 1, inputs.bad.get("observations", ())).all():
            continue  # they repeat what is said about the rows after
        columns = inputs.bad_columns.get(name)
        what = f"`{name}`" if columns is None else inputs.named(name, columns)
        fix = f"fix the log, or leave these transitions out with {DROP}"
        verb = "is" if columns is None or len(columns) == 1 else "are"
        yield Finding("not-finite", "error", f"{what} {verb} NaN or inf in {inputs.some(rows)}", fix)


def check_columns(inputs: CheckInput) -> Iterator[Finding]:
    """Columns that never change, and numbers so large that digits are lost."""
    constant = []
    for role in ("observations", "actions"):
        values = inputs.sample(role)
        low, high = column_range(values)
        same = np.flatnonzero(low == high) if len(inputs.bad.get(role, ())) < len(inputs.data) else np.empty(0, dtype=np.intp)
        constant += [f"{inputs.named(role, [column])} is {low[column]:.6g}" for column in same]
        moving = np.setdiff1d(np.arange(len(low)), same)
        yield from _lost_digits(inputs, role, values, low, high, moving)
    if constant:
        them = "it" if len(constant) == 1 else "them"
        fix = f"leave {them} out {inputs.leave_out}, or keep {them}: a normalised observation is 0 there"
        if inputs.env is None and inputs.data.action_low is None and not inputs.data.spaces.free.all():
            fix += ", and an action that never changes is held at its value"
        yield Finding("constant-column", "warning", f"in {inputs.every_row} {'; '.join(constant)}", fix)


def _lost_digits(
    inputs: CheckInput, role: str, values: NDArray[Any], low: NDArray[Any], high: NDArray[Any], columns: Rows
) -> Iterator[Finding]:
    """Single precision keeps seven digits: a large offset leaves few of them to what changes."""
    if values.dtype != np.float32:
        return
    largest = np.maximum(np.abs(low), np.abs(high))
    levels = (high - low) / np.spacing(largest)
    for column in columns[(largest[columns] > HUGE) & (levels[columns] < _FEWEST_LEVELS)]:
        what = inputs.named(role, [column])
        seen = (
            f"{what} is {low[column]:.8g} to {high[column]:.8g}: in single precision only {levels[column]:.0f} steps are left"
        )
        offset = f"in the column map (`x - {low[column]:.6g}`)" if inputs.mapped else f"({low[column]:.6g}) in the data"
        fix = f"subtract its offset {offset}, or leave it out if it is a time"
        yield Finding("huge-column", "warning", seen, fix)


def check_counters(inputs: CheckInput) -> Iterator[Finding]:
    """Observations that only ever rise, an energy meter or a clock: a policy will meet values beyond all recorded ones."""
    data = inputs.data
    enough = len(data) >= _COUNTER_ROWS[0] and data.episode_ends.sum() >= _COUNTER_EPISODES
    for column in range(min(data.observation_dim, _MOST_COLUMNS)):
        values = np.asarray(data.observations[:, column], dtype=np.float64)
        steps = np.diff(values)
        if (steps < 0.0).any() or (steps > 0.0).sum() < max(_COUNTER_VALUES, _COUNTER_MOVES * len(values)):
            continue
        quarters = np.diff(
            values[np.linspace(0, len(values) - 1, 5).astype(int)]
        )  # a state that settles hardly rises at last
        if enough or (len(data) >= _COUNTER_ROWS[1] and quarters.min() > 0.1 * quarters.max()):
            evidence = f"{inputs.named('observations', [column])} only ever rises, from {values[0]:.6g} to {values[-1]:.6g}"
            steps_of = "take its steps, `diff(NAME)`" if inputs.mapped else "store its steps"
            fix = f"{steps_of}, or leave it out {inputs.leave_out}: a policy will meet values that no row has"
            yield Finding("counter-column", "warning", f"{evidence}: a counter or a clock?", fix)


def check_outliers(inputs: CheckInput) -> Iterator[Finding]:
    """Single readings far outside all others: a sensor that failed, or a placeholder such as -9999."""
    for column in range(min(inputs.data.observation_dim, _MOST_COLUMNS)):
        values = inputs.data.observations[:, column]
        rows, low, high = isolated_rows(values)
        if len(rows):
            seen = outliers_seen(inputs, inputs.named("observations", [column]), values, rows, low, high)
            yield Finding("outlier-rows", "warning", seen, f"if it stands for a missing value, {BLANK}")


def outliers_seen(inputs: CheckInput, what: str, values: NDArray[Any], rows: Rows, low: float, high: float) -> str:
    """Return what a column is in these rows at worst, and what elsewhere."""
    worst = values[rows[np.argmax(np.abs(values[rows] - low))]]
    return f"{what} is {worst:.6g} in {inputs.some(rows)}, and from {low:.4g} to {high:.4g} elsewhere"


def isolated_rows(values: NDArray[Any], gap: float = 3.0) -> tuple[Rows, float, float]:
    """Return the few rows that lie apart from all others by `gap` times the range of the others, and that range."""
    none = np.empty(0, dtype=np.intp)
    most = max(3, len(values) // 500)
    if len(values) < 20 * most:
        return none, 0.0, 0.0
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order].astype(np.float64))
    below, above = int(np.argmax(steps[:most])) + 1, len(values) - most + int(np.argmax(steps[-most:]))
    for first, stop in ((below, above), (0, above), (below, len(values))):
        low, high = float(values[order[first]]), float(values[order[stop - 1]])
        ends = [steps[cut - 1] for cut in (first, stop) if 0 < cut < len(values)]
        away = np.sort(np.concatenate((order[:first], order[stop:])))
        wide = 0.05 if np.isin(values[away], _PLACEHOLDERS).all() else gap
        if high > low and min(ends) > wide * (high - low):
            return away, low, high
    return none, 0.0, 0.0


def check_stuck(inputs: CheckInput) -> Iterator[Finding]:
    """A sensor that stops moving for a long time while it moves in nearly every row otherwise."""
    data = inputs.data
    for column in range(min(data.observation_dim, _MOST_COLUMNS)):
        values = np.asarray(data.observations[:, column])
        starts = np.append(0, np.flatnonzero(np.diff(values) != 0.0) + 1)
        lengths = np.diff(np.append(starts, len(values)))
        longest = int(np.argmax(lengths))
        start, rows = int(starts[longest]), int(lengths[longest])
        others = np.delete(lengths, longest)
        if len(others) < 20:
            continue
        long = rows >= max(_STUCK_ROWS, _STUCK_RUNS * np.quantile(others, 0.99))
        if not long and not _stops_once(inputs, column, lengths, start):
            continue
        rests = (lengths >= _STUCK_ROWS / 5) & ((values[starts] == values[start]) | (lengths >= _STUCK_ROWS))
        if rests.sum() > _MOST_RESTS or 3 * len(others) < others.sum() or _expected_to_rest(inputs, column, start, rows):
            continue
        what, place = inputs.named("observations", [column]), inputs.some([start])
        seen = f"{what} stays at exactly {values[start]:.6g} for {rows} rows from {place.removeprefix('1 row ')[1:-1]}"
        yield Finding("stuck-sensor", "warning", seen, f"if the sensor failed, {BLANK}, or leave the column out")


def _stops_once(inputs: CheckInput, column: int, lengths: Rows, start: int) -> bool:
    """Whether a shorter run is a fault: nothing like it, no limit of the column, and every moving column moves meanwhile."""
    rows, usual = int(lengths.max()), np.sort(lengths)[-1 - _MOST_RESTS]
    if len(lengths) < _BRIEF_OTHERS or rows < max(_BRIEF_ROWS, _BRIEF_RUNS * usual):
        return False
    observations = inputs.data.observations
    own = np.asarray(observations[:, column])
    if own[start] in (own.min(), own.max()):
        return False
    others = [other for other in range(min(observations.shape[1], _MOST_COLUMNS)) if other != column]
    shares = [_moving_shares(observations[:, other], start, rows) for other in others]  # one column at a time in memory
    moving = [inside for always, inside in shares if always > 0.5]
    return bool(moving) and min(moving) > 0.5


def _moving_shares(values: NDArray[Any], start: int, rows: int) -> tuple[float, float]:
    """The share of rows in which a column changes: of all rows, and of some from `start` on."""
    moves = np.diff(values) != 0.0
    return float(moves.mean()), float(moves[start : start + rows - 1].mean())


def _expected_to_rest(inputs: CheckInput, column: int, start: int, rows: int) -> bool:
    """Whether a run is no fault: a limit that is reached again and again, missing numbers, or a plant at rest."""
    data = inputs.data
    value = data.observations[start, column]
    low, high = column_range(data.observations[:, column : column + 1])
    elsewhere = np.count_nonzero(data.observations[:, column] == value) - rows
    if value in (low[0], high[0]) and elsewhere > 0:
        return True
    if any(((bad >= start) & (bad < start + rows)).any() for bad in inputs.bad.values()):
        return True
    inside = slice(start, start + rows)
    others = np.delete(data.observations[inside], column, axis=1)
    moves = (np.diff(others, axis=0) != 0.0).mean(axis=0) if others.shape[1] else np.zeros(0)
    touches_end = bool(data.episode_ends[start + rows - 1])
    return touches_end and not (moves > 0.5).any()
