"""rl_training: from logged data to control policies, and on to online improvement.

`import rl_training` is lazy: torch is loaded when the first learner, model or dataset is used.
"""

from rl_training._exports import lazy_exports

__version__ = "0.1.0"

__getattr__, __dir__, _names = lazy_exports(__name__)
__all__ = ["__version__", *_names]  # noqa: PLE0604 - names from a literal table
