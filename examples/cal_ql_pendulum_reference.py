"""Cal-QL on Pendulum-v1 from uniformly random data.

Returns-to-go are derived from the scaled rewards; `tail` says how an episode cut by the time limit goes on.

Run it with `python examples/cal_ql_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import CalQL


def main() -> None:
    given = arguments(__doc__, steps=6_000, rows=100_000)
    model = CalQL(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        cql_alpha=0.2,
        num_cql_samples=4,
        tail="last_reward",
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        temperature_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
