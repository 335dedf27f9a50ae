"""The training loop and what it needs: engine, sources, hooks, checkpoints, evaluation."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "train_iql": "rl_training.runtime.iql_trainer",
    "train_xql": "rl_training.runtime.xql_trainer",
    "train_sac": "rl_training.runtime.sac_trainer",
    "train_redq": "rl_training.runtime.redq_trainer",
    "train_rlpd": "rl_training.runtime.rlpd_trainer",
    "train_td3_bc": "rl_training.runtime.td3_bc_trainer",
    "train_cql": "rl_training.runtime.cql_trainer",
    "train_cal_ql": "rl_training.runtime.cal_ql_trainer",
    "infer_env_spaces": "rl_training.data.environments",
    "build_offline_dataset": "rl_training.runtime.offline",
    "process_offline_dataset": "rl_training.runtime.processing",
    "evaluate_policy": "rl_training.runtime.evaluation",
    "Callback": "rl_training.runtime.callbacks",
    "EarlyStopping": "rl_training.runtime.callbacks",
    "load_checkpoint": "rl_training.runtime.checkpoint",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
