"""Every public name of the package and the module it lives in; the names of algorithms follow from the registry.

Packages serve these names lazily, so that `import rl_training` does not import torch. Type checkers read the stubs that
`make stubs` writes from this table.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from rl_training.registry import REGISTRY

_MANAGED = " ".join(f"{spec.name} {spec.name}Algorithm" for spec in REGISTRY.values())
_LEARNERS = {f"algorithms.{spec.id}": " ".join((spec.name, *spec.losses)) for spec in REGISTRY.values()}
_ALIASES = {f"algorithms.{spec.id}:{spec.name}": f"{spec.name}Algorithm" for spec in REGISTRY.values()}
_MODELS = {f"models.{spec.model.partition(':')[0]}": spec.model.partition(":")[2] for spec in REGISTRY.values()}
_TRAINERS = {f"runtime.{spec.id}_trainer": f"train_{spec.id}" for spec in REGISTRY.values()}

_TABLE: dict[str, dict[str, str]] = {
    "rl_training": {
        "api.algorithms": _MANAGED,
        "api.policy": "Policy",
        "api.deploying": "export_policy",
        "api.exported": "load_export",
        "api.off_policy": "evaluate_off_policy",
        "api.reporting": "write_report",
        "api.selecting": "select",
        "integrity.verify": "verify",
        "data.offline_dataset": "TransitionDataset",
        "data.replay_buffer": "ReplayBuffer",
        "data.dataset_loaders": "load_dataset",
        "data.offline_mixers": "mix_datasets",
        "experiment.manager": "ExperimentManager",
        "analysis.comparison": "compare",
        "runtime.callbacks": "Callback EarlyStopping",
        "errors": "ConfigError DatasetError CheckpointError",
    },
    "rl_training.api": {
        "api.algorithms": _MANAGED,
        "api.collecting": "collect_dataset",
        "api.managed": "ManagedAlgorithm",
        "api.policy": "Policy",
        "api.reporting": "write_report",
    },
    "rl_training.algorithms": {**_LEARNERS, **_ALIASES, "algorithms.learner": "Learner UpdateResult"},
    "rl_training.models": _MODELS,
    "rl_training.data": {
        "data.batch": "Batch",
        "data.offline_dataset": "TransitionDataset",
        "data.replay_buffer": "ReplayBuffer",
        "data.returns": "compute_returns_to_go",
        "data.dataset_loaders": "load_dataset read_dataset",
        "data.offline_mixers": "mix_datasets",
        "data.subsets": "split_dataset filter_dataset transform_dataset",
        "data.store.directory": "save_dataset DatasetWriter",
        "doctor.doctor": "examine",
        "envs.recipes": "make_dataset",
        "envs.reference_scores": "normalized_score",
    },
    "rl_training.runtime": {
        **_TRAINERS,
        "envs.environments": "infer_env_spaces",
        "envs.given": "register_env",
        "envs.evaluation": "evaluate_policy",
        "runtime.offline_data": "build_offline_dataset process_offline_dataset",
        "runtime.callbacks": "Callback EarlyStopping",
        "runtime.checkpoints.checkpoint": "load_checkpoint",
    },
    "rl_training.experiment": {
        "experiment.manager": "ExperimentManager",
        "experiment.export": "export_member",
        "config.run": "RunConfig",
        "config.loading": "load_config make_config",
    },
}


def _resolved(modules: Mapping[str, str]) -> dict[str, str]:
    """Return `name -> module:attribute` for a table `module[:attribute] -> names`."""
    found: dict[str, str] = {}
    for source, listed in modules.items():
        module, _, attribute = source.partition(":")
        found |= {name: f"rl_training.{module}:{attribute or name}" for name in listed.split()}
    return found


EXPORTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {package: MappingProxyType(_resolved(modules)) for package, modules in _TABLE.items()}
)
"""For each package its public names, each with the `module:attribute` that defines it."""


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the module-level `__getattr__`, `__dir__` and `__all__` that serve a package's public names."""
    table = EXPORTS[package]

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = table[name].partition(":")
        value = getattr(import_module(module), attribute)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *table})

    return get, names, list(table)
