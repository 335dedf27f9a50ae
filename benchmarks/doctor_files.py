"""What the doctor says of folders whose files honestly differ: `python -m benchmarks.doctor_files [--seeds 40]`.

Every folder is a plant that was logged week by week, batch by batch or start by start, a function of its seed. The first
figure is how many clean folders have a finding `unit-change`, the others in how many a changed unit of one file is found.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.doctor_kinds import KINDS, Draw, Log
from benchmarks.doctor_matrix import findings

Numbers = NDArray[np.float64]
NAMES = ("T_out", "T_zone", "flow", "power", "pressure", "T_set", "level")
Files = list[tuple[Numbers, Numbers]]  # of each file its observations and actions


def _slow(draw: Draw, rows: int, size: float, keep: float = 0.98) -> Numbers:
    """A wandering number around 0, whose deviation is `size`."""
    kicks, state, found = draw.normal(0, size * np.sqrt(1 - keep**2), rows), draw.normal(0, size), np.empty(rows)
    for row in range(rows):
        found[row] = state = keep * state + kicks[row]
    return found


def week(draw: Draw, rows: int, *, season: float, wanted: float, load: float, gain: float, level: float = 0.0) -> Files:
    """A file of a plant whose flow, power and pressure follow a load, with noise in proportion to it."""
    day = np.sin(np.arange(rows) * 2 * np.pi / 96)
    outside = season + 4 * day + _slow(draw, rows, 2.0)
    zone = wanted + _slow(draw, rows, 0.8) + 0.2 * day
    demand = load * np.exp(0.2 * day + _slow(draw, rows, 0.15))
    flow = 1200 * demand * (1 + 0.01 * draw.normal(size=rows))
    power = 30 * demand**1.5 + 0.1 * draw.normal(size=rows)
    pressure = 1.5 + 2.0 * demand**2 + 0.01 * draw.normal(size=rows)
    tank = level + np.cumsum(draw.normal(0, 0.01, rows))
    valve = np.clip(gain * (wanted - zone) + 0.4 + 0.05 * draw.normal(size=rows), 0, 1)
    pump = (demand > load).astype(np.float64) * 10.0
    seen = np.column_stack((outside, zone, flow, power, pressure, np.full(rows, wanted), tank))
    return [(seen, np.column_stack((valve, pump)))]


def seasons(draw: Draw) -> Files:
    """Months of a year, with set-points of their own."""
    return [
        week(
            draw,
            700,
            season=8 - 14 * np.cos(month),
            wanted=float(draw.integers(17, 25)),
            load=draw.uniform(0.7, 1.3),
            gain=0.2,
        )[0]
        for month in draw.uniform(0, 2 * np.pi, 5)
    ]


def two_seasons(draw: Draw) -> Files:
    """Weeks in winter and weeks in summer."""
    return [
        week(draw, 700, season=draw.choice([-6.0, 27.0]), wanted=21.0, load=draw.uniform(0.8, 1.2), gain=0.2)[0]
        for _ in range(6)
    ]


def loads(draw: Draw) -> Files:
    """Weeks at loads from a hundredth to three times the usual one."""
    return [week(draw, 500, season=10.0, wanted=21.0, load=10 ** draw.uniform(-2, 0.5), gain=0.2)[0] for _ in range(5)]


def two_loads(draw: Draw) -> Files:
    """Weeks at one of two loads, the other of which is a standby of some share of it."""
    other = 10 ** draw.uniform(-3, -0.5)
    shares = np.append([1.0, other], draw.choice([1.0, other], 4))
    return [week(draw, 500, season=10.0, wanted=21.0, load=s * draw.uniform(0.9, 1.1), gain=0.2)[0] for s in shares]


def a_stop(draw: Draw) -> Files:
    """One week in five the plant stands still: flow, power and pressure are noise, and the operator does nothing."""
    files = [week(draw, 500, season=10.0, wanted=21.0, load=1.0, gain=0.2)[0] for _ in range(5)]
    seen, actions = files[int(draw.integers(5))]
    seen[:, 2:5] = draw.normal(0, 10 ** draw.uniform(-3, 1, 3), (500, 3))
    actions[:] = np.abs(draw.normal(0, 10 ** draw.uniform(-3, -1), actions.shape))
    return files


def operators(draw: Draw) -> Files:
    """Weeks of operators who act gently or hard, at levels of their own."""
    wanted = draw.choice([18.0, 21.0, 60.0, 75.0], 5)
    gains = 10 ** draw.uniform(-2, 0.5, 5)
    return [
        week(draw, 500, season=5.0, wanted=w, load=1.0, gain=g, level=draw.normal(0, 5))[0]
        for w, g in zip(wanted, gains, strict=True)
    ]


def starts(draw: Draw) -> Files:
    """Two hundred files of one short episode each, from starts of their own."""
    return [
        week(
            draw,
            int(draw.integers(5, 60)),
            season=draw.normal(10, 8),
            wanted=draw.uniform(15, 80),
            load=draw.lognormal(0, 1),
            gain=draw.uniform(0.05, 0.5),
            level=draw.normal(0, 20),
        )[0]
        for _ in range(200)
    ]


def batches(draw: Draw) -> Files:
    """Sixty batches of recipes whose set-points and doses are a choice of round numbers."""
    return [
        week(draw, 120, season=20.0, wanted=draw.choice([20.0, 68.0, 80.0]), load=draw.choice([0.1, 1.0]), gain=0.2)[0]
        for _ in range(60)
    ]


def pair(draw: Draw) -> Files:
    """Two weeks, in other seasons and at other loads."""
    return [
        week(draw, 700, season=draw.uniform(-8, 28), wanted=draw.uniform(17, 25), load=10 ** draw.uniform(-1.5, 0), gain=0.2)[
            0
        ]
        for _ in range(2)
    ]


def alike(draw: Draw) -> Files:
    """Five weeks of one plant in one season."""
    return [
        week(draw, 1700, season=draw.normal(10, 3), wanted=21.0, load=draw.uniform(0.85, 1.15), gain=0.2)[0] for _ in range(5)
    ]


FOLDERS: dict[str, Callable[[Draw], Files]] = {
    make.__name__: make for make in (alike, seasons, two_seasons, loads, two_loads, a_stop, operators, starts, batches, pair)
}


def folder(files: Files) -> Log:
    """Return the files as one log; each is an episode that is cut."""
    observations, actions = (np.concatenate(parts).astype(np.float32) for parts in zip(*files, strict=True))
    owner = np.repeat(np.arange(len(files)), [len(own[0]) for own in files]).astype(np.int32)
    cuts = np.append(np.diff(owner) > 0, True)
    after = np.concatenate((observations[1:], observations[-1:]))
    after[cuts] = observations[cuts]
    rewards = -np.abs(observations[:, 1] - observations[:, 5])
    flags = {"terminals": np.zeros_like(cuts), "timeouts": cuts}
    arrays = {"observations": observations, "actions": actions, "rewards": rewards, "next_observations": after, **flags}
    return Log(arrays, names={"observation_names": NAMES, "action_names": ("valve", "pump")}, files=owner)


def in_episodes(log: Log) -> Log:
    """Return the log with a file for every episode."""
    ends = log.arrays["terminals"] | log.arrays["timeouts"]
    log.files = np.append(0, np.cumsum(ends)[:-1]).astype(np.int32)
    return log


def in_fahrenheit(files: Files, which: int) -> None:
    """The temperature of the zone, in °F in one file."""
    files[which][0][:, 1] = files[which][0][:, 1] * 1.8 + 32.0


def per_minute(files: Files, which: int) -> None:
    """The flow, a sixtieth in one file."""
    files[which][0][:, 2] /= 60.0


def in_percent(files: Files, which: int) -> None:
    """The valve, a hundred times as much in one file."""
    files[which][1][:, 0] *= 100.0


def several(files: Files, which: int) -> None:
    """All three of these."""
    for change in (in_fahrenheit, per_minute, in_percent):
        change(files, which)


FAULTS: dict[Callable[[Files, int], None], set[str]] = {
    in_fahrenheit: {"T_zone"},
    per_minute: {"flow"},
    in_percent: {"valve"},
    several: {"T_zone", "flow", "valve"},
}


def named(log: Log) -> set[str]:
    """Return the columns of which the doctor says that their unit changes."""
    return {f.evidence.split("`")[1] if "`" in f.evidence else "?" for f in findings(log) if f.code == "unit-change"}


def main() -> None:
    """Print false alarms, and how many planted changes are found with every column named and no other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    options = parser.parse_args()
    seeds = range(options.seeds)
    print(f"| folders | false alarms | {' | '.join((fault.__doc__ or '').rstrip('.') for fault in FAULTS)} |")
    print(f"|---|---|{'---|' * len(FAULTS)}")
    for make in FOLDERS.values():
        alarms = sum(bool(named(folder(make(_draw(seed))))) for seed in seeds)
        found = [sum(_found(make, fault, columns, seed) for seed in seeds) for fault, columns in FAULTS.items()]
        print(
            f"| {(make.__doc__ or '').rstrip('.')} | {alarms} of {len(seeds)} | {' | '.join(map(str, found))} |", flush=True
        )
    split = {name: sum(bool(named(in_episodes(make(seed)))) for seed in range(3)) for name, make in KINDS.items()}
    imagined = ", ".join(name for name, count in split.items() if count) or "none"
    print(f"\nKinds of the matrix with a file for every episode: {sum(split.values())} of {3 * len(split)} ({imagined})")


def _draw(seed: int) -> Draw:
    return np.random.Generator(np.random.Philox(seed))


def _found(make: Callable[[Draw], Files], fault: Callable[[Files, int], None], columns: set[str], seed: int) -> bool:
    draw = _draw(seed)
    files = make(draw)
    fault(files, int(draw.integers(len(files))))
    return named(folder(files)) == columns


if __name__ == "__main__":
    main()
