"""The trainer of `rebrac`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_rebrac = trainer("rebrac")
