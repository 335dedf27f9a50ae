"""Ten kinds of runs that are killed, stopped and damaged, each a second or two long; and their undisturbed ends."""

import yaml

from rl_training.config.loading import make_config
from rl_training.data import save_dataset
from rl_training.experiment.manager import ExperimentManager
from tests.golden.runs import rows
from tests.helpers import run_values

LENGTH = 2000
_RHYTHM = {"total_timesteps": LENGTH, "eval_interval": 500, "checkpoint_interval": 50, "log_interval": 25, "engine": "eager"}
_RING = {"buffer_capacity": 400}  # moves on, so that segments of the replay are removed
_HALF = {"total_timesteps": LENGTH // 2, "finetune": {"env_steps": LENGTH // 2, "learning_starts": 20, **_RING}}
_TINY = {"hidden_sizes": [8], "batch_size": 8}
_KINDS = {
    "solo": ("iql", {}),
    "duals": ("cql", {"algo_kwargs": {"num_cql_samples": 2, "lagrange_gap": 1.0}}),
    "population": ("td3_bc", {"seeds": [0, 7, 9]}),
    "diverging": ("td3_bc", {"seeds": [0, 1], "sweep": {"alpha": [2.5, 1e30]}}),
    "files": ("iql", {"env_id": None, "select_by": "action_distance"}),
    "online": ("sac", {"algo_kwargs": _RING}),
    "beside": ("td3", {"seeds": [0, 1], "eval_mode": "beside", "algo_kwargs": _RING}),
    "prior": ("rlpd", {"algo_kwargs": {**_RING, "gradient_updates_per_step": 1}}),
    "finetune": ("iql", _HALF),
    "compiled": ("iql", {"engine": "compile"}),
}
KINDS = tuple(_KINDS)


def values(kind, folder, **changes):
    """The settings of a kind of run; its data, if it has files of data, is in the folder."""
    algo, own = _KINDS[kind]
    kwargs = {**_TINY, **own.get("algo_kwargs", {})}
    if kind == "files":
        path = folder / "data"
        if not path.exists():
            save_dataset(rows(600), path)
        kwargs["dataset"] = {"path": str(path)}
    return run_values(algo, **{**_RHYTHM, **own, "algo_kwargs": kwargs, **changes})


class Wholes:
    """Undisturbed runs, each trained when it is first asked for, and the configs they have."""

    def __init__(self, folder):
        self.folder, self.configs = folder, {}

    def __call__(self, kind, **changes):
        """The undisturbed run of a kind."""
        name = "-".join([kind, *(f"{key}={value}" for key, value in changes.items())])
        path = self.folder / name
        if name not in self.configs:
            config = make_config(values(kind, self.folder, **changes))
            self.configs[name] = path.with_suffix(".yaml")
            self.configs[name].write_text(yaml.safe_dump(values(kind, self.folder, **changes)))
            ExperimentManager(config, path).train()
        return path, self.configs[name]
