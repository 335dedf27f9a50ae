"""The trainer of `td3_bc`; what is special to it is its row of the registry."""

from rl_training.runtime.trainer import trainer

train_td3_bc = trainer("td3_bc")
