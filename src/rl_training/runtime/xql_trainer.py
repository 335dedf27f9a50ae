"""The trainer of `xql`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_xql = trainer("xql")
