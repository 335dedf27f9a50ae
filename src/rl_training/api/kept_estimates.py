"""What `rl-training ope` and `select` found is kept in the run directories, and used again where the same is asked."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rl_training
from rl_training import ope
from rl_training.api.off_policy import Question, answer
from rl_training.errors import CheckpointError, StorageError
from rl_training.experiment.manager import locate
from rl_training.report.off_policy.kept import check_report
from rl_training.storage import (
    MANIFEST,
    OPE_FILE,
    OPE_FOLDER,
    canonical_json,
    parse_json,
    read_regular_file,
    replace_file,
    sha256,
)

_MOST_BYTES = 16 * 2**20  # of a file
_Tell = Callable[[str], None]


@dataclass(frozen=True)
class Answer:
    """A report in plain values, and where it is kept."""

    report: dict[str, Any]
    files: list[Path]  # for `rl-training report`, one for each run


def answered(asked: Question, *, again: bool = False, device: str = "auto", tell: _Tell, warn: _Tell) -> Answer:
    """Return what is known of the policies: what was found before if exactly this was asked, else what is found now."""
    folders = _folders(asked)
    identity = _identity(asked)
    name = f"{sha256(canonical_json(identity))[:16]}.json"
    report = None if again else _found_before(asked, identity, [folder / OPE_FOLDER / name for folder in folders], warn)
    if report is None:
        report = answer(asked, device=device, tell=lambda part: tell(f"{part} ...")).plain()
        content = {"question": identity, "policies": _policies(asked), "report": report}
        sealed = canonical_json({**content, "sha256": sha256(canonical_json(content))})
        for folder in folders:
            _write(folder / OPE_FOLDER, name, sealed, warn)
    else:
        tell("this was evaluated before (--again evaluates anew)")
    own = {folder: [one for one in report["policies"] if one["run"] in labels] for folder, labels in folders.items()}
    shown = {folder: canonical_json({**report, "policies": policies}) for folder, policies in own.items()}
    return Answer(report, [folder / OPE_FILE for folder, data in shown.items() if _write(folder, OPE_FILE, data, warn)])


def _folders(asked: Question) -> dict[Path, set[str]]:
    """The run directories of the policies, each with the names under which it was given."""
    found: dict[Path, set[str]] = {}
    for label in dict.fromkeys(one.run for one in asked.policies):
        run_dir, _ = locate(label)
        if run_dir is not None:
            found.setdefault(run_dir, set()).add(label)
    return found


def _identity(asked: Question) -> dict[str, Any]:
    """Everything that the values depend on. Policies are evaluated together, so each depends on which others there are."""
    options = {"gamma": asked.gamma, "rows": asked.rows, "steps": asked.steps, "seed": asked.seed}
    data = {"data": asked.dataset.fingerprint, "estimators": _estimators()}
    return {**data, **options, "policies": sorted(_policies(asked))}


@cache
def _estimators() -> str:
    """The version of the estimators: that of the package and a hash of their code, which nobody can forget to change."""
    (folder,) = ope.__path__
    parts = [path.read_bytes() for path in sorted(Path(folder).glob("*.py"))]
    return f"{rl_training.__version__} {sha256(b''.join(parts))}"


def _policies(asked: Question) -> list[str]:
    """Every policy by the hash of its checkpoint and its member, in the order in which they were given."""
    sources = [(one.policy.checkpoint, one.member) for one in asked.policies]
    return [f"{sha256(read_regular_file(one.source / MANIFEST))}:{member}" for one, member in sources if one is not None]


def _found_before(asked: Question, identity: Mapping[str, Any], paths: list[Path], warn: _Tell) -> dict[str, Any] | None:
    """The first of some files that answers the question; one that cannot be trusted is told and left alone."""
    for path in paths:
        if path.parent.is_symlink() or not os.path.lexists(path):
            continue
        try:
            return _read(path, asked, identity)
        except CheckpointError as error:
            warn(f"{error}; the policies are evaluated anew")
    return None


def _read(path: Path, asked: Question, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a file, with the names and in the order of now."""
    content = parse_json(read_regular_file(path, _MOST_BYTES), str(path))
    if content.pop("sha256", None) != sha256(canonical_json(content)):
        raise CheckpointError(f"{path}: is damaged or was edited (its hash does not match)")
    report: Any = content.get("report")
    order = content.get("policies")
    if content.get("question") != identity or not isinstance(order, list) or sorted(order) != identity["policies"]:
        raise CheckpointError(f"{path}: answers another question than its name says")
    check_report(report, str(path))
    entries = dict(zip(order, report["policies"], strict=True))
    names = [{"name": one.name, "run": one.run} for one in asked.policies]
    policies = [{**entries[key], **named} for key, named in zip(_policies(asked), names, strict=True)]
    return {**report, "data": asked.data, "warnings": list(asked.warnings), "policies": policies}


def _write(folder: Path, name: str, data: bytes, warn: _Tell) -> bool:
    """Write a file; one that cannot be written is told, since what was found is worth more than where it is kept."""
    try:
        if folder.name == OPE_FOLDER and folder.is_symlink():
            raise StorageError(f"{folder}: is a link")
        folder.mkdir(exist_ok=True)
        replace_file(folder / name, data)
    except (OSError, StorageError) as error:
        warn(f"the result is not kept: {error}")
        return False
    return True
