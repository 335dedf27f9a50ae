"""The trainer of `bc`; what is special to it is its row of the registry."""

from rl_training.runtime.trainer import trainer

train_bc = trainer("bc")
