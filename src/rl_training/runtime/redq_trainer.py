"""The trainer of `redq`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_redq = trainer("redq")
