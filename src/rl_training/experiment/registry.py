"""The registry of algorithms, under the name that users know; the table itself is `rl_training.registry`."""

from rl_training.registry import REGISTRY, AlgorithmSpec, get_spec, names

__all__ = ["REGISTRY", "AlgorithmSpec", "get_spec", "names"]
