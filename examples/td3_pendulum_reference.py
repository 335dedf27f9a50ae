"""TD3 in Pendulum-v1, online: `--steps` counts environment steps.

Run it with `python examples/td3_pendulum_reference.py`; `--steps 300` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import TD3


def main() -> None:
    given = arguments(__doc__, steps=15_000)
    model = TD3(
        "Pendulum-v1",
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        learning_starts=min(1_000, given.steps // 2),
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
