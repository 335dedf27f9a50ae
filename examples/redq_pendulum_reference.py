"""REDQ in Pendulum-v1, online: five critics, five updates per environment step.

Run it with `python examples/redq_pendulum_reference.py`; `--steps 300` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import REDQ


def main() -> None:
    given = arguments(__doc__, steps=6_000)
    model = REDQ(
        "Pendulum-v1",
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        num_critics=5,
        gradient_updates_per_step=5,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        temperature_learning_rate=1e-3,
        learning_starts=min(1_000, given.steps // 2),
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
