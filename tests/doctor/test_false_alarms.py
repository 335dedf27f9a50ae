"""What the doctor must not imagine: clean logs of plants and robots that look odd at first sight."""

import numpy as np
import pytest

from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.helpers import generator

ROWS = 3000


def walk(draw, rows=ROWS, columns=3, size=0.1):
    """Slow columns."""
    return np.cumsum(draw.normal(size=(rows, columns)) * size, axis=0)


def first_order(draw, target, speed=0.05, noise=0.02):
    """A state that follows a target."""
    state, result = target[0], []
    for value in target:
        state = state + speed * (value - state) + draw.normal(0, noise)
        result.append(state)
    return np.array(result)


def steps(draw, every, rows=ROWS, low=20, high=70):
    """A set-point that steps now and then."""
    return np.repeat(draw.integers(low, high, rows // every + 1), every)[:rows].astype(float)


def set_points(draw):
    wanted = steps(draw, 150)
    state = first_order(draw, wanted)
    return np.stack((state, wanted), axis=1), wanted - state, -np.abs(wanted - state)


def mostly_set_points(draw):
    wanted = np.stack([steps(draw, every) for every in (150, 200, 310)], axis=1)
    state = first_order(draw, wanted[:, 0])
    return np.column_stack((state, wanted)), wanted[:, 0] - state, -np.abs(wanted[:, 0] - state)


def a_flow_that_follows_at_once(draw):
    wanted = steps(draw, 200)
    flow, pressure = wanted + draw.normal(0, 0.3, ROWS), wanted**2 + draw.normal(0, 5, ROWS)
    level = walk(draw, columns=1)[:, 0]
    return np.column_stack((flow, pressure, wanted, level)), wanted / 70, -np.abs(level)


def coarse_sensors(draw):
    wanted = steps(draw, 240)
    state = np.round(first_order(draw, wanted) / 0.3) * 0.3
    return np.column_stack((state, wanted)), np.clip(3 * (wanted - state), 0, 100), -np.abs(wanted - state)


def sampled_and_held(draw):
    slow = np.repeat(walk(draw, ROWS // 10, 4), 10, axis=0)
    fast = walk(draw, columns=2)
    return np.column_stack((slow, fast)), draw.uniform(-1, 1, ROWS), -np.square(fast).sum(axis=1)


def clocks_and_counters(draw):
    slow = walk(draw, columns=1)
    clock, weekday = np.arange(ROWS) % 24.0, np.arange(ROWS) // 24 % 7
    count = np.cumsum(draw.random(ROWS) < 0.1)
    return np.column_stack((slow, clock, weekday, count)), draw.uniform(-1, 1, ROWS), -np.abs(slow[:, 0])


def the_time_of_day(draw):
    slow, hour = walk(draw, columns=2), np.arange(ROWS) % 288 / 12.0
    angle = hour * 2 * np.pi / 24
    return (
        np.column_stack((slow, np.round(hour, 2), np.sin(angle), np.cos(angle))),
        draw.uniform(-1, 1, ROWS),
        -np.abs(slow[:, 0]),
    )


def angles_that_wrap(draw):
    speed = first_order(draw, steps(draw, 300, low=-3, high=4), noise=0.1)
    angle = np.mod(np.cumsum(speed * 0.05) + np.pi, 2 * np.pi) - np.pi
    return np.column_stack((angle, speed, np.sin(angle))), draw.uniform(-1, 1, ROWS), np.cos(angle)


def batch_phases(draw):
    phase = np.arange(ROWS) % 300 // 100
    heat = first_order(draw, np.array([30.0, 80.0, 50.0])[phase])
    return np.column_stack((heat, phase)), (phase == 1) * 1.0, -0.1 * np.abs(heat - 60)


def on_and_off(draw):
    heat, states, actions = 20.0, [], []
    on = 0.0
    for _ in range(ROWS):
        states.append((heat, on))  # before the command, which would be a finding
        on = 1.0 if heat < 19.5 else 0.0 if heat > 20.5 else on
        actions.append(on)
        heat += 0.1 * (on * 30 + (1 - on) * 5 - heat) * 0.2 + draw.normal(0, 0.01)
    return np.array(states), np.array(actions), -np.abs(np.array(states)[:, 0] - 20)


def a_machine_at_rest(draw):
    """Everything stands still for hundreds of rows, again and again."""
    running = np.arange(ROWS) % 600 < 300
    speed = np.where(running, 50 + walk(draw, columns=1, size=0.5)[:, 0], 0.0)
    return np.column_stack((speed, speed * 0.1)), running * 1.0, -np.abs(speed - 50) * 0.01


def a_valve_at_its_stop(draw):
    """A reading that saturates again and again."""
    level = np.clip(first_order(draw, steps(draw, 250, low=-20, high=120)), 0, 100)
    return np.column_stack((level, walk(draw, columns=2))), draw.uniform(-1, 1, ROWS), -np.abs(level - 50)


def heavy_tails(draw):
    state = walk(draw, columns=3)
    return state + draw.standard_t(2, size=state.shape) * 0.05, draw.uniform(-1, 1, ROWS), -np.square(state).sum(axis=1)


def quaternions_that_flip(draw):
    turn = walk(draw, columns=4) + 1.0
    turn /= np.linalg.norm(turn, axis=1, keepdims=True)
    signs = np.where(np.arange(ROWS) // 400 % 2, -1.0, 1.0)[:, None]
    return np.column_stack((turn * signs, walk(draw, columns=9))), draw.uniform(-1, 1, ROWS), turn[:, 0]


def disturbances(draw):
    state, states = np.zeros(4), []
    for row in range(ROWS):
        states.append(state)
        push = draw.normal(0, 3, 4) if row % 500 == 250 else 0.0
        state = 0.98 * state + draw.normal(0, 0.05, 4) + push
    return np.array(states), draw.uniform(-1, 1, ROWS), -np.square(np.array(states)).sum(axis=1)


def a_yield_as_reward(draw):
    """The reward is a state that grows from 0 in each batch."""
    product = np.tile(1 - np.exp(-np.arange(100) / 30), ROWS // 100) + draw.normal(0, 1e-4, ROWS)
    heat = walk(draw, columns=1)[:, 0]
    return np.column_stack((product, heat)), draw.uniform(-1, 1, ROWS), product


def rare_events(draw):
    state = walk(draw, columns=3)
    return state, draw.uniform(-1, 1, ROWS), (draw.random(ROWS) < 0.002) * 10.0


LOGS = [
    set_points,
    mostly_set_points,
    a_flow_that_follows_at_once,
    coarse_sensors,
    sampled_and_held,
    clocks_and_counters,
    the_time_of_day,
    angles_that_wrap,
    batch_phases,
    on_and_off,
    a_machine_at_rest,
    a_valve_at_its_stop,
    heavy_tails,
    quaternions_that_flip,
    disturbances,
    a_yield_as_reward,
    rare_events,
]


def arrays(make, seed):
    observations, actions, rewards = make(generator(seed))
    return {
        "observations": observations.astype(np.float32),
        "actions": np.reshape(actions, (len(rewards), -1)).astype(np.float32),
        "rewards": np.asarray(rewards, dtype=np.float32),
    }


def errors(values):
    return [finding for finding in examine(read_dataset(values)) if finding.severity == "error"]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", LOGS, ids=lambda make: make.__name__)
def test_one_long_clean_log_has_no_errors(make, seed):
    values = arrays(make, seed)
    assert errors(values) == []
    cuts = np.arange(1, ROWS + 1) % 283 == 0  # shifts of a plant that runs on: the next row is the next observation
    following = np.concatenate((values["observations"][1:], values["observations"][-1:]))
    cut = {**values, "timeouts": cuts, "terminals": np.zeros(ROWS, dtype=bool), "next_observations": following}
    assert errors(cut) == []


@pytest.mark.parametrize("make", [set_points, mostly_set_points, coarse_sensors])
def test_a_cut_where_the_set_point_steps_is_no_error(make):
    values = arrays(make, 0)
    cuts = np.append(np.diff(values["observations"][:, 1]) != 0, True)
    following = np.concatenate((values["observations"][1:], values["observations"][-1:]))
    assert errors({**values, "timeouts": cuts, "terminals": np.zeros(ROWS, dtype=bool), "next_observations": following}) == []


def heated_from_the_set_point(draw, length=120, episodes=40):
    """Episodes that begin at their set point, which steps later on; the reward is the distance to it."""
    rows = []
    for _ in range(episodes):
        state = wanted = draw.uniform(40, 70)
        for step in range(length):
            wanted = wanted if step % 40 < 39 else draw.uniform(40, 70)
            heat = np.clip(0.5 + 0.03 * (wanted - state) + draw.normal(0, 0.05), 0, 1)
            rows.append((state, wanted, heat))
            state += 0.1 * (20 + 80 * heat - state) + draw.normal(0, 0.05)
    states, set_points_, heats = np.array(rows).T
    return np.column_stack((states, set_points_)), heats, -np.abs(states - set_points_)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_first_reward_of_0_is_due_where_episodes_begin_at_a_set_point(seed):
    values = arrays(heated_from_the_set_point, seed)
    rows = np.arange(len(values["rewards"]))
    values |= {"timeouts": rows % 120 == 119, "terminals": np.zeros(len(rows), dtype=bool)}
    assert errors(values) == []
    values["rewards"] = np.where(rows % 120 == 0, 0.0, np.roll(values["rewards"], 1))
    (late,) = errors(values)
    assert late.evidence.startswith("rewards are one row late")


def steered_from_rest(draw, length=120, episodes=40):
    """Episodes that begin at rest: a rudder follows its command by at most 3 degrees a row, and turns a ship."""
    rows = []
    for _ in range(episodes):
        off, rate, rudder, wind = draw.normal(0, 20), 0.0, 0.0, 0.0
        for step in range(length):
            off += draw.normal(0, 40) * (step % 40 == 39)
            wind += -0.02 * wind + draw.normal(0, 0.5)
            command = np.clip(0.8 * off + 20 * rate + draw.normal(0, 2), -30, 30)
            rows.append((off, rate, rudder, command))
            moved = rudder + np.clip(command - rudder, -3, 3)
            off, rate, rudder = off - rate, rate + 0.04 * (0.04 * (rudder + wind) - rate), moved
    return np.array(rows).T


REWARDS_AT_REST = {
    "rudder": lambda rate, rudder: -np.abs(rudder),
    "rate": lambda rate, rudder: -np.abs(rate),
    "both": lambda rate, rudder: -np.abs(rudder) - np.abs(rate),
}


@pytest.mark.parametrize("observed", [[0, 1, 2], [0], [1]], ids=["all", "heading", "rate"])
@pytest.mark.parametrize("name", REWARDS_AT_REST)
def test_a_first_reward_of_0_is_due_where_episodes_begin_at_rest(name, observed):
    *states, command = steered_from_rest(np.random.Generator(np.random.Philox(0)))
    rewards, rows = REWARDS_AT_REST[name](*states[1:]), np.arange(len(command))
    values = {"observations": np.column_stack(states)[:, observed], "actions": command[:, None], "rewards": rewards}
    values |= {"timeouts": rows % 120 == 119, "terminals": np.zeros(len(rows), dtype=bool)}
    assert errors(values) == []
    values["rewards"] = np.where(rows % 120 == 0, 0.0, np.roll(rewards, 1))
    if len(observed) == 3:
        (late,) = errors(values)
        assert late.evidence.startswith("rewards are one row late")


def test_a_reward_of_an_actuator_that_is_not_observed_is_no_error():
    *states, command = steered_from_rest(np.random.Generator(np.random.Philox(0)))
    found = examine(read_dataset({"observations": states[1][:, None], "actions": command[:, None], "rewards": -states[2]}))
    (shift,) = [finding for finding in found if finding.code == "shifted-rewards"]
    assert shift.severity == "warning"
    assert "answers late and is not observed" in shift.fix


REALLY_JUMP = (heavy_tails, disturbances, a_flow_that_follows_at_once, a_yield_as_reward, a_machine_at_rest)
QUIET = [make for make in LOGS if make not in REALLY_JUMP]


@pytest.mark.parametrize("make", QUIET, ids=lambda make: make.__name__)
def test_a_column_that_steps_is_no_seam(make):
    """All that is said about one long log is what was assumed."""
    found = examine(read_dataset(arrays(make, 0)))
    assert [finding.code for finding in found if "outlier" not in finding.code] == ["missing-ends"], found
    assert "jump" not in found[0].evidence
    assert "taken as one episode" in found[0].evidence


@pytest.mark.parametrize("rows", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("columns", [1, 3])
def test_handfuls_of_rows(rows, columns):
    draw = generator(rows)
    values = {
        "observations": draw.normal(size=(rows, columns)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 1)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
        "next_observations": draw.normal(size=(rows, columns)).astype(np.float32),
        "terminals": np.zeros(rows, dtype=bool),
    }
    assert errors(values) == []


@pytest.mark.parametrize("penalty", [-100.0, 100.0])
def test_rewards_at_true_ends_are_no_outliers(penalty):
    values = arrays(disturbances, 0)
    ends = np.arange(1, ROWS + 1) % 750 == 0
    values["rewards"] = np.where(ends, penalty, -0.1 * np.abs(values["observations"][:, 0])).astype(np.float32)
    ended = {**values, "terminals": ends}
    assert "outlier-rows" not in {finding.code for finding in examine(read_dataset(ended))}
    misplaced = {**values, "terminals": np.roll(ends, 7)}
    assert "outlier-rows" in {finding.code for finding in examine(read_dataset(misplaced))}


def test_ends_that_pay_are_ends():
    """A task that takes as many steps each time, and is paid for at its end."""
    values = arrays(batch_phases, 0)
    ends = np.arange(1, ROWS + 1) % 300 == 0
    paid = {**values, "terminals": ends, "rewards": np.where(ends, 50.0, values["rewards"]).astype(np.float32)}
    assert examine(read_dataset(paid)) == []
    unpaid = {**values, "terminals": ends}
    assert [finding.code for finding in examine(read_dataset(unpaid))] == ["ends-at-one-length"]


def test_done_beside_a_time_limit_follows_a_rule():
    """Gymnasium's old convention: done is set at every end."""
    values = arrays(set_points, 0)
    ends = np.arange(1, ROWS + 1) % 300 == 0
    found = examine(read_dataset({**values, "dones": ends, "timeouts": ends}))
    assert "ends-overlap" not in {finding.code for finding in found}
