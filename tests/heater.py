"""A small heater whose log uses a part of its range: the data first, the environment later."""

import csv

import gymnasium
import numpy as np
import pytest

from tests.helpers import generator, run_values

OBSERVATIONS, ACTIONS = ("T1", "T2", "TSP1"), ("Q1", "Q2", "fan")
COLUMNS = {"observations": list(OBSERVATIONS), "actions": list(ACTIONS), "reward": "reward", "episode": "episode"}
LOW, HIGH = (10.0, 0.0, 30.0), (60.0, 40.0, 30.0)  # recorded; the fan never changes


class Heater(gymnasium.Env):
    """Two temperatures that follow two heaters, cooled by a fan; commands go from -20 to 100 %."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-20.0, 100.0, (3,), np.float32)
    commands: list[np.ndarray] = []  # noqa: RUF012 - of all environments together, for the tests to look at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([20.0, 20.0, self.np_random.uniform(30.0, 60.0)])
        return self.state.astype(np.float32), {}

    def step(self, action):
        Heater.commands.append(np.array(action))
        self.state = heated(self.state, action)
        return self.state.astype(np.float32), reward_of(self.state), False, False, {}


def heated(state, action):
    cooling = 0.05 + 0.001 * action[2]
    warmer = state[:2] + 0.1 * np.asarray(action[:2]) - cooling * (state[:2] - 20.0)
    return np.array([*warmer, state[2]])


def reward_of(state):
    return -abs(float(state[0] - state[2]))


@pytest.fixture
def heater(monkeypatch):
    """The id of the environment, registered for a while."""
    gymnasium.register("Heater-v0", entry_point=Heater, max_episode_steps=40)
    monkeypatch.setattr(Heater, "commands", [])
    yield "Heater-v0"
    del gymnasium.registry["Heater-v0"]


def write_log(path, episodes=12, length=40):
    """A CSV log whose first two rows reach the recorded bounds."""
    draw = generator(4)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", *OBSERVATIONS, *ACTIONS, "reward"])
        for episode in range(episodes):
            state = np.array([20.0, 20.0, draw.uniform(30.0, 60.0)])
            for t in range(length):
                action = LOW if t == 0 else HIGH if t == 1 else draw.uniform(LOW, HIGH)
                following = heated(state, action)
                writer.writerow([episode, *state.tolist(), *map(float, action), reward_of(following)])
                state = following
    return path


def heater_values(log, algo="iql", **changes):
    """A config without an environment, on the log."""
    kwargs = {"normalize_observations": True, "dataset": {"path": str(log), "columns": COLUMNS}}
    run = {"env_id": None, "total_timesteps": 100, "checkpoint_interval": 50, "eval_interval": 50, "log_interval": 25}
    return run_values(algo, **{**run, **changes, "algo_kwargs": {**kwargs, **changes.get("algo_kwargs", {})}})
