"""XQL on Pendulum-v1 from uniformly random data.

`loss_temperature` has the scale of the values: rewards are scaled by 0.1, so a value is some tens.

Run it with `python examples/xql_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import XQL


def main() -> None:
    given = arguments(__doc__, steps=20_000, rows=100_000)
    model = XQL(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        learning_rate_schedule={"actor": "cosine"},
        loss_temperature=0.3,
        max_value_diff_exp=3.0,
        beta=10.0,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        value_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
