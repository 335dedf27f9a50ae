"""AWAC on Pendulum-v1 from uniformly random data: train, evaluate, predict, save and load again.

Run it with `python examples/awac_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import AWAC


def main() -> None:
    given = arguments(__doc__, steps=20_000, rows=100_000)
    model = AWAC(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        learning_rate_schedule={"actor": "cosine"},
        awac_lambda=0.1,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
