"""The trainer of `edac`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_edac = trainer("edac")
