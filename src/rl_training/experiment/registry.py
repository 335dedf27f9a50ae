"""The registry of algorithms under its public name; the table itself is in `rl_training.registry`."""

from rl_training.registry import REGISTRY, AlgorithmSpec, get_spec, names

__all__ = ["REGISTRY", "AlgorithmSpec", "get_spec", "names"]
