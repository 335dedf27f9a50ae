"""Learners and their losses, one file per algorithm."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "IQL": "rl_training.algorithms.iql",
    "IQLAlgorithm": "rl_training.algorithms.iql:IQL",
    "iql_loss": "rl_training.algorithms.iql",
    "Learner": "rl_training.algorithms.learner",
    "UpdateResult": "rl_training.algorithms.learner",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
