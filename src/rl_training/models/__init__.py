"""Stacked networks: every weight has a leading members axis."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "MLPIQLModel": "rl_training.models.iql_model",
    "MLPSACModel": "rl_training.models.sac_model",
    "MLPTD3Model": "rl_training.models.td3_model",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
