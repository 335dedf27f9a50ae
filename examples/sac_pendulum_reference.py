"""SAC in Pendulum-v1, online: `--steps` counts environment steps.

Run it with `python examples/sac_pendulum_reference.py`; `--steps 300` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import SAC


def main() -> None:
    given = arguments(__doc__, steps=10_000)
    model = SAC(
        "Pendulum-v1",
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        learning_starts=min(1_000, given.steps // 2),
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
