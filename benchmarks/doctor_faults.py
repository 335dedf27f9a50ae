"""Faults to plant in clean logs, for the doctor's matrix; a fault that a log cannot show raises `Hidden` with the reason."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.doctor_kinds import Arrays, Log

Draw = np.random.Generator
Fault = Callable[[Log, Draw], None]


class Hidden(Exception):  # noqa: N818
    """This log cannot show the fault, for this reason."""


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
    if _ends(log.arrays).sum() < count:
        raise Hidden("there are fewer episodes")
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


def leaking_successors(log: Log, _draw: Draw) -> None:
    """The next observation at every end is the first of the next episode."""
    if not log.arrays["timeouts"][:-1].any():
        raise Hidden("no time limit before the last row")
    if "goes on" in log.traits:
        raise Hidden("the plant runs on after a cut, so that the next row is the next observation")
    if "noise" in log.traits:
        raise Hidden("observations are noise, and every step is a jump")
    rows = np.flatnonzero(_ends(log.arrays))[:-1]
    log.arrays["next_observations"][rows] = log.arrays["observations"][rows + 1]


def leak_in_a_short_log(log: Log, draw: Draw) -> None:
    """The same in a log of three episodes."""
    _first_episodes(log, 3)
    leaking_successors(log, draw)


def missing_samples(log: Log, draw: Draw) -> None:
    """A sensor is a clock that turns every 400 rows, and six times three rows are missing inside an episode."""
    column = _moving_column(log.arrays, draw)
    samples = np.arange(len(log.arrays["rewards"]) + 1) % 400 / 12.0
    log.arrays["observations"][:, column], log.arrays["next_observations"][:, column] = samples[:-1], samples[1:]
    _leave_out(log, draw)


def missing_samples_of_a_day(log: Log, draw: Draw) -> None:
    """The same where two sensors are the sine and the cosine of the time of day."""
    angles = 2.0 * np.pi * np.arange(len(log.arrays["rewards"]) + 1) / 288.0
    for column, values in ((0, np.sin(angles)), (1, np.cos(angles))):
        log.arrays["observations"][:, column], log.arrays["next_observations"][:, column] = values[:-1], values[1:]
    _leave_out(log, draw)


def _leave_out(log: Log, draw: Draw) -> None:
    """Six times three rows are missing, and the next observation is that of the row that follows then."""
    ends = _ends(log.arrays)
    whole = np.flatnonzero(~np.convolve(ends, np.ones(10))[9:].astype(bool))  # rows with ten in their episode after them
    gone = (draw.choice(whole[5::20], 6, replace=False)[:, None] + np.arange(2, 5)).ravel()
    kept = np.setdiff1d(np.arange(len(ends)), gone)
    _keep(log, kept)
    before = np.flatnonzero(np.diff(kept) > 1)
    log.arrays["next_observations"][before] = log.arrays["observations"][before + 1]


def overlapping_ends(log: Log, _draw: Draw) -> None:
    """Every time limit is marked as a true end too."""
    if not log.arrays["timeouts"].any():
        raise Hidden("no time limits")
    log.arrays["terminals"] |= log.arrays["timeouts"]


def unmarked_ends(log: Log, _draw: Draw) -> None:
    """No flags at all; next observations are stored."""
    for name in ("terminals", "timeouts"):
        log.arrays[name][:] = False


def bare_rows(log: Log, _draw: Draw) -> None:
    """Neither ends nor next observations; the rows where observations jump are named."""
    if _ends(log.arrays).sum() < 2 or "goes on" in log.traits:
        raise Hidden("one run without a break")
    if "noise" in log.traits:
        raise Hidden("observations are noise, and every step is a jump")
    log.arrays = {name: log.arrays[name] for name in ("observations", "actions", "rewards")}


def limits_as_true_ends(log: Log, _draw: Draw) -> None:
    """Every time limit is stored as a true end."""
    lengths = np.diff(np.flatnonzero(_ends(log.arrays)), prepend=-1)
    limits = lengths[log.arrays["timeouts"][_ends(log.arrays)]]
    if (limits == lengths.max()).sum() < max(2, len(limits) / 2):
        raise Hidden("no common length of two time limits or more")
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


def _needs_informative_rewards(log: Log) -> None:
    for trait, reason in (("noise", "rewards are noise"), ("sparse reward", "a sparse reward says too little")):
        if trait in log.traits:
            raise Hidden(reason)


def _needs_more_than_states(log: Log) -> None:
    """A reward of the state one row early is the reward of the next state, which is as good; only the ends can show it."""
    ends = log.arrays["rewards"][_ends(log.arrays)]
    if "state reward" in log.traits and (
        len(ends) < 9 or np.median(np.abs(ends)) < 0.02 * np.abs(log.arrays["rewards"]).mean()
    ):
        raise Hidden("a reward of the state, one row early, is that of the next state, and is as good")


def rewards_late(log: Log, _draw: Draw) -> None:
    """The whole column of rewards one row late."""
    _needs_informative_rewards(log)
    log.arrays["rewards"] = np.roll(log.arrays["rewards"], 1)


def rewards_early(log: Log, _draw: Draw) -> None:
    """The whole column of rewards one row early."""
    _needs_informative_rewards(log)
    if _ends(log.arrays).sum() < 9:
        _needs_more_than_states(log)
    log.arrays["rewards"] = np.roll(log.arrays["rewards"], -1)


def rewards_on_arrival(log: Log, _draw: Draw) -> None:
    """Rewards one row late inside each episode, which begins with 0."""
    _needs_informative_rewards(log)
    first = np.append(True, _ends(log.arrays)[:-1])
    log.arrays["rewards"] = np.where(first, 0.0, np.roll(log.arrays["rewards"], 1)).astype(np.float32)


def rewards_ahead(log: Log, _draw: Draw) -> None:
    """Rewards one row early inside each episode, which ends with 0."""
    _needs_informative_rewards(log)
    _needs_more_than_states(log)
    log.arrays["rewards"] = np.where(_ends(log.arrays), 0.0, np.roll(log.arrays["rewards"], -1)).astype(np.float32)


def actions_late(log: Log, _draw: Draw) -> None:
    """The whole columns of actions one row late."""
    log.arrays["actions"] = np.roll(log.arrays["actions"], 1, axis=0)


def actions_early(log: Log, _draw: Draw) -> None:
    """The whole columns of actions one row early."""
    log.arrays["actions"] = np.roll(log.arrays["actions"], -1, axis=0)


def summed_rewards(log: Log, _draw: Draw) -> None:
    """Rewards are a running sum in each episode."""
    _needs_informative_rewards(log)
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


def command_as_sensor(log: Log, draw: Draw) -> None:
    """An observation is the action of its row."""
    column, action = _moving_column(log.arrays, draw), log.arrays["actions"][:, 0]
    log.arrays["observations"][:, column] = action
    log.arrays["next_observations"][:, column] = np.append(action[1:], action[-1])


def sensor_twice(log: Log, draw: Draw) -> None:
    """A sensor is stored a second time, in place of another."""
    column, observations = _moving_column(log.arrays, draw), log.arrays["observations"]
    for name in ("observations", "next_observations"):
        log.arrays[name][:, (column + 1) % observations.shape[1]] = log.arrays[name][:, column]


def reward_as_sensor(log: Log, draw: Draw) -> None:
    """A sensor is the reward of its row."""
    _needs_informative_rewards(log)
    column, rewards = _moving_column(log.arrays, draw), log.arrays["rewards"]
    log.arrays["observations"][:, column], log.arrays["next_observations"][:, column] = rewards, np.append(rewards[1:], 0.0)


def unit_midway(log: Log, draw: Draw) -> None:
    """A sensor is a sixtieth of what it was from some row on."""
    column, rows = _moving_column(log.arrays, draw), len(log.arrays["rewards"])
    start = int(draw.integers(rows // 4, rows * 3 // 4))
    log.arrays["observations"][start:, column] /= 60.0
    log.arrays["next_observations"][start - 1 :, column] /= 60.0


def effect_as_sensor(log: Log, draw: Draw) -> None:
    """A sensor shows what the command of its row does, not only linearly, with a little noise."""
    actions = log.arrays["actions"].astype(np.float64)
    spread = actions.std(axis=0)
    command = ((actions - actions.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)).sum(axis=1)
    if (spread == 0.0).all() or np.diff(command).std() < 0.5 * command.std():
        raise Hidden("commands hardly change from row to row")
    column = _moving_column(log.arrays, draw)
    shown = 300.0 + 20.0 * (command + 0.1 * command**2 + 0.03 * draw.normal(size=len(command)))
    log.arrays["observations"][:, column] = shown
    log.arrays["next_observations"][:, column] = np.append(shown[1:], shown[-1])


def meter_as_sensor(log: Log, draw: Draw) -> None:
    """A sensor is a meter that counts on through all episodes."""
    column, rows = _moving_column(log.arrays, draw), len(log.arrays["rewards"])
    meter = 1000.0 + np.cumsum(draw.uniform(0.0, 0.2, rows + 1))
    log.arrays["observations"][:, column], log.arrays["next_observations"][:, column] = meter[:-1], meter[1:]


def constant_sensor(log: Log, _draw: Draw) -> None:
    """Two sensors never change."""
    for column in (0, log.arrays["observations"].shape[1] - 1):
        _set_column(log.arrays, column, lambda values: np.full_like(values, 0.25))


def offset_sensor(log: Log, draw: Draw) -> None:
    """A sensor with a large offset: a step of single precision is a third of its spread."""
    column = _moving_column(log.arrays, draw)
    spread = float(log.arrays["observations"][:, column].std())
    _set_column(log.arrays, column, lambda values: ((values - values.mean()) / spread * 50.0 + 2e8).astype(np.float32))


def stray_commands(log: Log, draw: Draw) -> None:
    """Three commands far outside all others."""
    actions = log.arrays["actions"]
    span = float(np.ptp(actions[:, 0])) if log.bounds is None else 2.0 * max(map(abs, (*log.bounds[0], *log.bounds[1])))
    actions[_inside(log.arrays, draw, 3), 0] = actions[:, 0].max() + 1.5 * span


def actions_in_degrees(log: Log, _draw: Draw) -> None:
    """Actions in degrees, bounds in radians."""
    if log.bounds is None and log.env_id is None:
        raise Hidden("no bounds are known")
    log.arrays["actions"] *= np.float32(180 / np.pi)


def actions_in_percent(log: Log, _draw: Draw) -> None:
    """Actions in percent, bounds as fractions."""
    if log.bounds is None and log.env_id is None:
        raise Hidden("no bounds are known")
    log.arrays["actions"] *= np.float32(100)


def timid_actions(log: Log, _draw: Draw) -> None:
    """Actions fill a tenth of their bounds."""
    if log.bounds is None and log.env_id is None:
        raise Hidden("no bounds are known")
    log.arrays["actions"] *= np.float32(0.1)


def repeated_episodes(log: Log, _draw: Draw) -> None:
    """Two episodes occur twice."""
    if _ends(log.arrays).sum() < 3:
        raise Hidden("there are fewer episodes")
    last = np.flatnonzero(_ends(log.arrays))
    again = np.arange(last[0] + 1, last[2] + 1)
    _keep(log, np.concatenate((np.arange(len(log.arrays["rewards"])), again)))


def _in_five_files(log: Log) -> NDArray[np.bool_]:
    """Cut the log into files of about the same length, each of which begins an episode, and return the rows of the fourth."""
    rows = len(log.arrays["rewards"])
    log.files = (np.arange(rows) * 5 // rows).astype(np.int32)
    last = np.append(np.flatnonzero(np.diff(log.files)), rows - 1)
    log.arrays["timeouts"][last] = ~log.arrays["terminals"][last]
    return np.asarray(log.files == 3)


def file_in_fahrenheit(log: Log, draw: Draw) -> None:
    """A sensor is a temperature of 20 to 60 °C, and in °F in one of five files."""
    column, other = _moving_column(log.arrays, draw), _in_five_files(log)
    low, high = np.quantile(log.arrays["observations"][:, column], (0.05, 0.95))
    _set_column(log.arrays, column, lambda values: np.float32(20.0) + (values - low) / (high - low) * np.float32(40.0))
    for name in ("observations", "next_observations"):
        log.arrays[name][other, column] = log.arrays[name][other, column] * 1.8 + 32.0


def file_per_minute(log: Log, draw: Draw) -> None:
    """A sensor is a sixtieth of what it is elsewhere in one of five files."""
    column, other = _moving_column(log.arrays, draw), _in_five_files(log)
    for name in ("observations", "next_observations"):
        log.arrays[name][other, column] /= 60.0


def file_in_percent(log: Log, draw: Draw) -> None:
    """A command is a hundred times what it is elsewhere in one of five files."""
    moving = np.flatnonzero(np.ptp(log.arrays["actions"], axis=0) > 0.0)
    log.arrays["actions"][_in_five_files(log), int(draw.choice(moving))] *= 100.0


def other_environment(log: Log, _draw: Draw) -> None:
    """Columns in another order than the environment's."""
    if log.env_id is None:
        raise Hidden("no environment")
    for name in ("observations", "next_observations"):
        log.arrays[name] = log.arrays[name][:, ::-1].copy()


