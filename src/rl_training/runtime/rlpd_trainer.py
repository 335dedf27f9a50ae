"""The trainer of `rlpd`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_rlpd = trainer("rlpd")
