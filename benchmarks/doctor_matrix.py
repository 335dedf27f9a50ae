"""What the doctor finds, misses and imagines: `python -m benchmarks.doctor_matrix [FOLDER of third-party data]`.

Every fault is planted in every kind of clean log, several seeds each. A cell is the share of the logs in which the finding was
named; a fault that a kind of log cannot show is left out for the reason in `HIDDEN`. The last rows are the findings on clean logs.
"""

import argparse
import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.doctor_kinds import FIELDS, KINDS, Arrays, Log
from rl_training.data.dataset_loaders import load_dataset, read_dataset
from rl_training.doctor.doctor import examine
from rl_training.doctor.findings import Finding

Draw = np.random.Generator
Fault = Callable[[Log, Draw], None]
SEEDS = 5


def _ends(arrays: Arrays) -> NDArray[np.bool_]:
    return np.asarray(arrays["terminals"] | arrays["timeouts"])


def _inside(arrays: Arrays, draw: Draw, count: int) -> NDArray[np.intp]:
    """Some rows that have a row before and after them in their episode."""
    ends = _ends(arrays)
    rows = np.flatnonzero(~ends & ~np.append(True, ends[:-1]))
    return np.sort(draw.choice(rows, count, replace=False))


def _keep(log: Log, rows: NDArray[np.intp] | slice) -> None:
    log.arrays = {name: values[rows].copy() for name, values in log.arrays.items()}


def _first_episodes(log: Log, count: int) -> None:
    _keep(log, slice(0, int(np.flatnonzero(_ends(log.arrays))[count - 1]) + 1))


def _moving_column(arrays: Arrays, draw: Draw) -> int:
    """A column that changes in nearly every row."""
    moved = (np.diff(arrays["observations"], axis=0) != 0).mean(axis=0)
    return int(draw.choice(np.flatnonzero(moved > 0.9)))


