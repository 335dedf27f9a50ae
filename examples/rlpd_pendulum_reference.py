"""RLPD in Pendulum-v1: online, with half of every batch from uniformly random prior data, after pretraining on it.

Run it with `python examples/rlpd_pendulum_reference.py`; `--steps 300` makes it a matter of seconds.
"""

from common import arguments, demonstrate

from rl_training import RLPD


def main() -> None:
    given = arguments(__doc__, steps=5_000, rows=100_000)
    model = RLPD(
        "Pendulum-v1",
        dataset={"kind": "random", "size": given.rows},
        seed=given.seed,
        hidden_sizes=[64, 64],
        reward={"scale": 0.1},
        offline_pretrain_updates=min(4_000, given.steps),
        offline_batch_ratio=0.5,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        learning_starts=min(1_000, given.steps // 2),
    )
    demonstrate(model, given.steps)


if __name__ == "__main__":
    main()
