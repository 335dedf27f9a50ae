"""Behaviour cloning on Pendulum-v1, of a noisy swing-up controller: train, evaluate, predict, save and load again.

Run it with `python examples/bc_pendulum_reference.py`; `--steps 200` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import BC


def main() -> None:
    given = arguments(__doc__, steps=10_000, rows=50_000)
    model = BC(
        "Pendulum-v1",
        dataset={"kind": "scripted", "size": given.rows, "noise": 0.5},
        seed=given.seed,
        hidden_sizes=[64, 64],
        learning_rate_schedule={"actor": "cosine"},
        actor_learning_rate=1e-3,
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
