"""One process that trains a long run in fifty pieces; prints its memory and open files after each, as JSON."""

import json
import os
import sys
from pathlib import Path

from rl_training.config.loading import make_config
from rl_training.experiment.manager import ExperimentManager
from tests.helpers import run_values

PIECES, PIECE = 50, 4_000
RHYTHM = {"log_interval": 500, "eval_interval": 2_000, "checkpoint_interval": 2_000, "eval_episodes": 1, "engine": "eager"}


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(run_dir):
    memory, files = [], []
    for piece in range(1, PIECES + 1):
        kwargs = {"hidden_sizes": [8], "batch_size": 8}
        values = run_values(
            "td3_bc", total_timesteps=piece * PIECE, learning_rate_schedule="constant", algo_kwargs=kwargs, **RHYTHM
        )
        ExperimentManager(make_config(values), run_dir).train(resume=True)
        memory.append(resident_bytes())
        files.append(len(os.listdir("/proc/self/fd")))
    print(json.dumps({"memory": memory, "files": files}))


if __name__ == "__main__":
    main(sys.argv[1])
