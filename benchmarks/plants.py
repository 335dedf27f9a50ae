"""Five plants with controllers, as sources of logs in other shapes, units and scales than any benchmark has.

Each plant is a small simulation in physical units with an imperfect controller, so observations largely predict the logged
actions. `make_log(name, seed)` gives arrays and column names; `register_plants()` makes each one a Gymnasium environment, in
which a policy learned from the log can be measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rl_training import TransitionDataset

Vector = NDArray[np.float64]
Draw = np.random.Generator


@dataclass(frozen=True)
class Plant:
    """A simulated process: state in, observation, reward and end out; all numbers in physical units."""

    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    low: tuple[float, ...]  # what the actuators accept
    high: tuple[float, ...]
    start: Callable[[Draw], Vector]
    observe: Callable[[Vector], Vector]
    advance: Callable[[Vector, Vector, Draw], tuple[Vector, float, bool]]  # state, action -> state, reward, true end
    control: Callable[[Vector, Draw], Vector]  # the operator's controller: observation -> action
    length: int = 200


@dataclass(frozen=True)
class Log:
    """Logged transitions with the names of their columns."""

    arrays: dict[str, NDArray[Any]] = field(repr=False)
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]

    def dataset(self) -> TransitionDataset:
        """Return the log as a dataset; its bounds are what was recorded."""
        return TransitionDataset.from_dict(
            self.arrays, observation_names=self.observation_names, action_names=self.action_names
        )


def make_log(name: str, seed: int = 0, episodes: int = 60, exploration: float = 0.0, own: Plant | None = None) -> Log:
    """Return the log of a plant under its controller: a function of the arguments alone.

    With `exploration`, noise of this share of the actuators' range is added to the controller's actions. `own` is a plant
    that is not one of the five.
    """
    plant, draw = own or PLANTS[name], np.random.Generator(np.random.Philox([seed, sum(map(ord, name))]))
    rows: list[tuple[Any, ...]] = []
    noise = exploration * (np.array(plant.high) - np.array(plant.low))
    for _ in range(episodes):
        state, ended = plant.start(draw), False
        for step in range(plant.length):
            before = plant.observe(state)
            action = np.clip(plant.control(before, draw) + draw.normal(0.0, 1.0, len(noise)) * noise, plant.low, plant.high)
            state, reward, ended = plant.advance(state, action, draw)
            rows.append((before, action, reward, plant.observe(state), ended, not ended and step == plant.length - 1))
            if ended:
                break
    fields = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    arrays = {name: c.astype(np.float32 if c.dtype.kind == "f" else bool) for name, c in zip(fields, columns, strict=True)}
    return Log(arrays, plant.observation_names, plant.action_names)


# Two heaters, 0 to 100 %, and two temperatures that should follow set-points.


def _heaters_start(draw: Draw) -> Vector:
    return np.array([draw.uniform(20, 40), draw.uniform(20, 40), draw.uniform(30, 65), draw.uniform(30, 65), 21.0])


def _heaters_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    t1, t2, goal1, goal2, ambient = state
    t1, t2 = (
        t1 + 5.0 * ((ambient - t1) / 150 + 0.0047 * action[0] + 0.002 * (t2 - t1)) + draw.normal(0, 0.05),
        t2 + 5.0 * ((ambient - t2) / 150 + 0.0040 * action[1] + 0.002 * (t1 - t2)) + draw.normal(0, 0.05),
    )
    if draw.random() < 0.015:
        goal1 = draw.uniform(30, 65)
    if draw.random() < 0.015:
        goal2 = draw.uniform(30, 60)
    return np.array([t1, t2, goal1, goal2, ambient]), -abs(t1 - state[2]) - abs(t2 - state[3]), False


def _heaters_control(seen: Vector, draw: Draw) -> Vector:
    error = seen[2:4] - seen[0:2]
    return np.asarray((seen[2:4] - 21.0) / np.array([0.70, 0.60]) + 6.0 * error + draw.normal(0, 6.0, 2))


# A distillation column: 52 readings around 100, corrections of at most a few hundredths.

_MIXING: Final = np.random.Generator(np.random.Philox(52)).normal(size=(52, 4))
_DRIFT: Final = np.array([[0.96, 0.05, 0, 0], [-0.05, 0.96, 0, 0], [0, 0.03, 0.9, 0.02], [0, 0, 0.04, 0.93]])
_EFFECT: Final = np.array([[3.0, 0, 0], [0, 3.0, 0.5], [0.5, 0, 2.0], [0, 1.0, 1.0]])
_GAINS: Final = np.linalg.pinv(_EFFECT) @ (_DRIFT - 0.85 * np.eye(4))


def _column_observe(state: Vector) -> Vector:
    return np.asarray(100.0 + np.tanh(_MIXING @ state / 3.0) * np.linspace(0.5, 8.0, 52))


def _column_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    state = np.asarray(_DRIFT @ state + _EFFECT @ action + draw.normal(0, 0.06, 4))
    return state, float(-np.square(state).sum() - 20.0 * np.square(action).sum()), False


def _column_control(seen: Vector, draw: Draw) -> Vector:
    deviations = np.clip((seen - 100.0) / np.linspace(0.5, 8.0, 52), -0.999, 0.999)
    state = np.linalg.lstsq(_MIXING / 3.0, np.arctanh(deviations), rcond=None)[0]
    return np.clip(-0.5 * _GAINS @ state + draw.normal(0, 0.002, 3), -0.028, 0.028)


# A compressor: pascals, kelvins, cubic metres per second and millimetres of vibration; it trips, which is a true end.


def _compressor_start(draw: Draw) -> Vector:
    return np.array([draw.uniform(2.0, 3.0), draw.uniform(0.3, 0.7), 0.0, draw.uniform(0.3, 0.8)])


def _compressor_observe(state: Vector) -> Vector:
    pressure, flow, heat, demand = state
    return np.array(
        [pressure * 1e5, flow * 5e-3, 300.0 + 40.0 * heat, 1e-3 * (0.2 + flow * pressure / 3), demand * 5e-3, 1.013e5]
    )


def _compressor_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    pressure, flow, heat, demand = state
    speed, recycle = (action[0] - 3000.0) / 6000.0, action[1]
    flow += 0.2 * (1.2 * speed - 0.15 * pressure + 0.2 - flow) + draw.normal(0, 0.01)
    pressure += 0.3 * (flow - 0.35 * recycle * pressure - demand * pressure / 2.5) + draw.normal(0, 0.01)
    heat += 0.1 * (speed * pressure / 2.0 - heat)
    demand = float(np.clip(demand + draw.normal(0, 0.02), 0.2, 0.9)) if draw.random() > 0.01 else 0.2  # a load is lost
    tripped = pressure > 3.05 or flow < 0.16
    reward = -10.0 * abs(pressure - 2.5) - 2e-4 * action[0] - (500.0 if tripped else 0.0)
    return np.array([pressure, flow, heat, demand]), float(reward), bool(tripped)


def _compressor_control(seen: Vector, draw: Draw) -> Vector:
    error = 2.5 - seen[0] / 1e5
    speed = 5200.0 + 4000.0 * (seen[4] / 5e-3 - 0.5) + 2500.0 * error + draw.normal(0, 250.0)
    return np.array([speed, 0.15 - 0.6 * error + draw.normal(0, 0.05)])


# A room: two readings that never change, and a damper that nobody ever moved.


def _room_start(draw: Draw) -> Vector:
    return np.array([draw.uniform(17, 24), draw.uniform(-5, 12), draw.uniform(450, 900), draw.uniform(0, 24)])


def _room_observe(state: Vector) -> Vector:
    inside, outside, carbon, hour = state
    clock = 2.0 * np.pi * hour / 24.0
    return np.array([inside, outside, carbon, np.sin(clock), np.cos(clock), 45.0, 1.0])


def _room_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    inside, outside, carbon, hour = state
    heating, fan, _ = action
    people = 1.0 if 8.0 < hour < 18.0 else 0.1
    inside += 0.05 * (outside - inside) * (0.3 + 0.4 * fan) + 0.012 * heating + 0.15 * people + draw.normal(0, 0.03)
    carbon += 90.0 * people - 0.25 * fan * (carbon - 400.0) + draw.normal(0, 3.0)
    outside = float(outside + 0.1 * np.sin(2.0 * np.pi * (hour - 9.0) / 24.0) + draw.normal(0, 0.1))
    cost = 0.002 * heating + 0.05 * fan + 0.5 * abs(inside - 21.0) + 0.001 * max(carbon - 800.0, 0.0)
    return np.array([inside, outside, carbon, (hour + 0.25) % 24.0]), -float(cost), False


def _room_control(seen: Vector, draw: Draw) -> Vector:
    heating = 18.0 * (21.5 - seen[0]) + 1.5 * (12.0 - seen[1]) + draw.normal(0, 4.0)
    return np.array([heating, 0.3 + (seen[2] - 600.0) / 800.0 + draw.normal(0, 0.04), 0.35])


# A boiler: volts, revolutions per minute, bars, millimetres and tonnes per hour side by side.


def _boiler_start(draw: Draw) -> Vector:
    return np.array([draw.uniform(-40, 40), draw.uniform(40, 50), 3.0, draw.uniform(20, 45)])


def _boiler_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    level, pressure, oxygen, load = state
    feed, fire = 60.0 * action[0] / 3.3, (action[1] - 600.0) / 900.0
    level += 0.5 * (feed - load) - 1.5 * (pressure - 45.0) * 0.1 + draw.normal(0, 0.5)
    pressure += 0.2 * (60.0 * fire - load) * 0.3 + draw.normal(0, 0.05)
    oxygen += 0.3 * (1.5 + 5.0 * fire - 0.03 * load - oxygen) + draw.normal(0, 0.02)
    load = float(np.clip(load + draw.normal(0, 0.8), 12.0, 58.0))
    pressure, level = float(np.clip(pressure, 20, 70)), float(np.clip(level, -200, 200))
    return np.array([level, pressure, oxygen, load]), float(-0.02 * abs(level) - 0.2 * abs(pressure - 45.0)), False


def _boiler_control(seen: Vector, draw: Draw) -> Vector:
    feed = seen[3] / 60.0 * 3.3 - 0.012 * seen[0] + draw.normal(0, 0.08)
    return np.array([feed, 600.0 + 15.0 * seen[3] - 35.0 * (seen[1] - 45.0) + draw.normal(0, 25.0)])


PLANTS: Final[dict[str, Plant]] = {
    "heaters": Plant(
        ("T1", "T2", "TSP1", "TSP2"),
        ("Q1", "Q2"),
        (0.0, 0.0),
        (100.0, 100.0),
        _heaters_start,
        lambda state: state[:4].copy(),
        _heaters_advance,
        _heaters_control,
    ),
    "column": Plant(
        tuple(f"x{number:02d}" for number in range(52)),
        ("reflux", "boilup", "feed"),
        (-1.0, -1.0, -1.0),
        (1.0, 1.0, 1.0),
        lambda draw: draw.normal(0, 0.8, 4),
        _column_observe,
        _column_advance,
        _column_control,
    ),
    "compressor": Plant(
        ("pressure_pa", "flow_m3s", "temperature_k", "vibration_m", "demand_m3s", "ambient_pa"),
        ("speed_rpm", "recycle"),
        (3000.0, 0.0),
        (9000.0, 1.0),
        _compressor_start,
        _compressor_observe,
        _compressor_advance,
        _compressor_control,
    ),
    "room": Plant(
        ("inside", "outside", "co2", "hour_sin", "hour_cos", "humidity", "season"),
        ("heating", "fan", "damper"),
        (0.0, 0.2, 0.0),
        (100.0, 1.0, 1.0),
        _room_start,
        _room_observe,
        _room_advance,
        _room_control,
        96,
    ),
    "boiler": Plant(
        ("level_mm", "pressure_bar", "oxygen_pct", "load_tph"),
        ("valve_v", "fan_rpm"),
        (0.0, 600.0),
        (3.3, 1500.0),
        _boiler_start,
        lambda state: state.copy(),
        _boiler_advance,
        _boiler_control,
    ),
}


class PlantEnvironment(gymnasium.Env[Any, Any]):
    """A plant as an environment, with the limits of its actuators as action space."""

    def __init__(self, name: str) -> None:
        self.plant = plant = PLANTS[name]
        width = len(plant.observation_names)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), dtype=np.float64)
        low, high = (np.array(bound, dtype=np.float32) for bound in (plant.low, plant.high))
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Vector, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed, options=options)
        self.state, self.steps = self.plant.start(self.np_random), 0
        return self.plant.observe(self.state), {}

    def step(self, action: Sequence[float]) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        command = np.clip(np.asarray(action, dtype=np.float64), self.plant.low, self.plant.high)
        self.state, reward, ended = self.plant.advance(self.state, command, self.np_random)
        self.steps += 1
        return self.plant.observe(self.state), reward, ended, self.steps >= self.plant.length and not ended, {}


def register_plants() -> dict[str, str]:
    """Register every plant as a Gymnasium environment, and return their ids by name."""
    ids = {name: f"Plant{name.capitalize()}-v0" for name in PLANTS}
    for name, env_id in ids.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point="benchmarks.plants:PlantEnvironment", kwargs={"name": name})
    return ids
