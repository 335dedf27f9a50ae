"""The training loop and its parts: phases, batches, execution, checkpoints."""

from rl_training._exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
