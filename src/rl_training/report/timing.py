"""Where the time of a run went, over all processes that worked on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rl_training.analysis.logged_run import LoggedRun

TimingRow = Mapping[str, Any]
COUNTERS = ("step", "env_step")  # of gradient steps and environment steps
_RECENT = 10  # rows that tell the speed of late


@dataclass(frozen=True)
class Timing:
    """Where the time of a run went; a run that was resumed adds up its parts."""

    seconds: float
    activities: dict[str, float]
    positions: list[int]
    elapsed: list[float]  # seconds at these positions
    speeds: dict[str, float]  # steps per second by their counter: over the run, of late while it goes on


def timing_of(run: LoggedRun) -> Timing:
    """Return the time of a run, over all processes that worked on it."""
    earlier = 0.0
    spent: dict[str, float] = {}
    points: list[tuple[int, float]] = []
    for rows in processes(run.timings):
        found = [(_position(row, run.switch or 0), earlier + _seconds(row)) for row in rows]
        points = [point for point in points if point[0] < found[0][0]] + found  # it may go on from an earlier position
        earlier = found[-1][1]
        for name, seconds in _activities(rows[-1]).items():
            spent[name] = spent.get(name, 0.0) + seconds
    return Timing(earlier, spent, [position for position, _ in points], [elapsed for _, elapsed in points], _speeds(run))


def _speeds(run: LoggedRun) -> dict[str, float]:
    found = {counter: speed(rows_that_count(run, counter), counter) for counter in COUNTERS}
    return {counter: value for counter, value in found.items() if value is not None}


def rows_that_count(run: LoggedRun, counter: str) -> Sequence[TimingRow]:
    """Return the rows of a phase that tell its speed: the latest while the run goes on, otherwise all."""
    rows = phase_rows(run.timings, counter)
    return recent(rows) if run.record["status"] == "running" else rows


def phase_rows(rows: Sequence[TimingRow], counter: str) -> list[TimingRow]:
    """Return the rows of the phase that counts in `step` or `env_step`."""
    return [row for row in rows if ("env_step" in row) == (counter == "env_step")]


def recent(rows: Sequence[TimingRow]) -> list[TimingRow]:
    """Return the last rows that the latest process wrote."""
    return processes(rows[-_RECENT:])[-1] if rows else []


def speed(rows: Sequence[TimingRow], counter: str) -> float | None:
    """Return steps per second between the first and the last row of each process; None where none has two.

    What a process needs to start, to read data and to compile, is over by its first row, and so does not count.
    """
    ends = [(own[0], own[-1]) for own in processes(rows)]
    seconds = sum(_seconds(last) - _seconds(first) for first, last in ends)
    return sum(last[counter] - first[counter] for first, last in ends) / seconds if seconds > 0 else None


def processes(rows: Sequence[TimingRow]) -> list[list[TimingRow]]:
    """Return rows of timings.jsonl by the process that wrote them, in order; each counts its time from its own start."""
    found: list[list[TimingRow]] = [list(rows[:1])] if rows else []
    for before, row in pairwise(rows):
        if _is_another_process(before, row):
            found.append([])
        found[-1].append(row)
    return found


def _is_another_process(before: TimingRow, after: TimingRow) -> bool:
    """Whether a process other than that of the row before it wrote a row: it has another mark.

    Rows of earlier versions have none. There, within one process, steps rise and no time falls.
    """
    if "started" in before or "started" in after:
        return bool(before.get("started") != after.get("started"))
    if after["step"] + after.get("env_step", 0) <= before["step"] + before.get("env_step", 0):
        return True
    own, later = ({"": _seconds(row), **_activities(row)} for row in (before, after))
    return any(later.get(name, 0.0) < seconds for name, seconds in own.items())


def _position(row: TimingRow, switch: int) -> int:
    return int(row["env_step"]) + switch if "env_step" in row else int(row["step"])


def _seconds(row: TimingRow) -> float:
    return float(row.get("seconds", 0.0))


def _activities(row: TimingRow) -> dict[str, float]:
    return {name.removeprefix("seconds/"): float(value) for name, value in row.items() if name.startswith("seconds/")}
