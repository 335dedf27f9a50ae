"""What the reference scripts share: their arguments, and the round from training to a loaded checkpoint."""

import argparse
import tempfile
from pathlib import Path

from rl_training.api import ManagedAlgorithm

UPRIGHT = [1.0, 0.0, 0.0]  # cos, sin and speed of the angle


def arguments(description: str | None, steps: int, *, rows: int | None = None) -> argparse.Namespace:
    """Return --steps and --seed, and --rows for an offline algorithm."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps, help="gradient steps offline, environment steps online")
    parser.add_argument("--seed", type=int, default=0)
    if rows is not None:
        parser.add_argument("--rows", type=int, default=rows, help="rows of random data")
    return parser.parse_args()


def demonstrate(model: ManagedAlgorithm, steps: int) -> None:
    """Train, evaluate, predict, save, and load again."""
    model.learn(steps)
    scores = model.evaluate(episodes=10)
    print(f"mean return over 10 episodes: {scores['return_mean']:.1f} +- {scores['return_std']:.1f}")
    action, _ = model.predict(UPRIGHT)
    print(f"torque when upright: {action[0]:+.3f}")
    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "policy")
        again, _ = type(model).load(path).predict(UPRIGHT)
    print(f"the same from the saved checkpoint: {again[0]:+.3f}")
