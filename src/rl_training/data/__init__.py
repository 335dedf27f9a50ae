"""Datasets, loaders, mixers, replay and transforms."""

from rl_training._exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
