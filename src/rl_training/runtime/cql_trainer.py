"""The trainer of `cql`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_cql = trainer("cql")
