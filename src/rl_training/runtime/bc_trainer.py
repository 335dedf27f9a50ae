"""The trainer of `bc`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_bc = trainer("bc")
