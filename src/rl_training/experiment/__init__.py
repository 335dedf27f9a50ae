"""The registry of algorithms, run directories and the manager. Importing it loads no torch."""

from rl_training._exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
