"""An environment of the sizes of Pendulum-v1 that draws itself without any library."""

from contextlib import contextmanager

import gymnasium
import numpy as np


class Dial(gymnasium.Env):
    """A walk that ends at a distance which its seed decides; its picture is as red as it has taken steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 - as Gymnasium declares it
    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (3,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps, self.end = 0.0, 0, float(self.np_random.uniform(2.0, 8.0))
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        self.place += 0.6 + 0.1 * float(action[0])
        return self._seen(), -abs(self.place - 4.0), self.place >= self.end, False, {}

    def render(self):
        assert self.render_mode == "rgb_array"
        return np.full((32, 48, 3), (8 * self.steps, 0, 0), dtype=np.uint8)

    def _seen(self):
        return np.array([self.place, self.end, 1.0], dtype=np.float32)


@contextmanager
def registered(env_id, entry_point, **options):
    """Register an environment for a while."""
    gymnasium.register(env_id, entry_point=entry_point, **options)
    try:
        yield env_id
    finally:
        del gymnasium.registry[env_id]
