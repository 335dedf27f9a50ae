"""Cal-QL from nakamotoo/Cal-QL: `python -m tools.references.cal_ql CHECKOUT`."""

from typing import Any

from tools.references.common import Recording, Source, main
from tools.references.jax_code import VERSIONS
from tools.references.jaxcql import FILE, KNOBS, NETWORKS, NOTES, Trained

WEIGHT = 5.0


def _cal_ql(source: Source, variant: str, knobs: dict[str, Any], **settings: Any) -> Recording:
    every = {**KNOBS, "cql_alpha": WEIGHT, **knobs}
    recording = Recording("cal_ql", variant, source, FILE, every, NETWORKS, notes=NOTES, fields=("returns_to_go",))
    return Trained(recording, **settings).record(lambda _: {"cql_min_q_weight": WEIGHT, "enable_calql": True})


def cal_ql(source: Source) -> Recording:
    """Record Cal-QL as published: the target takes the best of several next actions."""
    return _cal_ql(source, "official", {"max_target_backup": True})


def cal_ql_entropy(source: Source) -> Recording:
    """Record Cal-QL with the entropy in a target of one action."""
    return _cal_ql(source, "official_entropy", {"backup_entropy": True}, cql_max_target_backup=False, backup_entropy=True)


if __name__ == "__main__":
    main("nakamotoo/Cal-QL", [cal_ql, cal_ql_entropy], VERSIONS)
