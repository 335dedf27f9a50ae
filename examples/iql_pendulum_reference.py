"""IQL on Pendulum-v1 from uniformly random data: train, evaluate, predict, save and load again.

Run it with `python examples/iql_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

import argparse
import tempfile
from pathlib import Path

from rl_training import IQL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="gradient steps")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of random data")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    model = IQL(
        "Pendulum-v1",
        dataset={"kind": "random", "size": arguments.rows},
        seed=arguments.seed,
        learning_rate_schedule={"actor": "cosine"},
        hidden_sizes=[64, 64],
        expectile=0.9,
        beta=10.0,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        value_learning_rate=1e-3,
        reward={"scale": 0.1},
    )
    model.learn(arguments.steps)
    scores = model.evaluate(episodes=10)
    print(f"mean return over 10 episodes: {scores['return_mean']:.1f} +- {scores['return_std']:.1f}")

    upright = [1.0, 0.0, 0.0]  # cos, sin and speed of the angle
    action, _ = model.predict(upright)
    print(f"torque when upright: {action[0]:+.3f}")

    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "policy")
        again, _ = IQL.load(path).predict(upright)
    print(f"the same from the saved checkpoint: {again[0]:+.3f}")


if __name__ == "__main__":
    main()
