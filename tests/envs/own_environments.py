"""Environments of the tests, registered when this module is imported."""

import os
import signal
import threading
import time

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple


class Drift(gymnasium.Env):
    """A point pushed along a line; it fails in one of several ways at a given step, while a file exists."""

    def __init__(self, failure="", at=30, flag=None, size=2, resets=10**9):
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (size,)), Box(-1.0, 1.0, (1,))
        self.failure, self.at, self.flag, self.size, self.resets = failure, at, flag, size, resets

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets -= 1
        if self.resets < 0 and self.flag is not None and os.path.exists(self.flag):
            self.fail()
        self.place, self.steps = self.np_random.normal(size=self.size).astype(np.float32), 0
        return self.place.copy(), {}

    def step(self, action):
        self.steps += 1
        if self.failure and self.steps == self.at and (self.flag is None or os.path.exists(self.flag)):
            self.fail()
        self.place = (0.9 * self.place + 0.1 * action[0] + 0.01 * self.np_random.normal(size=self.size)).astype(np.float32)
        return self.place.copy(), -float(np.abs(self.place).sum()), bool(abs(self.place[0]) > 3.0), False, {}

    def close(self):
        if self.flag is not None and not self.failure:
            with open(self.flag, "w"):
                pass

    def fail(self):
        if self.failure == "shout":
            raise ValueError("x" + "é" * 3000)
        if self.failure == "exit":
            raise SystemExit(3)
        if self.failure == "huge":
            self.place = self.place * np.inf
            return
        if self.failure == "raise":
            raise ZeroDivisionError("the motor is off")
        if self.failure == "hang":
            threading.Event().wait()
        os.kill(os.getpid(), signal.SIGKILL)


class Slow(Drift):
    """Takes longer than half a second only together with copies; it counts processor time instead of waiting."""

    def reset(self, *, seed=None, options=None):
        begin = time.process_time()
        while time.process_time() - begin < 0.2:
            pass
        return super().reset(seed=seed)


class Torch(Drift):
    """Multiplies matrices in its steps."""

    def step(self, action):
        product = torch.ones(600, 600) @ torch.ones(600, 600)
        return np.array([product[0, 0], 0.0], dtype=np.float32), 0.0, False, False, {}


class Units(Drift):
    """Pascals beside micrometres, rewards in cents."""

    def reset(self, *, seed=None, options=None):
        return self.seen(super().reset(seed=seed)[0]), {}

    def step(self, action):
        place, reward, *rest = super().step(action)
        return self.seen(place), 1e4 * reward, *rest

    def seen(self, place):
        return (place * [1e4, 1e-5] + [1e5, 0.0]).astype(np.float32)


class Latch(Drift):
    """A column of numerical noise, which is of ordinary size where a policy may go and random actions do not."""

    def step(self, action):
        place, *rest = super().step(action)
        return np.float32([place[0], 0.1 if place[0] > 2.9 else 1e-17 * place[1]]), *rest

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0] * np.float32([0.1, 0.0]), {}


class Offset(Drift):
    """Loses a great deal at every step, whatever is done."""

    def step(self, action):
        place, reward, *rest = super().step(action)
        return place, reward - 1e4, *rest


class Goal(Drift):
    """Pays for large actions alone."""

    def step(self, action):
        place, _, *rest = super().step(action)
        return place, float(abs(action[0]) > 0.5), *rest


class Calm(Drift):
    """Pays for small actions alone."""

    def step(self, action):
        place, _, *rest = super().step(action)
        return place, float(abs(action[0]) < 0.5), *rest


class Nested(gymnasium.Env):
    """Observations of several boxes; each number tells its place."""

    observation_space = Dict(
        {
            "pose": Dict({"speed": Box(-9.0, 9.0, ()), "angle": Box(-9.0, 9.0, (2,))}),
            "goal": Tuple((Box(-9.0, 9.0, (1,)), Box(-9.0, 9.0, (2, 2)))),
        }
    )
    action_space = Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        goal = (np.array([0.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
        return {"goal": goal, "pose": {"speed": np.array(7.0), "angle": np.array([5.0, 6.0])}}, {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


class Pictures(Nested):
    """Observations with an image among them."""

    observation_space = Dict({"camera": Box(0, 255, (8, 8, 3), dtype=np.uint8), "speed": Box(-1.0, 1.0, (1,))})


for made in (Drift, Slow, Torch, Units, Latch, Offset, Goal, Calm, Nested, Pictures):
    if f"Tests/{made.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(id=f"Tests/{made.__name__}-v0", entry_point=made, max_episode_steps=50)
