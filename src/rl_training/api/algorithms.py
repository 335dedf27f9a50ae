"""The managed classes, one per algorithm."""

from rl_training.api.managed import ManagedAlgorithm


class IQL(ManagedAlgorithm):
    """Implicit Q-learning, managed: `IQL("Pendulum-v1", dataset={"kind": "random"}).learn(20_000).evaluate()`."""

    algo = "iql"
