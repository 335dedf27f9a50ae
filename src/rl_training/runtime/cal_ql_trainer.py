"""The trainer of `cal_ql`; what is special to it is its row of the registry."""

from rl_training.runtime.trainer import trainer

train_cal_ql = trainer("cal_ql")
