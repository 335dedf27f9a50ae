"""Clean logs of many kinds, for the doctor's matrix: other shapes, units and scales, each a function of a seed.

Every simulator yields (observation, action, reward, next observation, true end) step by step and says when an episode begins.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.plants import PLANTS, make_log
from rl_training.config.blocks import DatasetConfig
from rl_training.data.dataset_loaders import load_dataset
from rl_training.envs.recipes import make_dataset

FIELDS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
Arrays = dict[str, NDArray[Any]]
Row = tuple[Any, Any, float, Any, bool]
Episodes = Iterator[list[Row]]
Draw = np.random.Generator


@dataclass
class Log:
    """Transitions by field, and what is known about them."""

    arrays: Arrays
    traits: frozenset[str] = frozenset()  # why some faults cannot be seen; see `doctor_matrix`
    env_id: str | None = None
    bounds: tuple[list[float], list[float]] | None = None
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    files: NDArray[np.int32] | None = None  # the file of each row; None for a single one


def log_of(episodes: Episodes, *traits: str, **known: Any) -> Log:
    """Return the log of simulated episodes; an episode without a true end is cut."""
    rows = [(*row, row is episode[-1] and not row[4]) for episode in episodes for row in episode]
    flags = FIELDS[4:]
    columns = zip(FIELDS, zip(*rows, strict=True), strict=True)
    arrays = {name: np.asarray(values, dtype=bool if name in flags else np.float32) for name, values in columns}
    return Log(arrays, frozenset(traits), **known)


def pendulum(kind: str) -> Callable[[int], Log]:
    """Gymnasium's Pendulum under random or scripted actions: one length, every end a time limit."""

    def make(seed: int) -> Log:
        noise = 0.0 if kind == "random" else 0.3
        data = make_dataset("Pendulum-v1", DatasetConfig.checked({"kind": kind, "size": 4000, "seed": seed, "noise": noise}))
        arrays = {name: getattr(data, name).copy() for name in FIELDS}
        return Log(arrays, frozenset({"state reward"}), "Pendulum-v1")

    return make


