"""FQL on Pendulum-v1 from uniformly random data.

With `normalize_q` the weight `alpha` of the cloned flow does not depend on the scale of the rewards; random actions are not
worth cloning, so that it is small here.

Run it with `python examples/fql_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import FQL


def main() -> None:
    given = arguments(__doc__, steps=10_000, rows=100_000)
    model = FQL(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        learning_rate_schedule={"actor": "cosine"},
        alpha=0.03,
        normalize_q=True,
        flow_steps=5,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
