"""CQL on Pendulum-v1 from uniformly random data.

The penalty's weight is small because the rewards are: scaled by 0.1, a return is some tens.

Run it with `python examples/cql_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import CQL


def main() -> None:
    given = arguments(__doc__, steps=6_000, rows=100_000)
    model = CQL(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        cql_alpha=0.2,
        num_cql_samples=4,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        temperature_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
