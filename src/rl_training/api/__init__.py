"""The stable API: managed algorithms with a familiar interface."""

from rl_training._exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
