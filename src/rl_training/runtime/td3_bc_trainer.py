"""The trainer of `td3_bc`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_td3_bc = trainer("td3_bc")
