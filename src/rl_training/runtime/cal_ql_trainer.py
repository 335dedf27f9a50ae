"""The trainer of `cal_ql`, defined by its row in the registry."""

from rl_training.runtime.trainer import trainer

train_cal_ql = trainer("cal_ql")
