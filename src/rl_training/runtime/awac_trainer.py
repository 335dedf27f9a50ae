"""The trainer of `awac`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_awac = trainer("awac")
