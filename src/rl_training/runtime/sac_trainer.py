"""The trainer of `sac`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_sac = trainer("sac")