def _set_column(arrays: Arrays, column: int, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> None:
    for name in ("observations", "next_observations"):
        arrays[name][:, column] = change(arrays[name][:, column])


def missing_numbers(log: Log, draw: Draw) -> None:
    """NaN in three rows, inf in one."""
    log.arrays["observations"][_inside(log.arrays, draw, 3), 0] = np.nan
    log.arrays["rewards"][_inside(log.arrays, draw, 1)] = np.inf


def wrong_successors(log: Log, draw: Draw) -> None:
    """Next observations of twenty rows inside episodes are those of others."""
    rows = _inside(log.arrays, draw, 20)
    log.arrays["next_observations"][rows] = log.arrays["next_observations"][np.roll(rows, 7)]


def leaking_successors(log: Log, draw: Draw) -> None:
    """The next observation at every end is the first of the next episode."""
    rows = np.flatnonzero(_ends(log.arrays))[:-1]
    log.arrays["next_observations"][rows] = log.arrays["observations"][rows + 1]


def leak_in_a_short_log(log: Log, draw: Draw) -> None:
    """The same with three episodes, of which two are followed by another."""
    _first_episodes(log, 3)
    leaking_successors(log, draw)


def overlapping_ends(log: Log, draw: Draw) -> None:
    """Every time limit is marked as a true end too."""
    log.arrays["terminals"] |= log.arrays["timeouts"]


def unmarked_ends(log: Log, draw: Draw) -> None:
    """No flags at all; next observations are stored."""
    for name in ("terminals", "timeouts"):
        log.arrays[name][:] = False


def bare_rows(log: Log, draw: Draw) -> None:
    """Neither ends nor next observations."""
    log.arrays = {name: log.arrays[name] for name in ("observations", "actions", "rewards")}


def limits_as_true_ends(log: Log, draw: Draw) -> None:
    """Every time limit is stored as a true end."""
    log.arrays["terminals"] |= log.arrays["timeouts"]
    log.arrays["timeouts"][:] = False


def some_limits_as_true_ends(log: Log, draw: Draw) -> None:
    """The same where half of the episodes ended truly before."""
    ends = _ends(log.arrays)
    starts = np.append(0, np.flatnonzero(ends)[:-1] + 1)
    keep = np.ones(len(ends), dtype=bool)
    for start, last in list(zip(starts, np.flatnonzero(ends), strict=True))[::2]:
        stop = int(start + (last - start) * draw.uniform(0.2, 0.95))
        keep[stop + 1 : last + 1] = False
        log.arrays["terminals"][stop] = True
    _keep(log, np.flatnonzero(keep))
    limits_as_true_ends(log, draw)


def two_limits_as_true_ends(log: Log, draw: Draw) -> None:
    """The same with two episodes."""
    _first_episodes(log, 2)
    limits_as_true_ends(log, draw)


def rewards_late(log: Log, draw: Draw) -> None:
    """The whole column one row late."""
    log.arrays["rewards"] = np.roll(log.arrays["rewards"], 1)


def rewards_early(log: Log, draw: Draw) -> None:
    """The whole column one row early."""
    log.arrays["rewards"] = np.roll(log.arrays["rewards"], -1)


def rewards_on_arrival(log: Log, draw: Draw) -> None:
    """One row late inside each episode, which begins with 0."""
    first = np.append(True, _ends(log.arrays)[:-1])
    log.arrays["rewards"] = np.where(first, 0.0, np.roll(log.arrays["rewards"], 1)).astype(np.float32)


def rewards_ahead(log: Log, draw: Draw) -> None:
    """One row early inside each episode, which ends with 0."""
    log.arrays["rewards"] = np.where(_ends(log.arrays), 0.0, np.roll(log.arrays["rewards"], -1)).astype(np.float32)


def summed_rewards(log: Log, draw: Draw) -> None:
    """A running sum in each episode."""
    ends, rewards = _ends(log.arrays), log.arrays["rewards"].astype(np.float64)
    total = np.cumsum(rewards)
    before = np.concatenate(([0.0], total[:-1]))
    starts = np.append(0, np.flatnonzero(ends)[:-1] + 1)
    log.arrays["rewards"] = (total - np.repeat(before[starts], np.diff(np.append(starts, len(ends))))).astype(np.float32)


def stuck_sensor(log: Log, draw: Draw) -> None:
    """One sensor keeps its value for 250 rows."""
    column = _moving_column(log.arrays, draw)
    start = int(draw.integers(len(log.arrays["rewards"]) // 4, len(log.arrays["rewards"]) // 2))
    log.arrays["observations"][start : start + 250, column] = log.arrays["observations"][start, column]
    log.arrays["next_observations"][start - 1 : start + 249, column] = log.arrays["observations"][start, column]


def placeholders(log: Log, draw: Draw) -> None:
    """-9999 in three rows of one sensor."""
    rows, column = _inside(log.arrays, draw, 3), _moving_column(log.arrays, draw)
    log.arrays["observations"][rows, column] = log.arrays["next_observations"][rows - 1, column] = -9999.0


def constant_sensor(log: Log, draw: Draw) -> None:
    """Two sensors never change."""
    for column in (0, log.arrays["observations"].shape[1] - 1):
        _set_column(log.arrays, column, lambda values: np.full_like(values, 0.25))


def offset_sensor(log: Log, draw: Draw) -> None:
    """A sensor with a large offset: one step of single precision is a fifth of its spread."""
    column = _moving_column(log.arrays, draw)
    spread = float(log.arrays["observations"][:, column].std())
    _set_column(log.arrays, column, lambda values: ((values - values.mean()) / spread * 50.0 + 2e8).astype(np.float32))


def stray_commands(log: Log, draw: Draw) -> None:
    """Three commands far outside all others."""
    actions = log.arrays["actions"]
    span = float(np.ptp(actions[:, 0])) if log.bounds is None else 2.0 * max(map(abs, (*log.bounds[0], *log.bounds[1])))
    actions[_inside(log.arrays, draw, 3), 0] = actions[:, 0].max() + 1.5 * span


def actions_in_degrees(log: Log, draw: Draw) -> None:
    """Stored in degrees, bounds in radians."""
    log.arrays["actions"] *= np.float32(180 / np.pi)


def actions_in_percent(log: Log, draw: Draw) -> None:
    """Stored in percent, bounds as fractions."""
    log.arrays["actions"] *= np.float32(100)


def timid_actions(log: Log, draw: Draw) -> None:
    """A tenth of the bounds is used."""
    log.arrays["actions"] *= np.float32(0.1)


def repeated_episodes(log: Log, draw: Draw) -> None:
    """Two episodes occur twice."""
    last = np.flatnonzero(_ends(log.arrays))
    again = np.arange(last[0] + 1, last[2] + 1)
    _keep(log, np.concatenate((np.arange(len(log.arrays["rewards"])), again)))


def other_environment(log: Log, draw: Draw) -> None:
    """Columns in another order than the environment's."""
    for name in ("observations", "next_observations"):
        log.arrays[name] = log.arrays[name][:, ::-1].copy()


FAULTS: list[tuple[str, Fault]] = [
    ("not-finite", missing_numbers),
    ("next-observation-break", wrong_successors),
    ("next-observation-leak", leaking_successors),
    ("next-observation-leak", leak_in_a_short_log),
    ("ends-overlap", overlapping_ends),
    ("missing-ends", unmarked_ends),
    ("missing-ends", bare_rows),
    ("ends-at-one-length", limits_as_true_ends),
    ("ends-at-one-length", some_limits_as_true_ends),
    ("ends-at-one-length", two_limits_as_true_ends),
    ("shifted-rewards", rewards_late),
    ("shifted-rewards", rewards_early),
    ("shifted-rewards", rewards_on_arrival),
    ("shifted-rewards", rewards_ahead),
    ("running-sum", summed_rewards),
    ("stuck-sensor", stuck_sensor),
    ("outlier-rows", placeholders),
    ("constant-column", constant_sensor),
    ("huge-column", offset_sensor),
    ("actions-out-of-bounds", stray_commands),
    ("action-units", actions_in_degrees),
    ("action-units", actions_in_percent),
    ("small-action-range", timid_actions),
    ("duplicate-episodes", repeated_episodes),
    ("space-mismatch", other_environment),
]


def findings(log: Log) -> list[Finding]:
    """Return what the doctor finds on a log."""
    bounds = {} if log.bounds is None else dict(zip(("action_low", "action_high"), log.bounds, strict=True))
    reading = read_dataset({**log.arrays, **bounds})
    reading.observation_names, reading.action_names = log.names.get("observation_names"), log.names.get("action_names")
    return examine(reading, log.env_id)


if __name__ == "__main__":
    import sys, time, warnings
    only = sys.argv[1:]
    t0=time.time()
    for k, f in KINDS.items():
        logs=[f(s) for s in range(2)]
        for s,log in enumerate(logs):
            for x in findings(copy.deepcopy(log)): print("CLEAN", k, s, x.severity, x)
        for code, fault in FAULTS:
            if only and fault.__name__ not in only: continue
            out=[]
            for s, base in enumerate(logs):
                log = copy.deepcopy(base)
                try:
                    fault(log, np.random.Generator(np.random.Philox(s)))
                    found = findings(log)
                except IndexError as e:
                    out.append("X%r"%e); continue
                other=[x.code for x in found if x.severity=="error" and x.code!=code]
                out.append(("+" if any(x.code==code for x in found) else "-") + (",".join(other)))
            if any(not o.startswith("+") or len(o)>1 for o in out): print(f"{k:22s} {fault.__name__:26s}", out)
    print(time.time()-t0)
