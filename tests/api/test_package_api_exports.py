import subprocess
import sys

import rl_training
from rl_training import algorithms, api, data, models, runtime
from rl_training.experiment import ExperimentManager, registry
from tests.helpers import environment

NAMES = {
    "iql": ("IQL", "MLPIQLModel", ["iql_loss"]),
    "xql": ("XQL", "MLPIQLModel", ["xql_loss", "xql_value_loss", "gumbel_rescale_loss"]),
    "awac": ("AWAC", "MLPAWACModel", ["awac_loss"]),
    "td3_bc": ("TD3BC", "MLPTD3Model", ["td3_bc_loss"]),
    "rebrac": ("ReBRAC", "MLPTD3Model", ["rebrac_loss"]),
    "cql": ("CQL", "MLPSACModel", ["cql_loss"]),
    "cal_ql": ("CalQL", "MLPSACModel", ["cal_ql_loss"]),
    "sac_n": ("SACN", "MLPSACModel", ["sac_n_loss"]),
    "edac": ("EDAC", "MLPSACModel", ["edac_loss"]),
    "fql": ("FQL", "MLPFQLModel", ["fql_loss"]),
    "td3": ("TD3", "MLPTD3Model", ["td3_loss"]),
    "sac": ("SAC", "MLPSACModel", ["sac_loss"]),
    "rlpd": ("RLPD", "MLPSACModel", ["rlpd_loss"]),
    "redq": ("REDQ", "MLPSACModel", ["redq_loss"]),
}


def test_the_promised_names_are_in_the_registry():
    rows = {algo: registry.get_spec(algo) for algo in NAMES}
    assert {algo: (row.name, row.model.split(":")[1], list(row.losses)) for algo, row in rows.items()} == NAMES


def test_every_algorithm_is_exported_everywhere():
    for algo, row in registry.REGISTRY.items():
        name, model, losses = row.name, row.model.split(":")[1], row.losses
        learner = getattr(algorithms, name)
        assert getattr(algorithms, f"{name}Algorithm") is learner
        assert getattr(rl_training, f"{name}Algorithm") is learner
        assert getattr(api, name) is getattr(rl_training, name)
        assert getattr(rl_training, name).algo == algo
        assert callable(getattr(runtime, f"train_{algo}"))
        assert getattr(models, model)
        assert all(callable(getattr(algorithms, loss)) for loss in losses)
    assert ExperimentManager is rl_training.ExperimentManager


def test_shared_helpers_are_exported():
    for name in ("infer_env_spaces", "build_offline_dataset", "process_offline_dataset", "evaluate_policy"):
        assert callable(getattr(runtime, name))
    for name in ("TransitionDataset", "ReplayBuffer", "Batch", "compute_returns_to_go", "load_dataset", "mix_datasets"):
        assert getattr(data, name)


def test_all_lists_are_true():
    for module in (rl_training, algorithms, api, data, models, runtime):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert set(module.__all__) <= set(dir(module))


def test_unknown_names_are_attribute_errors():
    assert not hasattr(rl_training, "NoSuchThing")


def test_import_is_lazy():
    code = "import sys, rl_training; print([m for m in ('torch', 'numpy', 'gymnasium', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
