"""The managed classes, one per row of the registry, and the learners under the names `<X>Algorithm`.

Editors and type checkers read the stub next to this file, with every setting by name and type; `make stubs` writes it.
"""

from typing import Any

from rl_training.api.managed import ManagedAlgorithm
from rl_training.registry import REGISTRY, AlgorithmSpec

_LEARNERS = {f"{spec.name}Algorithm": spec for spec in REGISTRY.values()}


def _managed(spec: AlgorithmSpec) -> type[ManagedAlgorithm]:
    data = "" if spec.kind == "online" else ', dataset="log.npz"'
    example = f'`{spec.name}("Pendulum-v1"{data}).learn(10_000).evaluate()`'
    unit = "environment" if spec.online else "gradient"
    doc = f"{spec.title}, managed: {example}; steps are {unit} steps."
    return type(spec.name, (ManagedAlgorithm,), {"algo": spec.id, "__doc__": doc, "__module__": __name__})


globals().update({spec.name: _managed(spec) for spec in REGISTRY.values()})


def __getattr__(name: str) -> Any:
    if name not in _LEARNERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _LEARNERS[name].learner
