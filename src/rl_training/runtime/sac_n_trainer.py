"""The trainer of `sac_n`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_sac_n = trainer("sac_n")
