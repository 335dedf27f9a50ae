"""TD3+BC on Pendulum-v1 from uniformly random data.

The weight `alpha` must suit the data: the published 2.5 would clone the random actions.

Run it with `python examples/td3_bc_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import TD3BC


def main() -> None:
    given = arguments(__doc__, steps=15_000, rows=100_000)
    model = TD3BC(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        learning_rate_schedule={"actor": "cosine"},
        alpha=400.0,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
