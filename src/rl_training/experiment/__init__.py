"""Configs, the registry of algorithms, run directories and the manager. Importing it loads no torch."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "ExperimentManager": "rl_training.experiment.manager",
    "export_member": "rl_training.experiment.export",
    "RunConfig": "rl_training.experiment.config",
    "load_config": "rl_training.experiment.config",
    "make_config": "rl_training.experiment.config",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
