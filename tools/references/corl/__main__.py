"""The command; see the package."""

import torch

from tools.references.common import main
from tools.references.corl import REPOSITORY, plain, soft

RECORDERS = [
    *(plain.bc, plain.td3_bc, plain.iql, plain.iql_deterministic, plain.awac),
    *(soft.cql, soft.cql_lagrange, soft.cql_max_backup, soft.cql_version_2, soft.cal_ql, soft.sac, soft.sac_n, soft.edac),
]

main(REPOSITORY, RECORDERS, {"torch": torch.__version__})