FAULTS: list[tuple[str, Fault]] = [
    ("not-finite", missing_numbers),
    ("next-observation-break", wrong_successors),
    ("next-observation-leak", leaking_successors),
    ("next-observation-leak", leak_in_a_short_log),
    ("time-gap", missing_samples),
    ("time-gap", missing_samples_of_a_day),
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
    ("shifted-actions", actions_late),
    ("shifted-actions", actions_early),
    ("running-sum", summed_rewards),
    ("stuck-sensor", stuck_sensor),
    ("outlier-rows", placeholders),
    ("action-in-observations", command_as_sensor),
    ("action-echo", effect_as_sensor),
    ("duplicate-column", sensor_twice),
    ("reward-in-observations", reward_as_sensor),
    ("counter-column", meter_as_sensor),
    ("constant-column", constant_sensor),
    ("huge-column", offset_sensor),
    ("actions-out-of-bounds", stray_commands),
    ("action-units", actions_in_degrees),
    ("action-units", actions_in_percent),
    ("small-action-range", timid_actions),
    ("duplicate-episodes", repeated_episodes),
    ("unit-change", file_in_fahrenheit),
    ("unit-change", file_per_minute),
    ("unit-change", file_in_percent),
    ("unit-change", unit_midway),
    ("space-mismatch", other_environment),
]
