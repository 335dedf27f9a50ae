"""The run.json of a run directory, read with care: a directory may come from a stranger, or be of another program."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.storage import MAX_JSON_BYTES, parse_json, read_regular_file


def run_record(path: Path) -> dict[str, Any]:
    """Return the run.json of a directory, or raise a CheckpointError that says why it cannot be read."""
    return parse_json(read_regular_file(path / "run.json", MAX_JSON_BYTES), str(path / "run.json"))


def run_status(path: Path) -> str | None:
    """Return the status of a run from its run.json; None if the directory is not a run of this package."""
    try:
        record = run_record(path)
        return str(record["status"]) if "rl_training" in record["versions"] else None
    except (CheckpointError, KeyError, TypeError):
        return None


def remove_litter(path: Path, names: Iterable[str]) -> None:
    """Remove what killed processes left of files with these names; call it while the directory is locked."""
    stages = tuple(f".{name}.tmp-" for name in names)
    with contextlib.suppress(OSError):
        for entry in path.iterdir():
            if entry.name.startswith(stages) and entry.name.rpartition("-")[2].isdecimal() and not entry.is_dir():
                entry.unlink()
