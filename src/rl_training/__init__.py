"""rl_training: from logged data to control policies, and on to online improvement.

`import rl_training` is lazy: torch is loaded when the first learner, model or dataset is used.
"""

from rl_training._lazy import lazy_exports

__version__ = "0.1.0"

_TABLE = {
    "IQL": "rl_training.api.algorithms",
    "IQLAlgorithm": "rl_training.algorithms.iql:IQL",
    "XQL": "rl_training.api.algorithms",
    "XQLAlgorithm": "rl_training.algorithms.xql:XQL",
    "SAC": "rl_training.api.algorithms",
    "SACAlgorithm": "rl_training.algorithms.sac:SAC",
    "REDQ": "rl_training.api.algorithms",
    "REDQAlgorithm": "rl_training.algorithms.redq:REDQ",
    "RLPD": "rl_training.api.algorithms",
    "RLPDAlgorithm": "rl_training.algorithms.rlpd:RLPD",
    "TD3BC": "rl_training.api.algorithms",
    "TD3BCAlgorithm": "rl_training.algorithms.td3_bc:TD3BC",
    "CQL": "rl_training.api.algorithms",
    "CQLAlgorithm": "rl_training.algorithms.cql:CQL",
    "CalQL": "rl_training.api.algorithms",
    "CalQLAlgorithm": "rl_training.algorithms.cal_ql:CalQL",
    "Policy": "rl_training.api.policy",
    "TransitionDataset": "rl_training.data.offline_dataset",
    "ReplayBuffer": "rl_training.data.replay_buffer",
    "load_dataset": "rl_training.data.dataset_loaders",
    "mix_datasets": "rl_training.data.offline_mixers",
    "ExperimentManager": "rl_training.experiment.manager",
    "Callback": "rl_training.runtime.callbacks",
    "EarlyStopping": "rl_training.runtime.callbacks",
    "ConfigError": "rl_training.errors",
    "DatasetError": "rl_training.errors",
    "CheckpointError": "rl_training.errors",
}
__all__ = ["__version__", *_TABLE]  # noqa: PLE0604 - a literal table

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
