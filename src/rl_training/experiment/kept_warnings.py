"""Keeps the warnings of a run with it, so that they are there when its terminal is gone."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_training.errors import CheckpointError
from rl_training.experiment.run_record import run_record
from rl_training.runtime.progress import NOTHING_LEFT, Reporter

Kept = list[dict[str, str | None]]
"""Warnings as run.json holds them: `text`, and `at`, such as `step 120`; None for one from before the first step."""

_CODE = re.compile(r"[a-z]+(?:-[a-z]+)+(?=: )")


class KeepingReporter:
    """Passes everything on to another reporter, and adds each warning about the run to a list, once.

    A resumed run gives some warnings again, those about its policy with other figures: a warning with a code such as
    `far-from-data` is known by its code, any other one by its text.
    """

    def __init__(self, shown: Reporter, kept: Kept, on_change: Callable[[], object]) -> None:
        self._shown, self._kept, self._on_change = shown, kept, on_change
        self._unit: str | None = None
        self._count = 0

    def start(self, first: int, last: int, unit: str) -> None:
        """Remember where the run is."""
        self._unit, self._count = unit, first
        self._shown.start(first, last, unit)

    def advance(self, count: int, info: dict[str, float]) -> None:
        """Remember where the run is."""
        self._count = count
        self._shown.advance(count, info)

    def note(self, text: str) -> None:
        """Pass it on."""
        self._shown.note(text)

    def saved(self, label: str) -> None:
        """Pass it on."""
        self._shown.saved(label)

    def warn(self, text: str) -> None:
        """Pass a warning on, and keep it unless it is known or only says that this command had nothing to do."""
        self._shown.warn(text)
        known = {_identity(one["text"] or "") for one in self._kept}
        if _identity(text) in known or text.startswith(NOTHING_LEFT):
            return
        self._kept.append({"at": self._unit and f"{self._unit} {self._count:,}", "text": text})
        self._on_change()

    def close(self) -> None:
        """Pass it on."""
        self._shown.close()


def _identity(text: str) -> str:
    code = _CODE.match(text)
    return code.group() if code else text


def kept_in(run_dir: Path) -> Kept:
    """Return the warnings in the run.json of a directory; none if it cannot be read."""
    return warnings_of(_record_in(run_dir))


def kept_fields(run_dir: Path, *, ours: bool) -> dict[str, Any]:
    """Return what a run that is continued keeps of its run.json: warnings, and what random actions earned before it."""
    record = _record_in(run_dir) if ours else {}
    return {"warnings": warnings_of(record), "random_play": record.get("random_play")}


def _record_in(run_dir: Path) -> dict[str, Any]:
    try:
        return run_record(run_dir)
    except CheckpointError:
        return {}


def warnings_of(record: Mapping[str, Any]) -> Kept:
    """Return the warnings in the record of a run; none if it was written before they were kept."""
    found = record.get("warnings")
    listed = found if isinstance(found, list) else []
    return [one for one in listed if isinstance(one, dict) and isinstance(one.get("text"), str)]
