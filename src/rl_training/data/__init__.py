"""Datasets, recipes, loaders, mixers, replay and transforms."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "Batch": "rl_training.data.batch",
    "TransitionDataset": "rl_training.data.offline_dataset",
    "ReplayBuffer": "rl_training.data.replay_buffer",
    "compute_returns_to_go": "rl_training.data.returns",
    "load_dataset": "rl_training.data.dataset_loaders",
    "mix_datasets": "rl_training.data.offline_mixers",
    "make_dataset": "rl_training.data.recipes",
    "split_dataset": "rl_training.data.subsets",
    "filter_dataset": "rl_training.data.subsets",
    "transform_dataset": "rl_training.data.subsets",
    "save_dataset": "rl_training.data.store",
    "DatasetWriter": "rl_training.data.store",
    "examine": "rl_training.data.doctor",
    "read_dataset": "rl_training.data.dataset_loaders",
    "normalized_score": "rl_training.data.reference_scores",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
