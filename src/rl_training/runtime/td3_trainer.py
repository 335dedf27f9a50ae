"""The trainer of `td3`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_td3 = trainer("td3")
