"""Learners and their losses, one file per algorithm."""

from rl_training._exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
