"""The trainer of `iql`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_iql = trainer("iql")
