"""A plant whose values are known: one temperature that is pushed by one heater, with quadratic costs and linear policies."""

import numpy as np

from rl_training.data.offline_dataset import TransitionDataset

KEEPS, PUSHES, COST = 0.9, 0.3, 0.1  # s' = KEEPS s + PUSHES a; r = -(s^2 + COST a^2)


def logged(episodes=120, length=40, seed=0, gain=-0.4, noise=0.6, start=2.0, offset=0.0, scale=1.0):
    """Return episodes of a noisy linear controller; observations in other units by `offset` and `scale`."""
    random = np.random.default_rng(seed)
    state = random.uniform(-start, start, episodes)
    rows = []
    for step in range(length):
        action = gain * state + noise * random.standard_normal(episodes)
        following = KEEPS * state + PUSHES * action
        rows.append((state, action, -(state**2 + COST * action**2), following, np.full(episodes, step == length - 1)))
        state = following
    seen, action, reward, following, last = (np.stack(column, axis=1).reshape(-1) for column in zip(*rows, strict=True))
    return TransitionDataset.from_dict(
        {
            "observations": (offset + scale * seen[:, None]).astype(np.float32),
            "actions": action[:, None].astype(np.float32),
            "rewards": reward.astype(np.float32),
            "next_observations": (offset + scale * following[:, None]).astype(np.float32),
            "terminals": np.zeros(len(seen), dtype=bool),
            "timeouts": last,
        }
    )


def value(gain, gamma, start=2.0):
    """Return the value of a = gain s, on average over starts that are uniform from -start to start."""
    moved = KEEPS + PUSHES * gain
    return -(1.0 + COST * gain**2) / (1.0 - gamma * moved**2) * start**2 / 3.0


def linear(gain, offset=0.0, scale=1.0):
    """Return the policy a = gain s."""
    return lambda seen: (gain * (seen - offset) / scale).astype(np.float32)
