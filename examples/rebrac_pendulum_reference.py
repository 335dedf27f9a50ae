"""ReBRAC on Pendulum-v1 from uniformly random data.

The weights `actor_bc_coef` and `critic_bc_coef` must suit the data: random actions are not worth cloning.

Run it with `python examples/rebrac_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import ReBRAC


def main() -> None:
    given = arguments(__doc__, steps=15_000, rows=100_000)
    model = ReBRAC(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        batch_size=256,
        reward={"scale": 0.1},
        learning_rate_schedule={"actor": "cosine"},
        actor_bc_coef=0.002,
        critic_bc_coef=0.002,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
