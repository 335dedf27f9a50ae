"""Stacked networks: every weight has a leading members axis."""

from rl_training._lazy import lazy_exports

__all__ = ["MLPIQLModel"]

__getattr__, __dir__ = lazy_exports(__name__, {"MLPIQLModel": "rl_training.models.iql_model"})
