"""The trainer of `fql`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_fql = trainer("fql")
