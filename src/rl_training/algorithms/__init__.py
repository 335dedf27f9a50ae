"""Learners and their losses, one file per algorithm."""

from rl_training._lazy import lazy_exports

_TABLE = {
    "IQL": "rl_training.algorithms.iql",
    "IQLAlgorithm": "rl_training.algorithms.iql:IQL",
    "iql_loss": "rl_training.algorithms.iql",
    "XQL": "rl_training.algorithms.xql",
    "XQLAlgorithm": "rl_training.algorithms.xql:XQL",
    "xql_loss": "rl_training.algorithms.xql",
    "xql_value_loss": "rl_training.algorithms.xql",
    "gumbel_rescale_loss": "rl_training.algorithms.xql",
    "SAC": "rl_training.algorithms.sac",
    "SACAlgorithm": "rl_training.algorithms.sac:SAC",
    "sac_loss": "rl_training.algorithms.sac",
    "REDQ": "rl_training.algorithms.redq",
    "REDQAlgorithm": "rl_training.algorithms.redq:REDQ",
    "redq_loss": "rl_training.algorithms.redq",
    "RLPD": "rl_training.algorithms.rlpd",
    "RLPDAlgorithm": "rl_training.algorithms.rlpd:RLPD",
    "rlpd_loss": "rl_training.algorithms.rlpd",
    "TD3BC": "rl_training.algorithms.td3_bc",
    "TD3BCAlgorithm": "rl_training.algorithms.td3_bc:TD3BC",
    "td3_bc_loss": "rl_training.algorithms.td3_bc",
    "CQL": "rl_training.algorithms.cql",
    "CQLAlgorithm": "rl_training.algorithms.cql:CQL",
    "cql_loss": "rl_training.algorithms.cql",
    "CalQL": "rl_training.algorithms.cal_ql",
    "CalQLAlgorithm": "rl_training.algorithms.cal_ql:CalQL",
    "cal_ql_loss": "rl_training.algorithms.cal_ql",
    "Learner": "rl_training.algorithms.learner",
    "UpdateResult": "rl_training.algorithms.learner",
}
__all__ = list(_TABLE)

__getattr__, __dir__ = lazy_exports(__name__, _TABLE)