def hopper(seed: int) -> Log:
    """A hopping mass on a leg: contacts, falls as true ends, a limit of 250 steps, velocity as reward."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        for _ in range(30):
            height, speed, lean, spin, forward = 1.2, 0.0, draw.normal(0, 0.02), 0.0, 0.5
            rows: list[Row] = []
            for _ in range(250):
                push, torque, hip = np.clip(
                    np.array([0.4 - 0.2 * speed, -2.2 * lean - 0.5 * spin, 0.5 * forward]) + draw.normal(0, 0.45, 3), -1, 1
                )
                here = (height, speed, lean, spin, forward, np.sin(4 * height), float(height < 1.0))
                contact = max(0.0, 1.0 - height) * 120.0 * (1.0 + 0.4 * push)
                speed += 0.02 * (contact - 9.8 - 0.5 * speed)
                height += 0.02 * speed
                spin += 0.05 * (1.5 * torque + 2.5 * lean) + draw.normal(0, 0.03)
                lean += 0.05 * spin
                forward += 0.05 * (2.0 * hip - 0.3 * forward + 0.5 * (contact > 0) * lean)
                fell = bool(abs(lean) > 0.5 or height < 0.6)
                after = (height, speed, lean, spin, forward, np.sin(4 * height), float(height < 1.0))
                rows.append(
                    (here, (push, torque, hip), 1.0 + forward - 0.05 * float(push**2 + torque**2 + hip**2), after, fell)
                )
                if fell:
                    break
            yield rows

    return log_of(episodes(), "true ends", bounds=([-1.0] * 3, [1.0] * 3))


def sparse_arm(seed: int) -> Log:
    """A linear arm that gets 1 near the goal and 0 elsewhere; cut after 80 steps."""
    draw = np.random.Generator(np.random.Philox(seed))
    system = np.eye(6) * 0.95 + draw.normal(size=(6, 6)) * 0.03
    control = draw.normal(size=(2, 6)) * 0.2

    def episodes() -> Episodes:
        for _ in range(40):
            state = draw.normal(size=6) * 1.5
            rows: list[Row] = []
            for _ in range(80):
                action = np.clip(-0.3 * state[:2] + draw.normal(0, 0.5, 2), -1, 1)
                after = system @ state + action @ control + draw.normal(0, 0.02, 6)
                rows.append((state, action, float(after @ after < 2.0), after, False))
                state = after
            yield rows

    return log_of(episodes(), "sparse reward", bounds=([-1.0, -1.0], [1.0, 1.0]))


def batch_reactor(seed: int) -> Log:
    """Batches with three phases and a payout at the end: every batch ends truly after 120 steps."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        for _ in range(25):
            heat, product, pressure = 293.0 + draw.normal(0, 2.0), 0.0, 101_325.0 + draw.normal(0, 300.0)
            rows: list[Row] = []
            for step in range(120):
                phase = float(step // 40)
                target = (320.0, 355.0, 330.0)[step // 40]
                feed = float(np.clip(50.0 + 2.5 * (target - heat) + draw.normal(0, 8.0), 0.0, 100.0))
                here = (heat, product, pressure, phase, target)
                rate = 0.012 * np.exp(0.02 * (heat - 340.0)) * (1.0 - product)
                heat += 0.06 * (293.0 + 0.9 * feed - heat) + 40.0 * rate + draw.normal(0, 0.15)
                product += rate * 0.5
                pressure += 0.2 * (101_325.0 + 400.0 * (heat - 293.0) - pressure) + draw.normal(0, 60.0)
                last = step == 119
                phase_after, target_after = float((step + 1) // 40), (320.0, 355.0, 330.0, 330.0)[(step + 1) // 40]
                after = (heat, product, pressure, phase_after, target_after)
                reward = 100.0 * product + 20.0 if last else -0.01 * feed
                rows.append((here, (feed,), reward, after, last))
            yield rows

    return log_of(
        episodes(), "fixed horizon", names={"observation_names": ("T [K]", "product", "p [Pa]", "phase", "T_set [K]")}
    )


def lander(seed: int) -> Log:
    """A descent that ends truly, with +100 or -100 on the last row; lengths vary, some are cut at 300."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        for _ in range(35):
            height, speed, side, drift = draw.uniform(6, 10), draw.normal(0, 0.3), draw.normal(0, 2), draw.normal(0, 0.3)
            rows: list[Row] = []
            for _ in range(300):
                main = float(np.clip(0.5 - 0.8 * (speed + 0.25 * height) + draw.normal(0, 0.25), -1, 1))
                aside = float(np.clip(-0.4 * side - drift + draw.normal(0, 0.3), -1, 1))
                here = (height, speed, side, drift)
                speed += 0.05 * (1.6 * max(main, 0.0) - 1.0)
                height += 0.05 * speed
                drift += 0.05 * aside
                side += 0.05 * drift
                down = bool(height <= 0.0)
                reward = -0.1 * abs(side) - 0.05 * abs(speed) - 0.03 * abs(main)
                reward += (100.0 if abs(speed) < 0.8 else -100.0) * down
                rows.append((here, (main, aside), reward, (height, speed, side, drift), down))
                if down:
                    break
            yield rows

    return log_of(episodes(), "true ends", bounds=([-1.0, -1.0], [1.0, 1.0]))


def vehicle(seed: int) -> Log:
    """Trips of a car: gears, engine speed that drops at every shift, an on/off brake, percent and rpm; cut by trip."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        for _ in range(8):
            speed, wanted, gear = 0.0, 50.0, 1
            grade = 0.0
            rows: list[Row] = []
            for step in range(int(draw.integers(350, 700))):
                if step % 90 == 0:
                    wanted = float(draw.choice([0.0, 30.0, 50.0, 80.0, 120.0]))
                throttle = float(np.clip(3.0 * (wanted - speed) + draw.normal(0, 3.0), 0.0, 100.0))
                brake = float(speed > wanted + 5.0)
                here = _car(speed, gear, grade, wanted)
                grade += draw.normal(0, 0.05) - 0.01 * grade
                speed = max(
                    0.0,
                    speed + 0.05 * throttle / gear**0.5 - 1.5 * brake - 0.004 * speed - 0.1 * grade + draw.normal(0, 0.05),
                )
                gear = int(np.clip(1 + speed // 25, 1, 5))
                reward = -abs(wanted - speed) - 0.02 * throttle
                rows.append((here, (throttle, brake), reward, _car(speed, gear, grade, wanted), False))
            yield rows

    names = {"observation_names": ("v_kmh", "gear", "rpm", "grade", "v_set"), "action_names": ("throttle", "brake")}
    return _continued(log_of(episodes(), names=names))


def _continued(log: Log) -> Log:
    """Let next observations be those of the following row inside episodes, as a log shows them: with the new set-point."""
    inside = np.flatnonzero(~(log.arrays["terminals"] | log.arrays["timeouts"]))
    log.arrays["next_observations"][inside] = log.arrays["observations"][inside + 1]
    return log


def _car(speed: float, gear: int, grade: float, wanted: float) -> tuple[float, ...]:
    return speed, float(gear), 800.0 + 130.0 * speed / gear, grade, wanted


def noise(seed: int) -> Log:
    """Nothing explains anything: independent numbers, cut every 50 rows."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        for _ in range(60):
            states = draw.normal(size=(51, 3))
            yield [(states[i], draw.uniform(-1, 1, 2), float(draw.normal()), states[i + 1], False) for i in range(50)]

    return log_of(episodes(), "noise", bounds=([-1.0, -1.0], [1.0, 1.0]))


def heater(seed: int) -> Log:
    """One long run of a heated plate with two set-points that step, 0 to 100 %, sampled every second."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        first, second, wanted = 23.0, 23.0, [40.0, 35.0]
        rows: list[Row] = []
        for step in range(6000):
            if step % 240 == 120:
                wanted = [float(draw.integers(30, 70)), wanted[1]]
            if step % 400 == 0:
                wanted = [wanted[0], float(draw.integers(30, 60))]
            one, two = np.clip(6.0 * (np.array(wanted) - (first, second)) + 20.0 + draw.normal(0, 2.0, 2), 0.0, 100.0)
            here = (first, second, *wanted)
            first += 0.01 * (one * 0.7 - (first - 23.0)) + 0.004 * (second - first) + draw.normal(0, 0.05)
            second += 0.008 * (two * 0.6 - (second - 23.0)) + 0.004 * (first - second) + draw.normal(0, 0.05)

            reward = -(abs(here[0] - wanted[0]) + abs(here[1] - wanted[1]))
            rows.append((here, (one, two), reward, (first, second, *wanted), False))
        yield rows

    names = {"observation_names": ("T1", "T2", "TSP1", "TSP2"), "action_names": ("Q1", "Q2")}
    return _continued(log_of(episodes(), "state reward", names=names))


def process(seed: int) -> Log:
    """Forty sensors around 100 with noise, actions within 0.03, one run cut into shifts where the log goes on."""
    draw = np.random.Generator(np.random.Philox(seed))
    mixing = draw.normal(size=(40, 5)) * 2.0
    base = draw.uniform(80, 120, 40)
    gain = draw.normal(size=(3, 5)) * 4.0

    def episodes() -> Episodes:
        state = np.zeros(5)
        seen = base + mixing @ state + draw.normal(0, 0.1, 40)
        for _ in range(6):
            rows: list[Row] = []
            for _ in range(500):
                action = np.clip(-0.004 * state[:3] + draw.normal(0, 0.008, 3), -0.03, 0.03)
                before, cost = seen, float(np.square(state).sum())
                state = 0.97 * state + action @ gain + draw.normal(0, 0.05, 5)
                seen = base + mixing @ state + draw.normal(0, 0.1, 40)
                rows.append((before, action, -cost - 50.0 * float(np.abs(action).sum()), seen, False))
            yield rows

    return log_of(episodes(), "goes on")


def building(seed: int) -> Log:
    """Days of a building: an hour and a counter that wrap, occupancy, a tariff, temperatures; cut at midnight."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        inside, outside, count = 20.0, 5.0, 0
        for _ in range(12):
            rows: list[Row] = []
            for quarter in range(288):
                hour = quarter / 12.0
                occupied, tariff = float(8 <= hour < 18), 0.32 if 7 <= hour < 20 else 0.18
                power = float(np.clip(900.0 * (20.0 + 1.5 * occupied - inside) + draw.normal(0, 150.0), 0.0, 4000.0))
                here = (inside, outside, hour, occupied, tariff, float(count))
                inside += 0.02 * (outside - inside) + 0.0002 * power + 0.05 * occupied + draw.normal(0, 0.02)
                outside += 0.02 * (5.0 + 6.0 * np.sin(hour / 24 * 2 * np.pi - 2.0) - outside) + draw.normal(0, 0.05)
                count = (count + 1) % 1000
                after_hour = (quarter + 1) % 288 / 12.0
                after = (
                    *(inside, outside, after_hour, float(8 <= after_hour < 18)),
                    *(0.32 if 7 <= after_hour < 20 else 0.18, float(count)),
                )
                reward = -occupied * abs(here[0] - 21.0) - tariff * power / 1000.0
                rows.append((here, (power,), reward, after, False))
            yield rows

    names = {"observation_names": ("T_in", "T_out", "hour", "occupied", "tariff", "count"), "action_names": ("power_W",)}
    return log_of(episodes(), "goes on", names=names)


def scales(seed: int) -> Log:
    """A mixing tank in raw units: 1e-3 to 1e5, a coarse sensor of whole steps, rewards in the thousands; varied cuts."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        for _ in range(20):
            level, salt = draw.uniform(0.2, 0.8), draw.uniform(0.001, 0.004)
            rows: list[Row] = []
            for _ in range(int(draw.integers(80, 260))):
                inflow = float(np.clip(0.0005 * (0.6 - level) * 8 + 0.001 + draw.normal(0, 0.0004), 0.0, 0.003))
                dose = float(np.clip(1000.0 * (0.0025 - salt) + 0.5 + draw.normal(0, 0.2), 0.0, 1.0))
                here = (salt, level * 9.81e4, np.round(level * 100.0), level)
                level += 10.0 * inflow - 0.016 * np.sqrt(max(level, 0.0)) + draw.normal(0, 0.0005)
                level = max(level, 0.01)
                salt += 0.02 * (0.004 * dose - salt) + draw.normal(0, 1e-5)
                after = (salt, level * 9.81e4, np.round(level * 100.0), level)
                reward = -4000.0 * abs(level - 0.6) - 2e6 * abs(salt - 0.0025) - 100.0 * dose
                rows.append((here, (inflow, dose), reward, after, False))
            yield rows

    return log_of(episodes(), names={"observation_names": ("salt", "p_bottom", "level_pct", "level")})


def cooler(seed: int) -> Log:
    """Days of a cooler that runs on at midnight, into other weather; heat beyond a limit costs a thousand times more."""
    draw = np.random.Generator(np.random.Philox(seed))

    def episodes() -> Episodes:
        water, fluid, held, forced = 280.0, 300.0, 0, 0.0
        for _ in range(25):
            load, weather = draw.uniform(0.6, 1.1), draw.uniform(283.0, 298.0)
            rows: list[Row] = []
            for step in range(288):
                hour = step / 12.0
                outside = weather + 6.0 * np.sin((hour - 9.0) / 12.0 * np.pi) + draw.normal(0, 0.2)
                heat = load * (0.55 + 0.35 * np.exp(-(((hour - 14.0) / 4.5) ** 2))) + draw.normal(0, 0.015)
                if held == 0 and draw.random() < 0.01:
                    held, forced = int(draw.integers(6, 30)), float(draw.choice([0.0, 30.0, 80.0, 100.0]))
                valve = float(np.clip(45.0 + 14.0 * (water - 280.15) + draw.normal(0, 4.0), 0.0, 100.0))
                valve, held = (forced, held - 1) if held else (valve, 0)
                here = (water, fluid, outside, heat)
                cold = 1.15 * (valve / 100.0) ** 0.7 * (1.0 - 0.012 * (outside - 288.0))
                water = float(np.clip(water + 1.4 * (heat - cold) + draw.normal(0, 0.05), 275.5, 292.0))
                fluid = outside + 12.0 + draw.normal(0, 0.5)
                cost = 4.0 + 8.0 * cold + (1e4 if water > 288.0 else 2.0 * max(0.0, water - 281.5) ** 2)
                rows.append((here, (valve,), -cost, (water, fluid, outside, heat), False))
            yield rows

    names = {"observation_names": ("T_water", "T_fluid", "T_out", "heat"), "action_names": ("valve_pct",)}
    return _continued(log_of(episodes(), "goes on", names=names))


def plant(name: str) -> Callable[[int], Log]:
    """The log of one of `benchmarks.plants`."""

    def make(seed: int) -> Log:
        log = make_log(name, seed, episodes=20)
        return Log(log.arrays, names={"observation_names": log.observation_names, "action_names": log.action_names})

    return make


def file_kinds(folder: Path) -> dict[str, Callable[[int], Log]]:
    """Return parts of third-party files as kinds of logs; the seed chooses the part."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".h5", ".npz"))
    return {path.stem: partial(_part, path) for path in files}


def _part(path: Path, seed: int) -> Log:
    data = load_dataset(path)
    starts, _ = data.episode_spans
    first = int(starts[len(starts) // 7 * (seed % 7)])
    rows = slice(first, int(starts[np.searchsorted(starts, min(first + 5000, starts[-1]))]))
    pendulum = "pendulum" in path.name
    traits = frozenset({"state reward"}) if pendulum else frozenset[str]()
    arrays = {name: np.array(getattr(data, name)[rows]) for name in FIELDS}
    return Log(arrays, traits, "Pendulum-v1" if pendulum else None)


KINDS: dict[str, Callable[[int], Log]] = {
    "pendulum, random": pendulum("random"),
    "pendulum, controlled": pendulum("scripted"),
    "hopper-like": hopper,
    "sparse arm": sparse_arm,
    "batch reactor": batch_reactor,
    "lander-like": lander,
    "vehicle": vehicle,
    "noise": noise,
    "heater": heater,
    "process": process,
    "building": building,
    "mixed scales": scales,
    **{f"plant: {name}": plant(name) for name in PLANTS},
    "cooler": cooler,
}
