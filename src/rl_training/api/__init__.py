"""The stable surface: managed algorithms in the shape people know."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "IQL": "rl_training.api.algorithms",
    "XQL": "rl_training.api.algorithms",
    "SAC": "rl_training.api.algorithms",
    "REDQ": "rl_training.api.algorithms",
    "RLPD": "rl_training.api.algorithms",
    "TD3BC": "rl_training.api.algorithms",
    "CQL": "rl_training.api.algorithms",
    "CalQL": "rl_training.api.algorithms",
    "ManagedAlgorithm": "rl_training.api.managed",
    "Policy": "rl_training.api.policy",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
